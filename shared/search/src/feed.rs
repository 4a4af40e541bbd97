//! Rows on their way to a thread that builds.

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use ports::{Error, Kind, Result, tables::Rows};
use tokio::sync::mpsc;

/// Batches that wait for the builder.
const WAITING: usize = 4;

/// Batches, as the builder's thread takes them. When the feed was cut short it ends as if the rows had, so a builder asks.
#[derive(Debug)]
pub(crate) struct Feed {
    batches: mpsc::Receiver<Option<RecordBatch>>,
    complete: bool,
}

impl Feed {
    /// The next batch; none after the last.
    pub(crate) fn next(&mut self) -> Option<RecordBatch> {
        match self.batches.blocking_recv() {
            Some(Some(batch)) => Some(batch),
            Some(None) => {
                self.complete = true;
                None
            }
            None => None,
        }
    }

    /// Whether the last batch was the last of the rows.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }
}

/// Runs a builder on a thread of its own and feeds it. When this is dropped the builder sees its feed end, and stops.
pub(crate) async fn through<T: Send + 'static>(
    name: &str,
    rows: Rows,
    build: impl FnOnce(&mut Feed) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, batches) = mpsc::channel(WAITING);
    let mut feed = Feed {
        batches,
        complete: false,
    };
    let building = tokio::task::spawn_blocking(move || build(&mut feed));
    let mut stream = rows.stream;
    let fed = async {
        while let Some(batch) = stream.try_next().await? {
            // A builder that takes no more has ended, and says why.
            if sender.send(Some(batch)).await.is_err() {
                return Ok(());
            }
        }
        let _ = sender.send(None).await;
        Ok::<(), Error>(())
    };
    let fed = fed.await;
    drop(sender);
    let built = building
        .await
        .map_err(|error| Error::new(Kind::Corrupt, "build index", name).because(error))?;
    fed?;
    built
}

/// A feed that was cut short.
pub(crate) fn cut(name: &str) -> Error {
    Error::new(Kind::Unavailable, "build index", name).because("its rows were cut short")
}
