//! Search: a million short texts, and a million vectors of 384 numbers in clumps, as entries on files.
//!
//! Each is a process of its own, so that peaks of memory are of one. Cold is an index that is opened anew, with nothing of it in
//! memory; what the system keeps of the file stays. A search is measured whole: the state store, the index, and the rows.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field},
};
use domain::{
    Duration, EntrySettings,
    entry::{EntryId, IndexSpec, Metric, Mode, Spec},
    fingerprint::Call,
};
use engine::entries::{Ask, Claim, Claimed, Commit, Registry, Sought, Wanted};
use futures::{StreamExt, TryStreamExt, stream};
use ports::tables::Rows;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tests::world::{Adapter, Lab};

use crate::{Options, block_on, by_size};

/// Numbers of a vector, clumps of vectors, and how far a vector is from the middle of its clump.
const LENGTH: usize = 384;
const CLUMPS: usize = 2_000;
const SPREAD: f32 = 0.5;
/// Rows of a batch, searches that are measured, and neighbours of each.
const BATCH: usize = 8_192;
const SEARCHES: usize = 200;
const BEST: usize = 10;
/// Texts have so many words of a vocabulary of so many.
const WORDS: usize = 10;
const VOCABULARY: f64 = 100_000.0;

pub(super) fn run(options: &Options) -> Result<Value> {
    let rows = if options.quick { 100_000 } else { 1_000_000 };
    Ok(json!({
        "text": by_size("--search-text-child", &[rows], SEARCHES)?,
        "vectors": by_size("--search-vectors-child", &[rows], SEARCHES)?,
    }))
}

/// One size, as a process of its own.
pub(super) fn child(vectors: bool, arguments: &[String]) -> Result<()> {
    let [rows, searches] = arguments else {
        anyhow::bail!("SIZE and ROUNDS");
    };
    let (rows, searches) = (rows.parse()?, searches.parse()?);
    let measured = block_on(async move {
        match vectors {
            false => texts(rows, searches).await,
            true => self::vectors(rows, searches).await,
        }
    })?;
    println!("{measured}");
    Ok(())
}

/// A world on files with one entry.
struct Desk {
    lab: Lab,
    registry: Registry,
    id: EntryId,
    indexes: Arc<search::Indexes>,
    folder: tempfile::TempDir,
}

impl Desk {
    async fn new(rows: Rows, spec: IndexSpec) -> Result<(Self, f64, f64)> {
        let mut lab = Lab::new(Adapter::Embedded, &[], domain::LiveSettings::default())?;
        let folder = tempfile::tempdir()?;
        let settings = EntrySettings::default();
        let indexes = Arc::new(search::Indexes::new(
            lab.objects.clone(),
            search::Settings {
                cache: usize::try_from(settings.search_cache)?,
                scratch: folder.path().to_owned(),
            },
        ));
        lab.world.searching.indexes = indexes.clone();
        lab.world.clock = Arc::new(embedded::SystemClock);
        let desk = Self {
            registry: Registry::new(lab.world.clone(), settings),
            lab,
            id: EntryId::new(Call::new("bench", 0).fingerprint()?, None)?,
            indexes,
            folder,
        };
        let begun = Instant::now();
        desk.store(rows).await?;
        let stored = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        desk.registry.index(&desk.id, &[spec]).await?;
        desk.registry
            .settle(&desk.id, Duration::from_secs(7_200))
            .await?;
        let built = begun.elapsed().as_secs_f64();
        Ok((desk, stored, built))
    }

    async fn store(&self, rows: Rows) -> Result<()> {
        let claim = Claim {
            ask: Ask::default(),
            spec: Spec {
                mode: Mode::Strict,
                ..Spec::default()
            },
            holder: String::from("bench"),
            lease: Some(Duration::from_secs(7_200)),
            wait: Duration::ZERO,
        };
        let Claimed::Build(granted) = self.registry.claim(&self.id, &claim).await? else {
            anyhow::bail!("no lease");
        };
        let token = granted.token;
        self.registry.store(&self.id, &token, rows).await?;
        self.registry
            .commit(&self.id, &token, Commit::default())
            .await?;
        Ok(())
    }

