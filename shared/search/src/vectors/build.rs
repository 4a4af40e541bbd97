//! Building: spooled, grouped into cells, packed.
//!
//! ```text
//! codes of cell 0, 1, ..  | lower bytes of cell 0, 1, .. | rows of cell 0, 1, .. | tail: centroids, counts
//! ```
//!
//! The codes of a cell are the heads of its vectors and then the upper bytes of all of them: one range to read.

use std::{io, sync::Arc};

use bytes::Bytes;
use ports::{Error, Kind, Result, search::Progress, tables::Rows};
use tempfile::TempDir;

use super::{
    HEAD, Wanted,
    cells::{self, Cells},
    search::score,
    spool::{Head, Spool, halves},
};
use crate::{
    bundle::{Content, Footer, Packer, Place, Vectors},
    feed,
};

/// Bytes of a cell of an index that is searched as a whole, and of what is sent at once.
const CHUNK: usize = 4 << 20;
/// Most bytes of the sample that centroids are made of, and of the vectors that are looked at together.
const SAMPLE_BYTES: usize = 160 << 20;
const TOGETHER_BYTES: usize = 16 << 20;
/// Vectors that the number of probes is measured on, how many neighbours of each, and how many of these are to be found.
const TRIALS: usize = 64;
const NEIGHBOURS: usize = 10;
const FOUND: f64 = 0.985;

/// Builds, and answers the length of the object and of its tail.
pub(crate) async fn build(
    place: Place<'_>,
    scratch: TempDir,
    wanted: Wanted,
    rows: Rows,
    progress: &Progress,
) -> Result<(u64, u64)> {
    let (name, progress) = (place.name.to_owned(), progress.clone());
    let arranged = feed::through(place.name, rows, move |feed| {
        let spool = Spool::fill(&name, wanted.metric, scratch, feed, &progress)?;
        Arranged::of(spool, wanted)
            .map_err(|error| Error::new(Kind::Unavailable, "build index", &name).because(error))
    })
    .await?;
    let mut packer = Packer::new(place);
    match fill(&mut packer, place.name, &Arc::new(arranged)).await {
        Ok(footer) => packer.finish(&footer).await,
        Err(error) => {
            packer.give_up().await;
            Err(error)
        }
    }
}

/// Vectors in the order they are packed in.
struct Arranged {
    spool: Spool,
    shape: Vectors,
    /// Centroids, one after the other; empty when all cells are searched anyhow.
    centroids: Vec<f32>,
    /// Records, cell by cell.
    order: Vec<u32>,
    counts: Vec<u32>,
}

impl Arranged {
    fn of(spool: Spool, wanted: Wanted) -> io::Result<Self> {
        match spool.count <= wanted.exact_max {
            true => Ok(Self::whole(spool, wanted)),
            false => Self::grouped(spool, wanted),
        }
    }

    /// Cells of records as they came, all of which a search looks into.
    fn whole(spool: Spool, wanted: Wanted) -> Self {
        let count = u32::try_from(spool.count).unwrap_or(u32::MAX);
        let each = u32::try_from(CHUNK / (HEAD + spool.length))
            .unwrap_or(1)
            .max(1);
        let starts = (0..count).step_by(each as usize);
        let counts: Vec<u32> = starts.map(|start| each.min(count - start)).collect();
        Self {
            shape: Vectors {
                metric: wanted.metric,
                length: spool.length,
                count: spool.count,
                cells: counts.len(),
                probes: counts.len(),
            },
            centroids: Vec::new(),
            order: (0..count).collect(),
            counts,
            spool,
        }
    }

