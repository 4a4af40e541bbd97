//! How far a table has come, and how far a reader has.

use serde::{Deserialize, Serialize};

/// A point in a table's history: the last sequence, and how many commits there have been.
///
/// As a *head* it says what the table holds; as a *watermark* it says what a model has consumed. A reader is behind
/// when either number of the head is past its own: a commit that only deletes moves `commits` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The highest sequence; 0 before the first row.
    pub sequence: u64,
    /// Commits so far; 0 for a table that never advanced.
    pub commits: u64,
}

impl Position {
    /// Whether a reader that consumed `self` has something to read in a table whose head is `head`.
    #[must_use]
    pub fn is_behind(self, head: Self) -> bool {
        head.sequence > self.sequence || head.commits > self.commits
    }

    /// Moves up to `seen`, each number on its own; never moves down (**W-1**).
    #[must_use]
    pub fn advance(self, seen: Self) -> Self {
        Self {
            sequence: self.sequence.max(seen.sequence),
            commits: self.commits.max(seen.commits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_only_deletes_leaves_readers_behind() {
        let consumed = Position {
            sequence: 5,
            commits: 2,
        };
        assert!(consumed.is_behind(Position {
            sequence: 5,
            commits: 3
        }));
        assert!(!consumed.is_behind(consumed));
        assert_eq!(
            consumed.advance(Position {
                sequence: 4,
                commits: 9
            }),
            Position {
                sequence: 5,
                commits: 9
            }
        );
    }
}