    async fn about(&self) -> Result<Value> {
        let indexes = self.registry.indexes(&self.id).await?;
        let index = indexes.first().context("no index")?;
        ensure!(index.status == "ready", "{index:?}");
        let spooled = std::fs::read_dir(self.folder.path())?.count();
        ensure!(spooled == 0, "the folder of the build is not empty");
        Ok(json!({ "index_bytes": index.byte_size, "rows": index.row_count }))
    }

    /// One search: its milliseconds, and the rows it found.
    async fn search(&self, sought: &Sought, filter: Option<&str>) -> Result<(f64, Vec<i64>)> {
        let wanted = Wanted {
            filter: filter.map(str::to_owned),
            limit: BEST,
            offset: 0,
            select: Some(vec![String::from("n")]),
            wait: Duration::ZERO,
            time: Duration::from_secs(60),
        };
        let begun = Instant::now();
        let found = self.registry.search(&self.id, sought, &wanted).await?;
        let batches: Vec<RecordBatch> = found.rows.stream.try_collect().await?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        let numbers = batches.iter().flat_map(|batch| {
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>();
            column
                .map(|column| column.values().to_vec())
                .unwrap_or_default()
        });
        Ok((took, numbers.collect()))
    }

    /// Milliseconds of searches one after the other, warm and each from a cold open.
    async fn measure(&self, all: &[Sought], filter: Option<&str>) -> Result<Value> {
        let (mut warm, mut cold) = (Vec::new(), Vec::new());
        for sought in all.iter().take(20) {
            self.indexes.forget();
            cold.push(self.search(sought, filter).await?.0);
        }
        for sought in all {
            self.search(sought, filter).await?;
        }
        for sought in all {
            warm.push(self.search(sought, filter).await?.0);
        }
        Ok(json!({ "warm_ms": spread(warm), "cold_ms": spread(cold) }))
    }
}

fn spread(mut all: Vec<f64>) -> Value {
    all.sort_by(f64::total_cmp);
    let at = |share: usize| all.get((all.len() * share / 100).min(all.len().saturating_sub(1)));
    json!({ "p50": at(50), "p95": at(95), "max": all.last() })
}

/// Words by Zipf's law, roughly.
fn word(random: &mut SmallRng) -> usize {
    let share: f64 = random.random();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below the vocabulary"
    )]
    let word = VOCABULARY.powf(share) as usize;
    word
}

async fn texts(rows: usize, searches: usize) -> Result<Value> {
    let batch = move |first: usize| {
        let mut random = SmallRng::seed_from_u64(first as u64);
        let last = (first + BATCH).min(rows);
        let text = |_| {
            let words: Vec<String> = (0..WORDS)
                .map(|_| format!("w{}", word(&mut random)))
                .collect();
            words.join(" ")
        };
        let texts: StringArray = (first..last).map(text).map(Some).collect();
        numbered(first..last, "text", Arc::new(texts))
    };
    let rows_ = generated(rows, batch)?;
    let spec = IndexSpec::Text {
        columns: vec![String::from("text")],
    };
    let (desk, stored, built) = Desk::new(rows_, spec).await?;
    let peak = crate::merge::memory_peak();
    let mut random = SmallRng::seed_from_u64(u64::MAX);
    // Two words: a common and any.
    let sought: Vec<Sought> = (0..searches)
        .map(|_| Sought::Words {
            query: format!("w{} w{}", word(&mut random).min(500), word(&mut random)),
            columns: Vec::new(),
        })
        .collect();
    let all = desk.measure(&sought, None).await?;
    let filtered = desk
        .measure(&sought[..searches / 4], Some("n % 10 = 3"))
        .await?;
    let _ = &desk.lab;
    Ok(json!({
        "rows": rows, "store_s": stored, "build_s": built, "build_peak_mib": peak, "index": desk.about().await?,
        "search": all, "filtered": filtered,
    }))
}

fn numbered(range: std::ops::Range<usize>, name: &str, column: ArrayRef) -> Result<RecordBatch> {
    let numbers: Int64Array = range.map(|n| i64::try_from(n).ok()).collect();
    let numbers: ArrayRef = Arc::new(numbers);
    Ok(RecordBatch::try_from_iter([
        ("n", numbers),
        (name, column),
    ])?)
}

/// Rows that are made as they are read.
fn generated(
    rows: usize,
    batch: impl Fn(usize) -> Result<RecordBatch> + Send + 'static,
) -> Result<Rows> {
    let schema = batch(0)?.schema();
    let made = (0..rows).step_by(BATCH).map(move |first| {
        batch(first).map_err(|error| {
            ports::Error::new(ports::Kind::Invalid, "make", "rows").because(format!("{error:#}"))
        })
    });
    Ok(Rows {
        schema,
        stream: stream::iter(made).boxed(),
    })
}

