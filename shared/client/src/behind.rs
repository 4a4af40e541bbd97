//! What is written behind a call: waited for by `flush`, counted whatever becomes of it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// What became of everything written behind since the last flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Entries that were stored.
    pub stored: usize,
    /// Entries that were not: each was logged with its reason, and left nothing behind.
    pub failed: usize,
}

/// Work that nobody waits for.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    pending: usize,
    done: Flushed,
}

impl Behind {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more is under way.
    pub(crate) fn begin(self: &Arc<Self>) -> Pending {
        self.with(|state| state.pending += 1);
        Pending {
            behind: self.clone(),
            stored: false,
        }
    }

    /// Waits until nothing is under way, and says what became of it.
    pub(crate) async fn flush(&self) -> Flushed {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Registered before the look, so that no end is missed.
            idle.as_mut().enable();
            let done =
                self.with(|state| (state.pending == 0).then(|| std::mem::take(&mut state.done)));
            match done {
                Some(done) => return done,
                None => idle.await,
            }
        }
    }
}

/// One write under way. Dropped, whatever ended it, it has failed.
#[derive(Debug)]
pub(crate) struct Pending {
    behind: Arc<Behind>,
    stored: bool,
}

impl Pending {
    /// It was stored.
    pub(crate) fn stored(mut self) {
        self.stored = true;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let stored = self.stored;
        self.behind.with(|state| {
            state.pending -= 1;
            match stored {
                true => state.done.stored += 1,
                false => state.done.failed += 1,
            }
        });
        self.behind.idle.notify_waiters();
    }
}
