//! Searching: cells by their centroids, vectors by their upper bytes, the best of them by all.

use std::{cmp::Reverse, collections::BinaryHeap};

use domain::entry::Metric;
use ports::{
    Error, Kind, Result,
    search::{Hit, Near},
};
use roaring::RoaringBitmap;

use super::{HEAD, arithmetic, open::VectorIndex, spool::Head};
use crate::{cache::Piece, source::copy};

/// Up to so many rows that count, just these are read.
const FEW: u64 = 4_096;
/// Of vectors that are looked at by their upper bytes, so many per hit are looked at whole, and not fewer than these.
const WHOLE_PER_HIT: usize = 4;
const WHOLE_MIN: usize = 32;
/// Vectors that are read by themselves at once: each may lie in a block of its own, and these are in memory together.
const TOGETHER: usize = 256;
/// Candidates that are kept before those are dropped that cannot be among the best any more.
const HELD_MAX: usize = 16 << 10;

/// How near two vectors are: more is nearer. Of distances it is minus the square, until the end.
pub(super) fn score(metric: Metric, product: f32, square: f32, other: f32) -> f32 {
    match metric {
        Metric::Cosine | Metric::Dot => product,
        Metric::L2 => 2.0 * product - square - other,
    }
}

/// A vector that is searched.
struct Query {
    numbers: Vec<f32>,
    square: f32,
    whole: Vec<i16>,
    step: f32,
    /// The error of an approximate product per unit of a vector's scale.
    doubt: f32,
    metric: Metric,
}

impl Query {
    fn new(index: &VectorIndex, near: &Near) -> Result<Self> {
        let invalid = |why: String| Error::new(Kind::Invalid, "search", "vector").because(why);
        let (has, length) = (near.vector.len(), index.shape.length);
        if has != length && index.shape.count > 0 {
            return Err(invalid(format!(
                "it has {has} numbers, the indexed ones have {length}"
            )));
        }
        let square = arithmetic::dot(&near.vector, &near.vector);
        if !square.is_finite() {
            return Err(invalid(String::from(
                "a number in it is none, or is too large",
            )));
        }
        let metric = index.shape.metric;
        let factor = match metric {
            Metric::Cosine if square == 0.0 => {
                return Err(invalid(String::from(
                    "it is zero, and has no direction that the cosine could compare",
                )));
            }
            Metric::Cosine => 1.0 / square.sqrt(),
            Metric::Dot | Metric::L2 => 1.0,
        };
        let numbers: Vec<f32> = near.vector.iter().map(|number| number * factor).collect();
        let (whole, step) = arithmetic::whole(&numbers);
        let sum: f32 = numbers.iter().map(|number| number.abs()).sum();
        #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
        let rounding = 16_256.0 * step * length as f32;
        Ok(Self {
            square: square * factor * factor,
            numbers,
            whole,
            step,
            doubt: 128.0 * sum + rounding,
            metric,
        })
    }

    /// A score by upper bytes, and how wrong it may be.
    fn about(&self, head: Head, upper: &[u8]) -> (f32, f32) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "what is lost is within the doubt"
        )]
        let product =
            arithmetic::bytes_dot(upper, &self.whole) as f32 * self.step * 256.0 * head.scale;
        let doubt = self.doubt * head.scale;
        let score = score(self.metric, product, self.square, head.square);
        match self.metric {
            Metric::L2 => (score, 2.0 * doubt),
            Metric::Cosine | Metric::Dot => (score, doubt),
        }
    }

    /// The score by all bytes, as it is told.
    fn exactly(&self, head: Head, upper: &[u8], lower: &[u8]) -> f32 {
        let number = |(upper, lower): (&u8, &u8)| {
            let whole = i16::from(upper.cast_signed()) * 256 + i16::from(lower.cast_signed());
            f32::from(whole) * head.scale
        };
        let numbers: Vec<f32> = upper.iter().zip(lower).map(number).collect();
        match self.metric {
            Metric::Cosine | Metric::Dot => arithmetic::dot(&self.numbers, &numbers),
            Metric::L2 => -arithmetic::distance2(&self.numbers, &numbers).sqrt(),
        }
    }
}

/// A vector that may be among the best.
struct Candidate {
    score: f32,
    doubt: f32,
    head: Head,
    cell: u32,
    at: u32,
    upper: Vec<u8>,
}

/// Candidates, and the score that so many of them have for certain.
struct Best {
    limit: usize,
    certain: BinaryHeap<Reverse<Ordered>>,
    held: Vec<Candidate>,
    looked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ordered(f32);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Best {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            certain: BinaryHeap::new(),
            held: Vec::new(),
            looked_at: 0,
        }
    }

    /// What a score must be able to reach.
    fn bar(&self) -> f32 {
        match self.certain.peek() {
            Some(Reverse(worst)) if self.certain.len() == self.limit => worst.0,
            _ => f32::NEG_INFINITY,
        }
    }

    fn see(&mut self, query: &Query, head: Head, upper: &[u8], cell: u32, at: u32) {
        self.looked_at += 1;
        let (score, doubt) = query.about(head, upper);
        if score + doubt < self.bar() {
            return;
        }
        if score - doubt > self.bar() || self.certain.len() < self.limit {
            self.certain.push(Reverse(Ordered(score - doubt)));
            if self.certain.len() > self.limit {
                self.certain.pop();
            }
        }
        self.held.push(Candidate {
            score,
            doubt,
            head,
            cell,
            at,
            upper: upper.to_vec(),
        });
        if self.held.len() >= HELD_MAX && self.held.len() >= 4 * self.limit {
            let bar = self.bar();
            self.held.retain(|one| one.score + one.doubt >= bar);
        }
    }

    /// Those that may be among the best; with `most`, the best of these by what is known.
    fn left(mut self, most: Option<usize>) -> Vec<Candidate> {
        let bar = self.bar();
        self.held.retain(|one| one.score + one.doubt >= bar);
        if let Some(most) = most {
            self.held.sort_by(|a, b| b.score.total_cmp(&a.score));
            self.held.truncate(most);
        }
        self.held
    }
}

