//! What one event has no values for, what it took the place of, and what its table has of its key.

use super::{
    rank::Rank,
    winners::{Event, Reduced},
};

/// What one event has no values for.
#[derive(Debug, Default)]
pub(super) struct Gap {
    pub(super) columns: Vec<usize>,
    /// It keeps whatever there was, in all columns.
    pub(super) keeps: bool,
    /// The events of the change that it took the place of, and those that came late, as they came.
    pub(super) before: Vec<Before>,
    /// Sequence of the newest of these that is whole.
    whole: Option<Rank>,
    /// The same of the one before that.
    floor: Option<Rank>,
}

impl Gap {
    /// Whether the event has all values.
    pub(super) fn has_all(&self) -> bool {
        !self.keeps && self.columns.is_empty()
    }

    /// Puts what the event took the place of in order: the newest first, of equals a delete, then the first that came.
    pub(super) fn order(&mut self, event: &Event) {
        let place = |event: &Event| (event.rank.clone(), event.place());
        self.before
            .sort_by_cached_key(|before| std::cmp::Reverse(place(&before.event)));
        // An equal one that is no delete's changed nothing when it came.
        let mut last = (event.rank.clone(), event.delete);
        self.before.retain(|Before { event, .. }| {
            let one = (event.rank.clone(), event.delete);
            let stays = one != last;
            last = one;
            stays
        });
    }

    /// Whether an event with this gap has nothing of what the other one lacks, nor a say in it.
    pub(super) fn gives_nothing(&self, to: &Self) -> bool {
        let lacks = |at: &usize| self.columns.contains(at);
        !self.keeps && !to.keeps && !to.columns.is_empty() && to.columns.iter().all(lacks)
    }

    /// Takes over what another event took the place of.
    pub(super) fn inherit(&mut self, other: &mut Self) {
        self.before = std::mem::take(&mut other.before);
        (self.whole, self.floor) = (other.whole.take(), other.floor.take());
    }

    /// Takes note of an event that it took the place of, or that came late. Nobody looks past one that is `whole`, unless the
    /// table has its sequence already or a soft delete lies between: behind the second of these all is left out.
    pub(super) fn add(&mut self, one: Before, whole: bool, keeps: impl Fn(u64) -> bool) {
        let rank = &one.event.rank;
        if self.floor.as_ref().is_some_and(|floor| rank < floor) {
            return;
        }
        let kept = |before: &Before| before.event.rank > *rank && keeps(before.row);
        if whole && !self.keeps && !self.before.iter().any(kept) {
            let first = self.whole.as_ref();
            if first.is_none_or(|first| rank > first) {
                self.floor = self.whole.replace(rank.clone());
            } else if first.is_some_and(|first| rank < first) {
                self.floor = Some(rank.clone());
            }
            if let Some(floor) = &self.floor {
                self.before.retain(|before| before.event.rank >= *floor);
            }
        }
        self.before.push(one);
    }
}

/// An event that another one took the place of.
#[derive(Debug)]
pub(super) struct Before {
    /// Its row of the change.
    pub(super) row: u64,
    pub(super) event: Event,
}

impl Before {
    /// Whether it was applied to what the table had.
    pub(super) fn is_newer(&self, known: Option<&Rank>) -> bool {
        known.is_none_or(|known| self.event.rank > *known)
    }

    /// Whether it is as old as tombstones that are gone, and came when its key was unknown, in a table that had `base` of it.
    pub(super) fn is_lost(
        &self,
        base: Option<&Base<'_>>,
        (events, collected): (&Reduced, Option<&Rank>),
    ) -> bool {
        collected.is_some_and(|collected| {
            self.event.rank <= *collected && Base::is_gone(base, &self.event, events)
        })
    }
}

/// What a table has of an event's key.
#[derive(Default)]
pub(super) struct Base<'a> {
    /// The newest sequence, a tombstone's included.
    pub(super) rank: Option<&'a Rank>,
    /// Its row, by file and number, with its sequence.
    pub(super) row: Option<(usize, u64, Option<&'a Rank>)>,
}

impl Base<'_> {
    /// Whether nothing of before was known of an event's key, or no longer, when the first event came that has had its place
    /// since.
    pub(super) fn is_gone(base: Option<&Self>, event: &Event, events: &Reduced) -> bool {
        base.is_none_or(|base| {
            let has_none = base.rank.is_none() && base.row.is_none();
            has_none || events.truncated_by(Some(event.since), base.rank).is_some()
        })
    }
}
