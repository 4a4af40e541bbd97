//! Running work apart from the caller: on threads of our own with deep stacks, under a deadline, so that neither a
//! panic nor a deep expression nor an endless one reaches the caller as anything but an error.

use std::{future::Future, io, sync::Arc};

use datafusion::arrow::{array::RecordBatch, datatypes::SchemaRef};
use domain::Duration;
use futures::{StreamExt, stream};
use ports::{Error, Result, tables::Rows};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
    task::{JoinError, JoinHandle},
};

/// Stack of a thread; reserved, not used: a chain of a thousand operators is evaluated by recursion.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Fewest threads: work that never yields keeps one to itself until it ends, and others must go on.
const THREADS_MIN: usize = 8;
/// How much later than the work's own deadline the caller stops waiting, for work that never yields.
const LATE: Duration = Duration::from_secs(1);
/// Batches computed ahead of the reader.
const AHEAD: usize = 2;

/// Threads of our own.
#[derive(Debug)]
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    /// `count` threads that compute, and one more so that deadlines are kept while those are busy.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads((count + 1).max(THREADS_MIN))
            .thread_stack_size(STACK_BYTES)
            .thread_name("query")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<Task<T>> {
        self.0.as_ref().map(|runtime| Task(runtime.spawn(work)))
    }
}

impl Drop for Threads {
    /// The last owner may be a task of another runtime, where waiting is not allowed.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Work that ends when nobody waits for it any more.
#[derive(Debug)]
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends batches to the reader.
pub(crate) type Sink = mpsc::Sender<Result<RecordBatch>>;
/// Tells the reader the columns, once.
pub(crate) type Ready = oneshot::Sender<Result<SchemaRef>>;

/// What to answer when work ends badly.
pub(crate) trait Endings: Send + Sync + 'static {
    /// The time is over.
    fn late(&self) -> Error;
    /// The work panicked, or the process is going down.
    fn broken(&self, why: &str) -> Error;
}

/// Runs work that answers once.
pub(crate) async fn once<T: Send + 'static>(
    threads: &Threads,
    time: Duration,
    endings: Arc<impl Endings>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let late = Arc::clone(&endings);
    let timed = async move {
        tokio::time::timeout(time, work)
            .await
            .unwrap_or_else(|_| Err(late.late()))
    };
    let Some(mut task) = threads.spawn(timed) else {
        return Err(endings.broken("the engine is shut down"));
    };
    match tokio::time::timeout(time + LATE, &mut task.0).await {
        Ok(ended) => ended.unwrap_or_else(|error| Err(endings.broken(&reason(error)))),
        Err(_) => Err(endings.late()),
    }
}

/// Runs work that answers with columns first and then with rows.
pub(crate) async fn rows<W, F>(
    threads: &Threads,
    time: Duration,
    endings: Arc<impl Endings>,
    work: W,
) -> Result<Rows>
where
    W: FnOnce(Ready, Sink) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (ready, schema) = oneshot::channel();
    let (sink, batches) = mpsc::channel(AHEAD);
    let late = Arc::clone(&endings);
    let timed = async move {
        let last = sink.clone();
        match tokio::time::timeout(time, work(ready, sink)).await {
            Ok(()) => {}
            // Not within the deadline: the reader may have stopped reading.
            Err(_) => drop(last.send(Err(late.late())).await),
        }
    };
    let Some(mut task) = threads.spawn(timed) else {
        return Err(endings.broken("the engine is shut down"));
    };
    let mut batches = batches;
    let until = tokio::time::Instant::now() + time + LATE;
    let Ok(schema) = tokio::time::timeout_at(until, schema).await else {
        return Err(endings.late());
    };
    let schema = match schema {
        Ok(schema) => schema?,
        // Over before there were columns: late, or broken.
        Err(_) => {
            return Err(match batches.recv().await {
                Some(Err(error)) => error,
                _ => endings.broken(&ended(&mut task).await),
            });
        }
    };
    let state = Some((batches, task, endings));
    let stream = stream::unfold(state, move |state| async move {
        let (mut batches, mut task, endings) = state?;
        let Ok(received) = tokio::time::timeout_at(until, batches.recv()).await else {
            return Some((Err(endings.late()), None));
        };
        match received {
            Some(Ok(batch)) => Some((Ok(batch), Some((batches, task, endings)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => match (&mut task.0).await {
                Ok(()) => None,
                Err(error) => Some((Err(endings.broken(&reason(error))), None)),
            },
        }
    });
    Ok(Rows {
        schema,
        stream: stream.boxed(),
    })
}

async fn ended(task: &mut Task<()>) -> String {
    match (&mut task.0).await {
        Ok(()) => String::from("it ended without an answer"),
        Err(error) => reason(error),
    }
}

fn reason(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!(
                "the query engine failed on it: {}",
                text.unwrap_or("no message")
            )
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ports::Kind;

    use super::*;

    struct Told;

    impl Endings for Told {
        fn late(&self) -> Error {
            Error::new(Kind::Unavailable, "run", "it")
        }

        fn broken(&self, why: &str) -> Error {
            Error::new(Kind::Invalid, "run", "it").because(why)
        }
    }

    const TIME: Duration = Duration::from_secs(60);

    async fn breaks() -> Result<()> {
        panic!("no answer")
    }

    /// Before there are columns, behind the first rows, and where nothing but an answer is asked for.
    #[tokio::test]
    async fn a_panic_is_an_error() {
        let threads = Threads::new(1).expect("threads");
        let schema = || SchemaRef::new(datafusion::arrow::datatypes::Schema::empty());
        let told = once(&threads, TIME, Arc::new(Told), breaks()).await;
        let told = told.expect_err("broken").chain();
        assert!(told.contains("no answer"), "{told}");
        let early = rows(&threads, TIME, Arc::new(Told), |_, _| async {
            panic!("no columns");
        });
        let told = early.await.err().expect("broken").chain();
        assert!(told.contains("no columns"), "{told}");
        let late = rows(&threads, TIME, Arc::new(Told), move |ready, _| async move {
            drop(ready.send(Ok(schema())));
            panic!("no rows");
        });
        let mut late = late.await.expect("columns");
        let told = late.stream.next().await.expect("an answer");
        let told = told.expect_err("broken").chain();
        assert!(told.contains("no rows"), "{told}");
    }
}
