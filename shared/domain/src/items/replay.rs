//! A replay of rows in quarantine that another process carries out.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// `model#<m>` / `replay`: the replay of rows in quarantine that was asked for last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// The job that carries it out: whoever asks again before it has ended puts another in its place.
    pub job: String,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// The rows; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<u64>>,
    /// How it ended; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ReplayEnd>,
}

/// How a [`Replay`] ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayEnd {
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: ReplayOutcome,
}

/// What came of a [`Replay`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayOutcome {
    /// It was carried out.
    Done(ReplayCounts),
    /// It was not, and nothing went in.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What a [`Replay`] did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayCounts {
    /// Rows that are in quarantine no more.
    pub replayed: u64,
    /// Rows of the model that were added.
    pub added: u64,
    /// Whether all of the model was built anew.
    pub rebuilt: bool,
    /// Rows that stayed in quarantine.
    pub left: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_read_and_written_as_ever() {
        let check = |stored: &str| {
            let read: Replay = serde_json::from_str(stored).expect("a replay");
            assert_eq!(serde_json::to_string(&read).expect("JSON"), stored);
            read
        };
        let all = check(r#"{"job":"j","asked_at":1}"#);
        assert!(all.rows.is_none() && all.ended.is_none());
        let none = check(r#"{"job":"j","asked_at":1,"rows":[]}"#);
        assert_eq!(none.rows, Some(Vec::new()), "no rows are not all rows");
        check(
            r#"{"job":"j","asked_at":1,"rows":[5],"ended":{"at":2,"outcome":{"done":{"replayed":1,"added":1,"rebuilt":false,"left":0}}}}"#,
        );
        check(
            r#"{"job":"j","asked_at":1,"ended":{"at":2,"outcome":{"failed":{"reason":"it breaks"}}}}"#,
        );
    }
}
