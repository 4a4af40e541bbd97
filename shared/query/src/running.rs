//! Running work apart from the caller: on threads of our own with deep stacks, under a deadline, so that neither a
//! panic nor a deep expression nor an endless one reaches the caller as anything but an error.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use datafusion::arrow::{array::RecordBatch, datatypes::SchemaRef};
use domain::Duration;
use futures::{StreamExt, stream};
use ports::{Error, Result, tables::Rows};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{mpsc, oneshot},
    task::{JoinError, JoinHandle},
    time::Instant,
};

/// Stack of a thread; reserved, not used: a chain of a thousand operators is evaluated by recursion.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Fewest threads: work that never yields keeps one to itself until it ends, and others must go on.
const THREADS_MIN: usize = 8;
/// How much later than the work's own deadline the caller stops waiting, for work that never yields.
const LATE: Duration = Duration::from_secs(1);
/// Longest the threads may take to end.
const ENDING: Duration = Duration::from_secs(60);
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
    /// The last owner may be a task of another runtime, where waiting is not allowed: a thread of its own waits until they have
    /// ended. They are not let go of while they end, which ends the process in C libraries whose `pthread_detach` still
    /// looks at a thread that is gone (glibc up to 2.36 at least).
    fn drop(&mut self) {
        let Some(runtime) = self.0.take() else {
            return;
        };
        let kept = Arc::new(Mutex::new(Some(runtime)));
        let held = kept.clone();
        let take = |held: &Mutex<Option<Runtime>>| {
            held.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let wait = move || {
            if let Some(runtime) = take(&held) {
                runtime.shutdown_timeout(ENDING);
            }
        };
        let waiting = std::thread::Builder::new().name(String::from("query-end"));
        if waiting.spawn(wait).is_err()
            && let Some(runtime) = take(&kept)
        {
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
pub(crate) struct Sink {
    batches: mpsc::Sender<Result<RecordBatch>>,
    watch: Arc<Watch>,
}

impl Sink {
    /// Waits until the reader has room; the wait is the reader's time. False when there is none any more.
    pub(crate) async fn send(&self, batch: Result<RecordBatch>) -> bool {
        self.watch.pause(Instant::now(), true);
        let sent = self.batches.send(batch).await;
        self.watch.pause(Instant::now(), false);
        sent.is_ok()
    }
}

/// Time that work has taken, without what it waited for its reader.
struct Watch {
    began: Instant,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    over: Duration,
    since: Option<Instant>,
}

impl Watch {
    fn start(began: Instant) -> Self {
        Self {
            began,
            waits: Mutex::default(),
        }
    }

    fn pause(&self, now: Instant, on: bool) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = waits.since.take() {
            waits.over += now - since;
        }
        waits.since = on.then_some(now);
    }

    /// What is left of `time` at least, which is nothing when it is over.
    fn left(&self, now: Instant, time: Duration) -> Duration {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let ongoing = waits.since.map_or(Duration::ZERO, |since| now - since);
        let lasted = now - self.began;
        let worked = lasted.saturating_sub(waits.over + ongoing);
        let slow = time
            .saturating_mul(domain::SLOW_READS)
            .saturating_sub(lasted);
        time.saturating_sub(worked).min(slow)
    }

    /// Ends when `time` is over.
    async fn run_out(&self, time: Duration) {
        loop {
            let left = self.left(Instant::now(), time);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}
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
    let (sender, batches) = mpsc::channel(AHEAD);
    let watch = Arc::new(Watch::start(Instant::now()));
    let late = Arc::clone(&endings);
    let sink = Sink {
        batches: sender.clone(),
        watch: Arc::clone(&watch),
    };
    let clock = Arc::clone(&watch);
    let timed = async move {
        let in_time = tokio::select! {
            biased;
            () = work(ready, sink) => true,
            () = clock.run_out(time) => false,
        };
        if !in_time {
            // Not within the deadline: the reader may have stopped reading.
            drop(sender.send(Err(late.late())).await);
        }
    };
    let Some(mut task) = threads.spawn(timed) else {
        return Err(endings.broken("the engine is shut down"));
    };
    let mut batches = batches;
    let Ok(schema) = tokio::time::timeout(time + LATE, schema).await else {
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
    let state = Some((batches, task, endings, watch));
    let stream = stream::unfold(state, move |state| async move {
        let (mut batches, mut task, endings, watch) = state?;
        // Work that never yields does not see that its time is over. What it has sent is read however late.
        let left = watch.left(Instant::now(), time) + LATE;
        let Ok(received) = tokio::time::timeout(left, batches.recv()).await else {
            return Some((Err(endings.late()), None));
        };
        match received {
            Some(Ok(batch)) => Some((Ok(batch), Some((batches, task, endings, watch)))),
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
        let Err(told) = early.await else {
            panic!("there are no columns");
        };
        let told = told.chain();
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

    #[test]
    fn a_slow_reader_takes_no_time_of_the_work() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let (watch, ten) = (Watch::start(began), Duration::from_secs(10));
        let left = |seconds| watch.left(at(seconds), ten).as_secs();
        assert_eq!(left(1), 9);
        watch.pause(at(1), true);
        assert_eq!(left(21), 9);
        watch.pause(at(21), false);
        assert_eq!((left(21), left(22)), (9, 8));
        // Nobody waits for ever.
        watch.pause(at(22), true);
        assert_eq!((left(40), left(49), left(51)), (8, 1, 0));
        watch.pause(at(40), false);
        assert_eq!((left(47), left(48), left(60)), (1, 0, 0));
    }
}
