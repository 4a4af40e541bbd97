//! The engine: one statement after the other, each on its own plan.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::{
        array::RecordBatch,
        datatypes::{Schema, SchemaRef},
    },
    common::DataFusionError,
    execution::{SendableRecordBatchStream, SessionState},
    physical_plan::execute_stream,
};
use domain::Duration;
use futures::StreamExt;
use ports::{
    Error, Kind, Objects, Query, Result, Tables,
    query::{Catalog, FOREIGN, Statement, UNORDERED},
    tables::{Rows, Scan},
};

use crate::{
    affected,
    failure::{Doing, with_remedy},
    footers::Footers,
    inlined, literals,
    model::Lake,
    plan::{Last, Planned, Planner},
    running::{self, Endings, Ready, Sink, Threads},
    session::{self, Settings},
};

/// About the most bytes of rows that are handed to a reader at one time.
const PIECE_BYTES: usize = 4 << 20;
/// Fewest rows of such a piece, but for a rest: batches may share what they count as theirs.
const PIECE_ROWS_MIN: usize = 64;

/// DataFusion over pinned tables.
#[derive(Debug)]
pub struct DataFusionQuery {
    shared: Arc<Shared>,
    threads: Threads,
}

struct Shared {
    base: SessionState,
    lake: Arc<Lake>,
    memory: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Starts a query engine over the tables whose files are in `objects`.
///
/// # Errors
/// `Unavailable` when threads cannot be started or the spill folder cannot be used.
pub fn engine(
    tables: Arc<dyn Tables>,
    objects: Objects,
    settings: Settings,
) -> Result<Arc<dyn Query>> {
    let failed = |error: DataFusionError| {
        Error::new(Kind::Unavailable, "start", "query engine").because(error)
    };
    let base = session::base(&settings, Arc::clone(&objects)).map_err(failed)?;
    let threads = Threads::new(settings.threads).map_err(|error| failed(error.into()))?;
    let lake = Arc::new(Lake {
        tables,
        footers: Arc::new(Footers::new(objects)),
    });
    let shared = Arc::new(Shared {
        base,
        lake,
        memory: settings.memory,
    });
    Ok(Arc::new(DataFusionQuery { shared, threads }))
}

/// One statement on its way.
struct Job {
    shared: Arc<Shared>,
    statement: Statement,
    catalog: Catalog,
    entry: Option<Scan>,
}

impl Job {
    fn doing(&self, action: &'static str) -> Doing<'_> {
        Doing {
            action,
            sql: &self.statement.sql,
            memory: self.shared.memory,
        }
    }

    /// DataFusion's error as ours.
    fn failed(&self, action: &'static str, error: DataFusionError) -> Error {
        with_remedy(self.doing(action).failed(error), &self.catalog)
    }

    async fn plan(&self) -> Result<Planned> {
        let (base, lake) = (&self.shared.base, &self.shared.lake);
        let planner = Planner {
            base,
            lake,
            catalog: &self.catalog,
            entry: self.entry.as_ref(),
            doing: self.doing("plan statement"),
            affected: affected::function(&self.catalog.affected)
                .map_err(|error| self.doing("plan statement").failed(error))?,
        };
        let planned = planner.plan(&self.statement).await?;
        inlined::check(&planned.plan).map_err(|e| self.failed("plan statement", e))?;
        Ok(planned)
    }

    async fn describe(&self) -> Result<SchemaRef> {
        let Planned {
            state,
            plan,
            last,
            foreign,
        } = self.plan().await?;
        let plan = state
            .optimize(&plan)
            .map_err(|e| self.failed("plan statement", e))?;
        Ok(said(
            Arc::clone(plan.schema().inner()),
            last,
            foreign,
            false,
        ))
    }

    async fn run(&self, ready: Ready, sink: Sink) {
        let (mut batches, last, foreign) = match self.start().await {
            Ok(started) => started,
            // Nobody is there to be told when the caller has gone.
            Err(error) => return drop(ready.send(Err(error))),
        };
        if ready
            .send(Ok(said(batches.schema(), last, foreign, true)))
            .is_err()
        {
            return;
        }
        let mut left = self.statement.limits.rows;
        while let Some(batch) = batches.next().await {
            let batch = match batch {
                Ok(batch) if batch.num_rows() == 0 => continue,
                Ok(batch) => batch,
                Err(error) => {
                    let error = self.failed("run statement", error);
                    sink.send(Err(error)).await;
                    return;
                }
            };
            let rows = batch.num_rows() as u64;
            let fitting = left.map_or(rows, |left| left.min(rows));
            left = left.map(|left| left - fitting);
            for piece in pieces(&batch, usize::try_from(fitting).unwrap_or(usize::MAX)) {
                if !sink.send(Ok(piece)).await {
                    return;
                }
            }
            if fitting < rows {
                sink.send(Err(self.too_many_rows())).await;
                return;
            }
        }
    }

    async fn start(&self) -> Result<(SendableRecordBatchStream, Last, bool)> {
        let Planned {
            mut state,
            plan,
            last,
            foreign,
        } = self.plan().await?;
        let failed = |error| self.failed("plan statement", error);
        let plan = state.optimize(&plan).map_err(failed)?;
        let config = state.config().clone();
        let rows = literals::batch_rows(&plan, config.batch_size()).map_err(failed)?;
        *state.config_mut() = config.with_batch_size(rows);
        let planner = Arc::clone(state.query_planner());
        let physical = planner.create_physical_plan(&plan, &state).await;
        let physical = physical.map_err(failed)?;
        tracing::debug!(sql = %self.statement.sql, "planned");
        let stream = execute_stream(physical, state.task_ctx());
        let stream = stream.map_err(|error| self.failed("run statement", error))?;
        Ok((stream, last, foreign))
    }

    fn too_many_rows(&self) -> Error {
        let limit = self.statement.limits.rows.unwrap_or(u64::MAX);
        self.doing("run statement")
            .error(Kind::TooLarge)
            .because(format!(
                "it returns more than {limit} rows: write a LIMIT, or raise `query.rows_max`"
            ))
    }
}

/// A schema that says what tells which row is the last, and whether its sequences are others; `whole` with a column that
/// nobody asked for.
fn said(schema: SchemaRef, last: Last, foreign: bool, whole: bool) -> SchemaRef {
    let asked = match last {
        Last::Arrival if !whole => schema.fields().len() - 1,
        _ => schema.fields().len(),
    };
    let mut metadata = schema.metadata().clone();
    if let Last::Unknown(unique) = last {
        let names = serde_json::json!(unique).to_string();
        metadata.insert(UNORDERED.to_owned(), names);
    }
    if foreign {
        metadata.insert(FOREIGN.to_owned(), String::new());
    }
    let fields = schema.fields()[..asked].to_vec();
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// The first rows of a batch, in pieces that are small whatever one row holds: several are on their way to each reader.
fn pieces(batch: &RecordBatch, rows: usize) -> impl Iterator<Item = RecordBatch> + use<'_> {
    let bytes = batch.get_array_memory_size().max(1);
    let fair = batch.num_rows().saturating_mul(PIECE_BYTES) / bytes;
    let step = fair.clamp(PIECE_ROWS_MIN, batch.num_rows().max(PIECE_ROWS_MIN));
    (0..rows)
        .step_by(step)
        .map(move |from| batch.slice(from, step.min(rows - from)))
}

/// How a job ends when it cannot say so itself.
struct Ends(Arc<Job>);

impl Endings for Ends {
    fn late(&self) -> Error {
        let time = self.0.statement.limits.time;
        self.0
            .doing("run statement")
            .error(Kind::Unavailable)
            .because(format!("the time limit of {time:?} is over"))
    }

