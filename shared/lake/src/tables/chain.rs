//! The way from an event without a value to what it took the place of, past soft deletes, which keep what was there when they
//! came.

use super::{gaps::Source, origins::Origin, rank::Rank};

/// What was met so far on the way from an event to what it took the place of.
#[derive(Default)]
pub(super) struct Chain {
    /// The row that a truncate has to come before, to leave nothing to be kept; none when its own place tells.
    pub holder: Option<u64>,
    /// The last soft delete: what came after it changed nothing of what it keeps.
    last: Option<u64>,
    /// Sequence of the first soft delete: the values are its own.
    keeper: Option<Rank>,
    /// The oldest soft delete with a value of its own, in case there is no other.
    pub own: Option<u64>,
}

impl Chain {
    /// Passes a soft delete.
    pub(super) fn keep(&mut self, (row, rank): (u64, &Rank), own: Option<u64>) {
        (self.holder, self.last) = (Some(row), Some(row));
        self.keeper.get_or_insert_with(|| rank.clone());
        self.own = own.or(self.own);
    }

    /// Whether an event came after the last soft delete.
    pub(super) fn came_after(&self, row: u64) -> bool {
        self.last.is_some_and(|last| row > last)
    }

    /// The origin of a value, which is the first soft delete's if there was one.
    pub(super) fn frozen(self, origin: Origin) -> Origin {
        Origin {
            since: self.keeper.or(origin.since),
            ..origin
        }
    }

    /// The value of an event of the change.
    pub(super) fn found(self, row: u64, rank: &Rank) -> (Source, Origin) {
        (Source::Change(row), self.frozen(Origin::of(rank.clone())))
    }

    /// There is no value, but perhaps that of a soft delete.
    pub(super) fn nothing(self, since: Option<&Rank>) -> (Source, Origin) {
        let (source, known) = match self.own {
            Some(row) => (Source::Change(row), true),
            None => (Source::Nothing, false),
        };
        (
            source,
            self.frozen(Origin {
                known,
                since: since.cloned(),
            }),
        )
    }
}
