//! Work that lasts as long as the process: what panics in it is told and starts again, never at once.

use std::{any::Any, panic::AssertUnwindSafe};

use domain::Duration;
use futures::FutureExt;
use ports::Clock;

/// Before work that panicked starts again.
const PAUSE: Duration = Duration::from_secs(5);

/// Runs work to its end, and again after a pause each time it panics.
pub(crate) async fn lasting<F>(clock: &dyn Clock, what: &'static str, mut work: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    while let Err(why) = caught(work()).await {
        tracing::error!(what, panic = why, "it is started again soon");
        clock.sleep_until(clock.now() + PAUSE).await;
    }
}

/// The outcome of work, or what its panic said. What the work shares with others is whole whatever happens to it: stores
/// commit or do not, and locks are held for one assignment.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.map_err(|panic| said(&*panic).to_owned())
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it did not say why")
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedClock;

    use super::*;

    #[tokio::test]
    async fn what_panics_starts_again_after_a_pause() {
        let (clock, mut runs) = (SimulatedClock::default(), 0);
        let began = clock.now();
        let mut work = Box::pin(lasting(&clock, "a test", || {
            runs += 1;
            let fails = runs < 3;
            async move { assert!(!fails, "no {fails}") }
        }));
        for _ in 0..2 {
            assert!((&mut work).now_or_never().is_none(), "it pauses");
            assert!((&mut work).now_or_never().is_none(), "it goes on pausing");
            clock.advance(PAUSE);
        }
        assert!((&mut work).now_or_never().is_some(), "it ended");
        drop(work);
        assert_eq!((runs, clock.now().since(began)), (3, PAUSE * 2));
    }
}