    fn broken(&self, why: &str) -> Error {
        self.0
            .doing("run statement")
            .error(Kind::Invalid)
            .because(why)
    }
}

impl DataFusionQuery {
    fn job(&self, statement: &Statement, catalog: &Catalog) -> (Arc<Job>, Arc<Ends>, Duration) {
        self.any(Job {
            shared: Arc::clone(&self.shared),
            statement: statement.clone(),
            catalog: catalog.clone(),
            entry: None,
        })
    }

    fn any(&self, job: Job) -> (Arc<Job>, Arc<Ends>, Duration) {
        let time = job.statement.limits.time;
        let job = Arc::new(job);
        let ends = Arc::new(Ends(Arc::clone(&job)));
        (job, ends, time)
    }
}

#[async_trait]
impl Query for DataFusionQuery {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> Result<Rows> {
        let (job, ends, time) = self.job(statement, catalog);
        running::rows(&self.threads, time, ends, move |ready, sink| async move {
            job.run(ready, sink).await;
        })
        .await
    }

    async fn over(&self, statement: &Statement, entry: &Scan) -> Result<Rows> {
        let (job, ends, time) = self.any(Job {
            shared: Arc::clone(&self.shared),
            statement: statement.clone(),
            catalog: Catalog::default(),
            entry: Some(entry.clone()),
        });
        running::rows(&self.threads, time, ends, move |ready, sink| async move {
            job.run(ready, sink).await;
        })
        .await
    }

    async fn describe(&self, statement: &Statement, catalog: &Catalog) -> Result<SchemaRef> {
        let (job, ends, time) = self.job(statement, catalog);
        running::once(
            &self.threads,
            time,
            ends,
            async move { job.describe().await },
        )
        .await
    }
}
