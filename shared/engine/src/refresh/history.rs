//! The lag that a commit removed, on its way into the model's history.

use domain::{
    Timestamp, items,
    lag::{Grain, Interval, Recent},
};
use ports::state::{Expect, Key, Write};

use super::job::{Job, Loaded, is_live};

/// What rides in the state after a commit at `now` that applied data of `origin`, and the writes of intervals that are
/// over: none but once a minute. A build that applied nothing new says nothing about lag.
pub(super) fn note(
    job: &Job<'_>,
    loaded: &Loaded,
    now: Timestamp,
    origin: Option<Timestamp>,
) -> (Option<Recent>, Vec<Write>) {
    let before = loaded.state.lag.as_ref();
    let Some(origin) = origin.filter(|_| is_live(job.model)) else {
        return (before.cloned(), Vec::new());
    };
    let (recent, over) = Recent::after(before, now, now.since(origin));
    let write = |(grain, interval): (Grain, Interval)| {
        let sort = items::lag(grain, grain.slot(interval.start));
        // Whatever round the slot is of: the condition on the state is that of the whole transaction.
        let key = Key::new(items::model(&job.model.name), sort);
        Write::put(key, &interval, Expect::Any)
    };
    (Some(recent), over.into_iter().map(write).collect())
}