/// The nearest rows.
pub(crate) async fn search(index: &VectorIndex, near: &Near) -> Result<Vec<Hit>> {
    let query = Query::new(index, near)?;
    if index.shape.count == 0 || near.limit == 0 {
        return Ok(Vec::new());
    }
    let mut best = Best::new(near.limit);
    let among = near.among.as_ref();
    let is_exact = match among {
        Some(among) if among.len() <= FEW => {
            these(index, &query, among, &mut best).await?;
            true
        }
        _ => probe(index, &query, among, &mut best).await?,
    };
    let most = (near.limit * WHOLE_PER_HIT).max(WHOLE_MIN);
    let left = best.left((!is_exact).then_some(most));
    whole(index, &query, left, near.limit).await
}

/// Looks into cells, the nearest first, until as many vectors that count were looked at as without a filter. Answers whether
/// all cells were looked into.
async fn probe(
    index: &VectorIndex,
    query: &Query,
    among: Option<&RoaringBitmap>,
    best: &mut Best,
) -> Result<bool> {
    let ranked = match &index.cells {
        Some(cells) => cells.ranked(&query.numbers, query.metric == Metric::Dot),
        None => (0_u32..).take(index.counts.len()).collect(),
    };
    let probes = index.shape.probes.max(1);
    let enough: u64 = ranked
        .iter()
        .take(probes)
        .map(|cell| u64::from(index.counts[*cell as usize]))
        .sum();
    // As many at once as lie in memory well.
    for some in ranked.chunks(probes.min(64)) {
        let extents: Vec<_> = some.iter().map(|cell| index.codes(*cell)).collect();
        let pieces = index.source.extents(&extents).await?;
        for (cell, piece) in some.iter().zip(&pieces) {
            scan(index, query, among, *cell, piece, best)?;
        }
        let seen_probes = best.looked_at >= enough;
        if index.cells.is_some() && seen_probes {
            let all = ranked.last() == some.last();
            return Ok(all);
        }
    }
    Ok(true)
}

fn scan(
    index: &VectorIndex,
    query: &Query,
    among: Option<&RoaringBitmap>,
    cell: u32,
    piece: &Piece,
    best: &mut Best,
) -> Result<()> {
    let count = index.counts[cell as usize];
    let (heads, upper) = piece
        .split_at_checked(count as usize * HEAD)
        .ok_or_else(|| index.source.corrupt("a cell is cut short"))?;
    let vectors = heads
        .chunks_exact(HEAD)
        .zip(upper.chunks_exact(index.shape.length));
    for (at, (head, upper)) in (0_u32..).zip(vectors) {
        let head = Head::read(head);
        if among.is_none_or(|among| among.contains(head.row)) {
            best.see(query, head, upper, cell, at);
        }
    }
    Ok(())
}

/// Looks at just the rows that count.
async fn these(
    index: &VectorIndex,
    query: &Query,
    among: &RoaringBitmap,
    best: &mut Best,
) -> Result<()> {
    let pieces = index.source.extents(&index.rows()).await?;
    let rows = pieces.iter().flat_map(|piece| piece.chunks_exact(4));
    let places: Vec<(u32, u32)> = (0_u64..)
        .zip(rows)
        .filter(|(_, row)| among.contains(u32::from_le_bytes([row[0], row[1], row[2], row[3]])))
        .map(|(place, _)| index.place(place))
        .collect();
    let (mut head, mut upper) = ([0; HEAD], vec![0; index.shape.length]);
    for some in places.chunks(TOGETHER) {
        let ranges: Vec<_> = some
            .iter()
            .flat_map(|(cell, at)| [index.head(*cell, *at), index.upper(*cell, *at)])
            .map(|extent| extent.start..extent.end())
            .collect();
        let blocks = index.source.blocks(&ranges).await?;
        for (cell, at) in some {
            copy(&blocks, index.head(*cell, *at).start, &mut head);
            copy(&blocks, index.upper(*cell, *at).start, &mut upper);
            best.see(query, Head::read(&head), &upper, *cell, *at);
        }
    }
    Ok(())
}

/// Scores what is left by all bytes.
async fn whole(
    index: &VectorIndex,
    query: &Query,
    mut left: Vec<Candidate>,
    limit: usize,
) -> Result<Vec<Hit>> {
    let lower_of = |one: &Candidate| index.lower(one.cell, one.at);
    left.sort_by_key(|one| lower_of(one).start);
    let mut lower = vec![0; index.shape.length];
    let mut hits: Vec<Hit> = Vec::with_capacity(left.len());
    for some in left.chunks(TOGETHER) {
        let ranges = some.iter().map(lower_of);
        let ranges: Vec<_> = ranges.map(|extent| extent.start..extent.end()).collect();
        let blocks = index.source.blocks(&ranges).await?;
        for one in some {
            copy(&blocks, lower_of(one).start, &mut lower);
            hits.push(Hit {
                row: one.head.row,
                score: query.exactly(one.head, &one.upper, &lower),
            });
        }
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    hits.truncate(limit);
    Ok(hits)
}
