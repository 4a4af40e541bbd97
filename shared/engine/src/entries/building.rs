//! Building an index under its job, with a deadline that moves while the build lives.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray},
    buffer::{NullBuffer, OffsetBuffer},
    compute::cast,
    datatypes::{DataType, Field, Float32Type, Schema},
};
use domain::{
    Timestamp,
    entry::{Index, IndexSpec, IndexState},
};
use futures::{StreamExt, TryStreamExt};
use ports::{
    Embedder, Error, Kind, Result,
    search::{IndexFile, Plan, Progress},
    state::{Expect, Outcome, Write},
    tables::Rows,
};

use super::{
    ATTEMPTS, Entry, Registry, contended,
    index::{Held, is_text, key},
    stored::row_key,
};

/// How often a deadline is moved: several times within it.
const BEATS: u32 = 4;
/// Longest reason that is kept of a failure, in characters.
const REASON_MAX: usize = 1_000;

impl Registry {
    /// Builds what was begun, and says in its item what came of it. One that is not done in time has failed.
    pub(super) async fn carry_out(
        &self,
        entry: &Entry,
        begun: Held,
        until: Option<Timestamp>,
    ) -> Result<()> {
        let progress = Progress::default();
        let Held { index, mut version } = begun;
        let built = {
            let build = self.make(entry, &index, &progress);
            tokio::pin!(build);
            loop {
                let beat = self.now() + self.settings.lease / BEATS;
                let beat = until.map_or(beat, |until| beat.min(until));
                tokio::select! {
                    biased;
                    built = &mut build => break built,
                    () = self.world.clock.sleep_until(beat) => {
                        if until.is_some_and(|until| self.now() >= until) {
                            break Err(overdue(entry));
                        }
                        match self.renew(entry, &index, version, progress.rows()).await {
                            Ok(Some(renewed)) => version = renewed,
                            Ok(None) => break Err(superseded(entry)),
                            // The store does not answer: the deadline says for how long that is no matter.
                            Err(error) if error.kind == Kind::Unavailable => {}
                            Err(error) => break Err(error),
                        }
                    }
                }
            }
        };
        let now = self.now();
        let state = match built {
            Ok(file) => IndexState::Ready {
                at: now,
                bytes: file.bytes,
                tail: file.tail,
                rows: entry.content.rows,
            },
            Err(error) => {
                tracing::warn!(entry = %entry.id, index = index.spec.name(), error = error.chain(), "an index could not be built");
                IndexState::Failed {
                    at: now,
                    reason: error.chain().chars().take(REASON_MAX).collect(),
                }
            }
        };
        let is_ready = matches!(state, IndexState::Ready { .. });
        let told = Index { state, ..index };
        let published = self.publish(entry, &told, version).await;
        // After an answer that says nothing of what happened, the file may be named: reconcile finds out.
        if !is_ready || matches!(published, Ok(false)) {
            self.drop_file(entry, &told).await;
        }
        published.map(|_| ())
    }

    /// Moves the deadline; none when the job was taken over, or the entry has moved on.
    pub(super) async fn renew(
        &self,
        entry: &Entry,
        index: &Index,
        version: u64,
        rows_done: u64,
    ) -> Result<Option<u64>> {
        let state = IndexState::Building {
            deadline: self.now() + self.settings.lease,
            rows_done,
        };
        let renewed = Index {
            state,
            ..index.clone()
        };
        self.write_index(entry, &renewed, version).await
    }

    /// Writes an index item of this job, if the entry is still of its generation.
    pub(super) async fn write_index(
        &self,
        entry: &Entry,
        index: &Index,
        version: u64,
    ) -> Result<Option<u64>> {
        for _ in 0..ATTEMPTS {
            let Some(stored) = self.row(&entry.id).await? else {
                return Ok(None);
            };
            let generation = stored.row.content().map(|content| &content.generation);
            if generation != Some(&index.generation) {
                return Ok(None);
            }
            let put = Write::put(key(&entry.id, &index.spec), index, Expect::Version(version));
            let check = Write::Check {
                key: row_key(&entry.id),
                expect: Expect::Version(stored.version),
            };
            match self.world.state.transact(vec![put, check]).await? {
                Outcome::Committed(versions) => return Ok(versions.first().copied()),
                Outcome::Conflict(which) if which.contains(&0) => return Ok(None),
                // The row was written for another reason, such as another index.
                Outcome::Conflict(_) => {}
            }
        }
        Err(contended("index", &entry.id))
    }

    /// Whether what came of a job is now what the item says.
    async fn publish(&self, entry: &Entry, index: &Index, version: u64) -> Result<bool> {
        Ok(self.write_index(entry, index, version).await?.is_some())
    }

