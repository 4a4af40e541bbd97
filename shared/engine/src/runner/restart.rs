//! A loop that goes down: why is kept where people look, and it starts again, never at once.

use domain::{Duration, plan};
use tokio::sync::Notify;

use super::{Inner, lock, turn, turn::REST_MAX};
use crate::lasting::caught;

/// Shortest pause, whatever the settings say.
const REST_MIN: Duration = Duration::from_secs(1);

/// Runs the loop until it is stopped. A panic or a closed queue ends it; after a pause it starts again and picks up
/// whatever happened meanwhile.
pub(super) async fn keep_running(inner: &Inner, stop: &Notify) {
    let mut failures = 0_u32;
    loop {
        let ended = caught(turn::run(inner, stop.notified())).await;
        let why = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.chain(),
            Err(panic) => format!("the runner panicked: {panic}"),
        };
        let again = lock(&inner.down).replace(why.clone()).is_some();
        lock(&inner.status).last_error = Some(why.clone());
        failures = if again { failures.saturating_add(1) } else { 1 };
        tracing::error!(error = why, "the runner went down and is started again");
        let clock = &inner.world.clock;
        let pause = plan::backoff(failures, &inner.world.live).clamp(REST_MIN, REST_MAX);
        tokio::select! {
            biased;
            () = stop.notified() => return,
            () = clock.sleep_until(clock.now() + pause) => {}
        }
    }
}
