//! Indexes from end to end, on objects in memory.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, FixedSizeListArray, Float32Array, Float64Array, ListArray, RecordBatch,
        StringArray,
    },
    datatypes::{DataType, Field, Float32Type, Schema},
};
use domain::{
    entry::{EntryId, Metric},
    fingerprint::Call,
};
use futures::{StreamExt, stream};
use object_store::{ObjectStoreExt, PutPayload, memory::InMemory};
use ports::{
    Kind, Result, Search,
    entries::DataSet,
    search::{Hit, IndexFile, Near, Plan, Progress, Words},
    tables::Rows,
};
use roaring::RoaringBitmap;
use testkit::CountedObjects;

use super::{Indexes, Settings, path};

mod vectors;

struct Desk {
    objects: Arc<CountedObjects>,
    indexes: Indexes,
    set: DataSet,
}

impl Desk {
    fn new() -> Self {
        let objects = Arc::new(CountedObjects::new(Arc::new(InMemory::new())));
        let settings = Settings {
            cache: 16 << 20,
            scratch: std::env::temp_dir(),
        };
        let print = Call::new("f", 1).fingerprint().expect("is a call");
        Self {
            indexes: Indexes::new(objects.clone(), settings),
            objects,
            set: DataSet {
                id: EntryId::new(print, None).expect("is an id"),
                generation: String::from("g"),
            },
        }
    }

    async fn build(&self, plan: Plan, batches: Vec<RecordBatch>) -> Result<IndexFile> {
        let rows = Rows {
            schema: batches[0].schema(),
            stream: stream::iter(batches.into_iter().map(Ok)).boxed(),
        };
        let progress = Progress::default();
        self.indexes
            .build(&self.set, "i.index", &plan, rows, &progress)
            .await
    }

    async fn texts(&self, texts: &[Option<&str>]) -> IndexFile {
        let column: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let batch = RecordBatch::try_from_iter([("title", column)]).expect("is a batch");
        self.build(Plan::Text, vec![batch]).await.expect("builds")
    }

    async fn rows(&self, index: &IndexFile, query: &str) -> Vec<u32> {
        let hits = self.indexes.words(index, &words(query)).await;
        hits.expect(query).iter().map(|hit| hit.row).collect()
    }
}

fn words(query: &str) -> Words {
    Words {
        query: query.to_owned(),
        columns: Vec::new(),
        among: None,
        offset: 0,
        limit: 10,
    }
}

fn vectors(all: &[Vec<f32>]) -> RecordBatch {
    let length = i32::try_from(all[0].len()).expect("is short");
    let numbers = Float32Array::from(all.concat());
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let list = FixedSizeListArray::try_new(item, length, Arc::new(numbers), None).expect("fits");
    RecordBatch::try_from_iter([("v", Arc::new(list) as ArrayRef)]).expect("is a batch")
}

fn plan(metric: Metric, exact_max: u64) -> Plan {
    Plan::Vectors { metric, exact_max }
}

fn near(vector: &[f32], limit: usize) -> Near {
    Near {
        vector: vector.to_vec(),
        among: None,
        limit,
    }
}

/// Numbers that look like any, the same ones each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "24 bits")]
        let number = (self.0 >> 40) as f32 / (1_u32 << 24) as f32;
        number - 0.5
    }

    fn vector(&mut self, length: usize) -> Vec<f32> {
        (0..length).map(|_| self.next()).collect()
    }

    /// Clumps of vectors.
    fn clumps(&mut self, count: usize, clumps: usize, length: usize) -> Vec<Vec<f32>> {
        let middles: Vec<Vec<f32>> = (0..clumps).map(|_| self.vector(length)).collect();
        let one = |at: usize| {
            let noise = self.vector(length);
            let middle = &middles[at % clumps];
            middle
                .iter()
                .zip(&noise)
                .map(|(m, n)| m + n * 0.6)
                .collect()
        };
        (0..count).map(one).collect()
    }
}

fn plainly(
    metric: Metric,
    all: &[Vec<f32>],
    query: &[f32],
    among: Option<&RoaringBitmap>,
) -> Vec<(u32, f64)> {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum::<f64>()
    };
    let mut scored: Vec<(u32, f64)> = (0_u32..)
        .zip(all)
        .filter(|(row, _)| among.is_none_or(|among| among.contains(*row)))
        .map(|(row, vector)| {
            let score = match metric {
                Metric::Dot => dot(vector, query),
                Metric::Cosine => {
                    dot(vector, query) / dot(vector, vector).sqrt() / dot(query, query).sqrt()
                }
                Metric::L2 => -(dot(vector, vector) + dot(query, query) - 2.0 * dot(vector, query))
                    .max(0.0)
                    .sqrt(),
            };
            (row, score)
        })
        .collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored
}

#[tokio::test]
async fn words_are_found_in_the_order_of_their_weight() {
    let desk = Desk::new();
    let index = desk
        .texts(&[
            Some("The quick brown fox"),
            Some("a lazy dog, and another dog"),
            None,
            Some("dog"),
            Some("Quick foxes and a dog that is not lazy at all"),
        ])
        .await;
    assert_eq!(desk.rows(&index, "DOG").await, [3, 1, 4]);
    assert_eq!(desk.rows(&index, "\"lazy dog\"").await, [1]);
    assert_eq!(desk.rows(&index, "+quick +dog").await, [4]);
    assert_eq!(desk.rows(&index, "quick -dog").await, [0]);
    assert_eq!(desk.rows(&index, "title:fox OR title:foxes").await, [0, 4]);
    assert!(desk.rows(&index, "cat").await.is_empty());
    assert!(desk.rows(&index, "!!!").await.is_empty());
}