    /// Removes what a job has written; what stays is found by reconcile.
    pub(super) async fn drop_file(&self, entry: &Entry, index: &Index) {
        let removed = self.world.entries.remove(&entry.set(), &index.file()).await;
        if let Err(error) = removed {
            tracing::warn!(entry = %entry.id, error = error.chain(), "the file of an index was not removed");
        }
    }

    async fn make(&self, entry: &Entry, index: &Index, progress: &Progress) -> Result<IndexFile> {
        let set = entry.set();
        let columns = index.spec.columns();
        let entries = &self.world.entries;
        let rows = entries.columns(&set, entry.content.bytes, columns).await?;
        let searching = &self.world.searching;
        let (plan, rows) = match &index.spec {
            IndexSpec::Text { .. } => (Plan::Text, rows),
            IndexSpec::Vector { metric, .. } => {
                let plan = Plan::Vectors {
                    metric: *metric,
                    exact_max: self.settings.exact_max,
                };
                let is_text = is_text(rows.schema.field(0).data_type());
                let rows = match is_text {
                    true => embedded(rows, searching.embedder.clone()),
                    false => rows,
                };
                (plan, rows)
            }
        };
        searching
            .indexes
            .build(&set, &index.file(), &plan, rows, progress)
            .await
    }
}

fn superseded(entry: &Entry) -> Error {
    Error::new(Kind::Conflict, "index", &entry.id)
        .because("another job has taken over, or the entry was rebuilt or evicted")
}

fn overdue(entry: &Entry) -> Error {
    Error::new(Kind::Unavailable, "index", &entry.id).because(
        "it takes longer than a function may run: index fewer columns or rows, or have it built by `headwater entries index`",
    )
}

/// A column of text as one of vectors.
fn embedded(rows: Rows, embedder: Arc<dyn Embedder>) -> Rows {
    let field = Field::new_list_field(DataType::Float32, true);
    let list = DataType::List(Arc::new(field));
    let name = rows.schema.field(0).name().clone();
    let schema = Arc::new(Schema::new(vec![Field::new(name, list, true)]));
    let shape = schema.clone();
    let stream = rows.stream.and_then(move |batch| {
        let (embedder, schema) = (embedder.clone(), shape.clone());
        async move {
            let vectors = vectors(&*embedder, batch.column(0)).await?;
            RecordBatch::try_new(schema, vec![vectors])
                .map_err(|error| Error::new(Kind::Invalid, "embed", "text").because(error))
        }
    });
    Rows {
        schema,
        stream: stream.boxed(),
    }
}

/// The vectors of a column of text. Text that says nothing has none, as NULL has: services refuse it, and all that it comes with.
async fn vectors(embedder: &dyn Embedder, column: &ArrayRef) -> Result<ArrayRef> {
    let invalid = |error| Error::new(Kind::Invalid, "embed", "text").because(error);
    let texts = cast(column, &DataType::Utf8).map_err(invalid)?;
    let texts: &StringArray = texts.as_string();
    let says = |text: &&str| !text.trim().is_empty();
    let said: Vec<bool> = texts
        .iter()
        .map(|text| text.as_ref().is_some_and(says))
        .collect();
    let present: Vec<String> = texts
        .iter()
        .flatten()
        .filter(says)
        .map(str::to_owned)
        .collect();
    let mut made = Vec::with_capacity(present.len());
    for some in present.chunks(embedder.batch().max(1)) {
        made.extend(embed(embedder, some).await?);
    }
    let mut made = made.into_iter();
    let mut numbers: Vec<f32> = Vec::new();
    let mut lengths = Vec::with_capacity(texts.len());
    for is_said in &said {
        let vector = match is_said {
            true => made.next().unwrap_or_default(),
            false => Vec::new(),
        };
        lengths.push(vector.len());
        numbers.extend(vector);
    }
    let values = arrow::array::PrimitiveArray::<Float32Type>::from(numbers);
    let list = ListArray::try_new(
        Arc::new(Field::new_list_field(DataType::Float32, true)),
        OffsetBuffer::from_lengths(lengths),
        Arc::new(values),
        Some(NullBuffer::from(said)),
    );
    Ok(Arc::new(list.map_err(invalid)?))
}

/// The vectors of some texts, as many as there are texts.
async fn embed(embedder: &dyn Embedder, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    let vectors = embedder.embed(texts).await?;
    match vectors.len() == texts.len() {
        true => Ok(vectors),
        false => Err(
            Error::new(Kind::Unavailable, "embed", "text").because(format!(
                "{} texts were sent and {} vectors came back",
                texts.len(),
                vectors.len()
            )),
        ),
    }
}