fn vector(random: &mut SmallRng, middle: Option<&[f32]>) -> Vec<f32> {
    let mut one = |at: usize| {
        // A sum of some is near enough to a bell.
        let noise: f32 = (0..4).map(|_| random.random::<f32>() - 0.5).sum();
        middle.map_or(noise, |middle| middle[at] + noise * SPREAD)
    };
    (0..LENGTH).map(&mut one).collect()
}

fn middles() -> Vec<Vec<f32>> {
    let mut random = SmallRng::seed_from_u64(1);
    (0..CLUMPS).map(|_| vector(&mut random, None)).collect()
}

/// The vectors of a batch, one after the other.
fn made(middles: &[Vec<f32>], range: std::ops::Range<usize>) -> Vec<f32> {
    let mut random = SmallRng::seed_from_u64(range.start as u64 + 2);
    let one = |_| {
        let clump = random.random_range(0..CLUMPS);
        vector(&mut random, Some(&middles[clump]))
    };
    range.flat_map(one).collect()
}

async fn vectors(rows: usize, searches: usize) -> Result<Value> {
    let middles_ = middles();
    let batch = move |first: usize| {
        let range = first..(first + BATCH).min(rows);
        let numbers = Float32Array::from(made(&middles_, range.clone()));
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        let length = i32::try_from(LENGTH)?;
        let list = FixedSizeListArray::try_new(item, length, Arc::new(numbers), None)?;
        numbered(range, "v", Arc::new(list))
    };
    let spec = IndexSpec::Vector {
        column: String::from("v"),
        metric: Metric::Cosine,
    };
    let (desk, stored, built) = Desk::new(generated(rows, batch)?, spec).await?;
    let peak = crate::merge::memory_peak();
    let middles = middles();
    let mut random = SmallRng::seed_from_u64(u64::MAX);
    let queries: Vec<Vec<f32>> = (0..searches)
        .map(|_| {
            let clump = random.random_range(0..CLUMPS);
            vector(&mut random, Some(&middles[clump]))
        })
        .collect();
    let sought: Vec<Sought> = queries
        .iter()
        .map(|vector| Sought::Vector {
            column: Some(String::from("v")),
            vector: vector.clone(),
        })
        .collect();
    let all = desk.measure(&sought, None).await?;
    let filtered = desk
        .measure(&sought[..searches / 4], Some("n % 10 = 3"))
        .await?;
    let recall = recall(&desk, rows, &middles, &queries, &sought).await?;
    Ok(json!({
        "rows": rows, "store_s": stored, "build_s": built, "build_peak_mib": peak, "index": desk.about().await?,
        "search": all, "filtered": filtered, "recall_at_10": recall,
    }))
}

/// How many of the exact neighbours are found, of a hundred searches.
async fn recall(
    desk: &Desk,
    rows: usize,
    middles: &[Vec<f32>],
    queries: &[Vec<f32>],
    sought: &[Sought],
) -> Result<f64> {
    let queries = &queries[..queries.len().min(100)];
    let mut best: Vec<Vec<(f32, i64)>> = vec![Vec::new(); queries.len()];
    for first in (0..rows).step_by(BATCH) {
        let numbers = made(middles, first..(first + BATCH).min(rows));
        for (n, vector) in (first..).zip(numbers.chunks_exact(LENGTH)) {
            let length = dot(vector, vector).sqrt();
            for (query, best) in queries.iter().zip(&mut best) {
                let score = dot(query, vector) / length;
                if best.len() < BEST || best.last().is_some_and(|(worst, _)| score > *worst) {
                    let place = best.partition_point(|(known, _)| *known >= score);
                    best.insert(place, (score, i64::try_from(n)?));
                    best.truncate(BEST);
                }
            }
        }
    }
    let mut found = 0;
    for (sought, best) in sought.iter().zip(&best) {
        let (_, rows) = desk.search(sought, None).await?;
        found += best.iter().filter(|(_, n)| rows.contains(n)).count();
    }
    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let recall = found as f64 / (queries.len() * BEST) as f64;
    Ok(recall)
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (x, y) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for lane in 0..16 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum()
}