#[tokio::test]
async fn rows_that_do_not_count_take_nobodys_place() {
    let desk = Desk::new();
    let texts: Vec<String> = (0..2_000)
        .map(|at| format!("word{} common", if at < 1_000 { "" } else { " word" }))
        .collect();
    let texts: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let index = desk.texts(&texts).await;
    let mut sought = words("word common");
    sought.limit = 3;
    sought.among = Some([7, 11, 13, 999].into_iter().collect());
    let rows = |hits: Vec<Hit>| hits.iter().map(|hit| hit.row).collect::<Vec<_>>();
    assert_eq!(
        rows(desk.indexes.words(&index, &sought).await.expect("searches")),
        [7, 11, 13]
    );
    sought.offset = 3;
    assert_eq!(
        rows(desk.indexes.words(&index, &sought).await.expect("searches")),
        [999]
    );
    sought.among = Some(RoaringBitmap::new());
    assert!(
        desk.indexes
            .words(&index, &sought)
            .await
            .expect("searches")
            .is_empty()
    );
}

#[tokio::test]
async fn a_query_that_is_none_is_refused_with_its_place() {
    let desk = Desk::new();
    let index = desk.texts(&[Some("a")]).await;
    let deep = format!("{}a{}", "(".repeat(5_000), ")".repeat(5_000));
    for (query, told) in [
        ("", "empty"),
        (" \n", "empty"),
        ("a (b", "character"),
        ("title:", "character 7"),
        ("nobody:a", "nobody"),
        ("a nobody:a", "character 3"),
        ("quick do*", "character 9"),
        ("dog~2", "character 4"),
        (deep.as_str(), "longer"),
        ("((((((((((a))))))))))", "character 9"),
    ] {
        let error = desk
            .indexes
            .words(&index, &words(query))
            .await
            .expect_err(query);
        assert_eq!(error.kind, Kind::Invalid, "{query}: {}", error.chain());
        assert!(error.chain().contains(told), "{query}: {}", error.chain());
    }
    let mut elsewhere = words("a");
    elsewhere.columns = vec![String::from("body")];
    let error = desk
        .indexes
        .words(&index, &elsewhere)
        .await
        .expect_err("has no such column");
    assert_eq!(error.kind, Kind::Invalid);
}

#[tokio::test]
async fn opening_is_one_request_and_a_search_a_few() {
    let desk = Desk::new();
    let texts: Vec<String> = (0..50_000)
        .map(|at| format!("text number {at} of {} and {}", at % 97, at * 7 % 5_003))
        .collect();
    let texts: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let index = desk.texts(&texts).await;
    desk.objects.take();
    assert_eq!(desk.rows(&index, "4711").await.len(), 10);
    let cold = desk.objects.take();
    println!(
        "cold: {cold:?}; the index has {} bytes, its tail {}",
        index.bytes, index.tail
    );
    assert!(cold.requests() == 4, "{cold:?}");
    assert_eq!(desk.rows(&index, "4711").await.len(), 10);
    assert_eq!(desk.objects.take().requests(), 0);
    desk.indexes.forget();
    desk.rows(&index, "4711").await;
    assert_eq!(desk.objects.take().requests(), cold.requests());
}

#[tokio::test]
async fn an_index_of_nothing_finds_nothing() {
    let desk = Desk::new();
    let text = desk.texts(&[]).await;
    assert!(desk.rows(&text, "a").await.is_empty());
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let schema = Schema::new(vec![Field::new("v", DataType::List(item), true)]);
    let empty = RecordBatch::new_empty(Arc::new(schema));
    desk.indexes.forget();
    let index = desk
        .build(plan(Metric::L2, 0), vec![empty])
        .await
        .expect("builds");
    assert!(
        desk.indexes
            .near(&index, &near(&[1.0], 5))
            .await
            .expect("searches")
            .is_empty()
    );
}

#[tokio::test]
async fn what_is_not_as_it_was_written_is_corrupt_and_what_is_gone_is_not_found() {
    let mut dice = Dice(5);
    for text in [true, false] {
        let desk = Desk::new();
        let index = match text {
            true => desk.texts(&[Some("one two"), Some("two three")]).await,
            false => {
                let all = dice.clumps(300, 10, 8);
                desk.build(plan(Metric::L2, 100), vec![vectors(&all)])
                    .await
                    .expect("builds")
            }
        };
        let place = path(&desk.set, "i.index");
        let whole = desk
            .objects
            .get(&place)
            .await
            .expect("is there")
            .bytes()
            .await
            .expect("reads");
        let search = async |desk: &Desk| {
            desk.indexes.forget();
            match text {
                true => desk.indexes.words(&index, &words("two")).await,
                false => desk.indexes.near(&index, &near(&[0.1; 8], 3)).await,
            }
        };
        let good = search(&desk).await.expect("searches").len();
        assert!(good > 0);
        // Whatever byte is another one: the same answer, another one or an error, and never the end of the process.
        for at in (0..whole.len())
            .step_by(whole.len() / 150 + 1)
            .chain(whole.len() - 20..whole.len())
        {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0x55;
            desk.objects
                .put(&place, PutPayload::from(bytes))
                .await
                .expect("writes");
            if let Err(error) = search(&desk).await {
                assert_eq!(error.kind, Kind::Corrupt, "{at}: {}", error.chain());
            }
        }
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            desk.objects
                .put(&place, PutPayload::from(whole.slice(..length)))
                .await
                .expect("writes");
            let error = search(&desk).await.expect_err("is cut short");
            assert!(
                matches!(error.kind, Kind::Corrupt | Kind::Unavailable),
                "{length}: {}",
                error.chain()
            );
        }
        desk.objects.delete(&place).await.expect("deletes");
        assert_eq!(
            search(&desk).await.expect_err("is gone").kind,
            Kind::NotFound
        );
    }
}