    fn grouped(spool: Spool, wanted: Wanted) -> io::Result<Self> {
        let length = spool.length;
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(8);
        let most = (SAMPLE_BYTES / 4 / length).max(256);
        let cells = cells::number(spool.count).min(most / 8);
        let sample = sample(&spool, (cells * cells::SAMPLE_PER_CELL).min(most))?;
        let cells = Cells::train(length, cells, &sample, threads);
        let count = sample.len() / length;
        let trials: Vec<&[f32]> = (0..TRIALS.min(count))
            .map(|trial| trial * count / TRIALS.min(count))
            .map(|at| &sample[at * length..(at + 1) * length])
            .collect();
        let mut best = vec![Vec::<(f32, u32)>::new(); trials.len()];
        let mut nearest = Vec::with_capacity(usize::try_from(spool.count).unwrap_or(0));
        let together = (TOGETHER_BYTES / 4 / length).max(64);
        let mut block = Records::default();
        while (nearest.len() as u64) < spool.count {
            let first = nearest.len();
            block.read(&spool, first as u64, together)?;
            let mut these = vec![0; block.count];
            cells::in_parts(
                threads,
                length,
                &block.numbers,
                &mut these,
                |vectors, out| {
                    cells.nearest(vectors, out);
                },
            );
            neighbours(wanted, &trials, &block, first, &mut best);
            nearest.extend(these);
        }
        let probes = probes(wanted, &cells, &trials, &best, &nearest);
        let mut counts = vec![0_u32; cells.len()];
        nearest.iter().for_each(|cell| counts[*cell as usize] += 1);
        let order = ordered(&nearest, &counts);
        Ok(Self {
            shape: Vectors {
                metric: wanted.metric,
                length,
                count: spool.count,
                cells: cells.len(),
                probes,
            },
            centroids: cells.numbers,
            order,
            counts,
            spool,
        })
    }
}

/// Records by their cell, in each as they came.
fn ordered(nearest: &[u32], counts: &[u32]) -> Vec<u32> {
    let mut next: Vec<usize> = counts
        .iter()
        .scan(0, |start, count| {
            let here = *start;
            *start += *count as usize;
            Some(here)
        })
        .collect();
    let mut order = vec![0_u32; nearest.len()];
    for (record, cell) in (0_u32..).zip(nearest) {
        let next = &mut next[*cell as usize];
        order[*next] = record;
        *next += 1;
    }
    order
}

/// Vectors of about equal distances, apart from a chance that is the same each time: rows may repeat in some rhythm.
fn sample(spool: &Spool, most: usize) -> io::Result<Vec<f32>> {
    let count = spool.count.min(most as u64).max(1);
    let mut sample = Vec::new();
    let mut one = Records::default();
    for at in 0..count {
        let (first, last) = (at * spool.count / count, (at + 1) * spool.count / count);
        let place = first + cells::chance(at) % (last - first).max(1);
        one.read(spool, place, 1)?;
        sample.extend_from_slice(&one.numbers);
    }
    Ok(sample)
}

/// Records as numbers.
#[derive(Debug, Default)]
struct Records {
    bytes: Vec<u8>,
    numbers: Vec<f32>,
    squares: Vec<f32>,
    count: usize,
}

impl Records {
    fn read(&mut self, spool: &Spool, first: u64, most: usize) -> io::Result<()> {
        let left = usize::try_from(spool.count - first).unwrap_or(usize::MAX);
        self.count = most.min(left);
        self.bytes.resize(self.count * spool.record(), 0);
        spool.read(first, &mut self.bytes)?;
        self.numbers.clear();
        self.squares.clear();
        for record in self.bytes.chunks_exact(spool.record()) {
            let head = Head::read(record);
            self.squares.push(head.square);
            let numbers = record[HEAD..].chunks_exact(2);
            self.numbers.extend(
                numbers.map(|two| f32::from(i16::from_le_bytes([two[0], two[1]])) * head.scale),
            );
        }
        Ok(())
    }
}

/// Keeps the best of what was seen, per trial.
fn neighbours(
    wanted: Wanted,
    trials: &[&[f32]],
    block: &Records,
    first: usize,
    best: &mut [Vec<(f32, u32)>],
) {
    let length = trials.first().map_or(1, |trial| trial.len());
    std::thread::scope(|scope| {
        for (trials, best) in trials.chunks(16).zip(best.chunks_mut(16)) {
            scope.spawn(move || {
                for (trial, best) in trials.iter().zip(best) {
                    let square = super::arithmetic::dot(trial, trial);
                    let vectors = block.numbers.chunks_exact(length).zip(&block.squares);
                    for (at, (vector, other)) in vectors.enumerate() {
                        let product = super::arithmetic::dot(trial, vector);
                        let score = score(wanted.metric, product, square, *other);
                        let worst = best.last().map_or(f32::NEG_INFINITY, |(score, _)| *score);
                        if best.len() < NEIGHBOURS || score > worst {
                            let record = u32::try_from(first + at).unwrap_or(u32::MAX);
                            let place = best.partition_point(|(known, _)| *known >= score);
                            best.insert(place, (score, record));
                            best.truncate(NEIGHBOURS);
                        }
                    }
                }
            });
        }
    });
}

