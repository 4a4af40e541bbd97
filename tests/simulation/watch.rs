//! The store under every process, and the eye that is kept on it: after each transaction the book is written and, at
//! random, the tables it touched are compared with the oracle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::{TableName, entry::SUPERSEDED, items::Snapshot};
use object_store::ObjectStoreExt;
use ports::{
    Objects, Result, State, Tables,
    state::{Item, Key, Outcome, Span, Write, query_all},
    tables::Pin,
};
use testkit::MemoryState;

use crate::{
    book::Book,
    frame::{self, Rows},
    models::Shape,
    oracle,
    scheduler::Scheduler,
};

/// What is below all processes.
#[derive(Debug)]
pub(crate) struct Bottom {
    pub(crate) state: Arc<MemoryState>,
    pub(crate) objects: Objects,
    /// Reads past every gate.
    pub(crate) lake: Arc<dyn Tables>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) book: Mutex<Book>,
    /// How often tables are compared after a commit.
    pub(crate) compare: f64,
}

impl Bottom {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn committed(&self, writes: &[Write], by: &str) {
        let noted = self.book().note(writes, by);
        let due = match noted {
            Ok(due) => due,
            Err(why) => return self.scheduler.fail(format!("{why} (by {by})")),
        };
        let about = self.book().shelf.note(writes);
        let named = match about {
            Ok(true) => self.book().shelf.named(),
            Ok(false) => Vec::new(),
            Err(why) => return self.scheduler.fail(format!("{why} (by {by})")),
        };
        for path in named {
            if self.objects.head(&path.as_str().into()).await.is_err() {
                let why = format!("E-2: {path} is named, and not there");
                return self.scheduler.fail(format!("{why} (by {by})"));
            }
        }
        if due.is_empty() || !self.scheduler.chance(self.compare) {
            return;
        }
        for model in due {
            if let Err(why) = self.compare(&model).await {
                return self
                    .scheduler
                    .fail(format!("{why} (after a commit by {by})"));
            }
        }
    }

    /// Generations of entries that were superseded and not swept yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) async fn superseded(&self) -> Result<Vec<String>, String> {
        let span = Span::prefix(SUPERSEDED, "", 1_000);
        let items = query_all(&*self.state, span).await;
        let items = items.map_err(|error| error.chain())?;
        let generation = |item: &Item| {
            let value: serde_json::Value = item.decode().map_err(|error| error.chain())?;
            Ok(value["generation"].as_str().unwrap_or_default().to_owned())
        };
        items.iter().map(generation).collect()
    }

    /// Compares a model's table with what it has to hold, given what it has consumed.
    ///
    /// # Errors
    /// What is different.
    pub(crate) async fn compare(&self, model: &TableName) -> Result<(), String> {
        let Some(shape) = Shape::of(model) else {
            return Ok(());
        };
        let Some(head) = self.book().heads.get(model).cloned() else {
            return Ok(());
        };
        let Some(snapshot) = head.snapshot else {
            return Err(format!("{model} has no snapshot"));
        };
        let mut read = Vec::new();
        for input in oracle::inputs(shape) {
            let name: TableName = input.name().parse().map_err(|e| format!("{e}"))?;
            let consumed = self.book().consumed(model, &name);
            read.push(match consumed.snapshot {
                Some(snapshot) => self.rows(&name, *input, snapshot).await?,
                None => Vec::new(),
            });
        }
        let found = self.rows(model, shape, snapshot).await?;
        if found.len() as u64 != head.rows {
            return Err(format!(
                "{model} has {} rows, its head says {}",
                found.len(),
                head.rows
            ));
        }
        unique(model, shape, &found)?;
        let found = oracle::comparable(shape, found);
        let wanted = oracle::expected(&self.book(), shape, model, &read);
        if found != wanted {
            return Err(format!(
                "S-2: {model} is not what it consumed says\n  holds {found:?}\n  not   {wanted:?}"
            ));
        }
        Ok(())
    }

    async fn rows(
        &self,
        table: &TableName,
        shape: Shape,
        snapshot: Snapshot,
    ) -> Result<Rows, String> {
        let pin = Pin::Model {
            table: table.clone(),
            snapshot,
        };
        frame::table(&*self.lake, &self.objects, &pin, 0, shape.columns())
            .await
            .map_err(|error| format!("C-2: {table} cannot be read: {}", error.chain()))
    }
}

/// **M-1**: one row per key.
fn unique(model: &TableName, shape: Shape, rows: &Rows) -> Result<(), String> {
    let at: Vec<usize> = (0..shape.columns().len())
        .filter(|at| shape.key().contains(&shape.columns()[*at]))
        .collect();
    let mut keys: Vec<Vec<_>> = rows
        .iter()
        .map(|row| at.iter().map(|at| &row[*at]).collect())
        .collect();
    keys.sort();
    match keys.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(format!(
            "M-1: {model} has two rows of {:?}: {rows:?}",
            two[0]
        )),
        None => Ok(()),
    }
}

/// The store as one process sees it, before the gate.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) bottom: Arc<Bottom>,
    pub(crate) by: String,
}

#[async_trait]
impl State for Watched {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.bottom.state.get_many(keys).await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.bottom.state.query(span).await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        let _hold = self.bottom.scheduler.hold();
        let outcome = self.bottom.state.transact(writes.clone()).await?;
        if outcome.is_committed() {
            self.bottom.committed(&writes, &self.by).await;
        }
        Ok(outcome)
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.bottom.state.change_counter().await
    }
}
