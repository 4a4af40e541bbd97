//! SQL over rows of this process: the server's own query engine, so that a frame answers alike wherever its rows are.

use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use ports::{
    Query,
    query::{Parameter, Statement},
    tables::{FilePart, Part, Scan},
};

use crate::{
    batches::Batches,
    error::{Error, Result},
    held::Held,
};

/// Bytes that all statements of a process may use together; the rest is sorted and joined on disk.
const MEMORY: usize = 512 << 20;
const THREADS_MAX: usize = 4;

static ENGINE: Mutex<Option<Arc<dyn Query>>> = Mutex::new(None);

/// The engine of this process, started by the first statement; one that did not start is tried again by the next.
fn engine() -> Result<Arc<dyn Query>> {
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = &*engine {
        return Ok(engine.clone());
    }
    let settings = query::Settings {
        memory: MEMORY,
        spill: Some(std::env::temp_dir()),
        threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX)),
    };
    let files = Arc::new(object_store::local::LocalFileSystem::new());
    let made = query::reader(files, settings);
    let made = made.map_err(|error| Error::Statement(error.chain()))?;
    Ok(engine.insert(made).clone())
}

fn scan(held: &Held) -> Result<Scan> {
    let parts = match held {
        Held::Memory(batches) => batches.batches.iter().cloned().map(Part::Memory).collect(),
        Held::File(spool) => {
            let path = object_store::path::Path::from_absolute_path(&spool.path);
            let file = FilePart {
                path: path.map_err(Error::unreadable)?.to_string(),
                size: spool.bytes,
                rows: spool.rows,
                first_sequence: None,
                deleted: None,
                bounds: std::collections::BTreeMap::new(),
            };
            vec![Part::File(Arc::new(file))]
        }
    };
    Ok(Scan {
        schema: held.schema(),
        parts,
    })
}

/// Runs a statement over rows, which go by the name `this`.
pub(super) async fn run(held: &Held, sql: &str, parameters: &[Parameter]) -> Result<Batches> {
    let failed = |error: ports::Error| Error::Statement(error.chain());
    let mut statement = Statement::new(sql);
    statement.parameters = parameters.to_vec();
    let rows = engine()?
        .over(&statement, &scan(held)?)
        .await
        .map_err(failed)?;
    let batches = rows.stream.try_collect().await.map_err(failed)?;
    Ok(Batches::new(rows.schema, batches))
}