/// The fewest cells that hold enough of the neighbours, and a quarter more.
fn probes(
    wanted: Wanted,
    cells: &Cells,
    trials: &[&[f32]],
    best: &[Vec<(f32, u32)>],
    nearest: &[u32],
) -> usize {
    let by_product = wanted.metric == domain::entry::Metric::Dot;
    let mut ranks = Vec::new();
    for (trial, best) in trials.iter().zip(best) {
        let ranked = cells.ranked(trial, by_product);
        let mut rank = vec![0_usize; ranked.len()];
        for (at, cell) in ranked.iter().enumerate() {
            rank[*cell as usize] = at;
        }
        ranks.extend(
            best.iter()
                .map(|(_, record)| rank[nearest[*record as usize] as usize]),
        );
    }
    ranks.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a position in a short list"
    )]
    let at = (ranks.len() as f64 * FOUND).ceil() as usize;
    let needed = ranks.get(at.saturating_sub(1)).map_or(1, |rank| rank + 1);
    (needed + needed.div_ceil(4)).max(4).min(cells.len())
}

/// Packs all sections; answers the footer.
async fn fill(packer: &mut Packer, name: &str, arranged: &Arc<Arranged>) -> Result<Footer> {
    for section in [Section::Codes, Section::Lower, Section::Rows] {
        let (mut cell, mut first) = (0, 0);
        while cell < arranged.counts.len() {
            let work = arranged.clone();
            let chunk = tokio::task::spawn_blocking(move || work.chunk(section, cell, first)).await;
            let failed = |error: io::Error| {
                Error::new(Kind::Unavailable, "build index", name).because(error)
            };
            let chunk = chunk.map_err(|error| failed(io::Error::other(error)))?;
            let (bytes, cells, vectors) = chunk.map_err(failed)?;
            packer.put(Bytes::from(bytes)).await?;
            cell += cells;
            first += vectors;
        }
    }
    packer.begin_tail();
    let mut more = Vec::new();
    let numbers = arranged.centroids.iter();
    more.extend(numbers.flat_map(|number| number.to_le_bytes()));
    more.extend(arranged.counts.iter().flat_map(|count| count.to_le_bytes()));
    let footer = Footer {
        content: Content::Vectors(arranged.shape.clone()),
        hot: Vec::new(),
        more: more.len() as u64,
    };
    packer.put(Bytes::from(more)).await?;
    Ok(footer)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Codes,
    Lower,
    Rows,
}

impl Arranged {
    /// Some whole cells of a section: their bytes, how many cells, how many vectors.
    fn chunk(
        &self,
        section: Section,
        cell: usize,
        first: usize,
    ) -> io::Result<(Vec<u8>, usize, usize)> {
        let mut bytes = Vec::with_capacity(CHUNK);
        let mut record = vec![0; self.spool.record()];
        let (mut cells, mut vectors) = (0, 0);
        let mut upper = Vec::new();
        for count in &self.counts[cell..] {
            let start = first + vectors;
            upper.clear();
            for at in &self.order[start..start + *count as usize] {
                self.spool.read((*at).into(), &mut record)?;
                match section {
                    Section::Rows => bytes.extend_from_slice(&record[..4]),
                    Section::Codes => bytes.extend_from_slice(&record[..HEAD]),
                    Section::Lower => {}
                }
                let halves = record[HEAD..]
                    .chunks_exact(2)
                    .map(|two| halves(i16::from_le_bytes([two[0], two[1]])));
                match section {
                    Section::Codes => upper.extend(halves.map(|(upper, _)| upper)),
                    Section::Lower => bytes.extend(halves.map(|(_, lower)| lower)),
                    Section::Rows => {}
                }
            }
            bytes.extend_from_slice(&upper);
            cells += 1;
            vectors += *count as usize;
            if bytes.len() >= CHUNK {
                break;
            }
        }
        Ok((bytes, cells, vectors))
    }
}
