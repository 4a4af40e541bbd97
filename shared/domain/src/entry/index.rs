//! Indexes of entries: what they are over, and who builds them.
//!
//! What an entry is to be searched by stands in its spec and so outlives its generations. Of each index there is one item
//! beside the row; it names the generation it was built from, so that it never answers for another. Who builds it holds the
//! item until a deadline that is moved while the build goes on, and may be taken over after it.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, fingerprint::digest};

/// Most indexes of an entry.
pub const INDEXES_MAX: usize = 8;
/// Most columns of one index.
pub const INDEX_COLUMNS_MAX: usize = 16;
/// What sort keys of index items begin with, in an entry's partition.
pub const INDEX: &str = "index#";

/// How near two vectors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The cosine of their angle.
    #[default]
    Cosine,
    /// Their inner product.
    Dot,
    /// Minus their Euclidean distance.
    L2,
}

/// What an entry is searched by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum IndexSpec {
    /// Words of text columns, ranked by BM25.
    Text {
        /// The columns.
        columns: Vec<String>,
    },
    /// A column of vectors, or of text that an embedder makes vectors of.
    Vector {
        /// The column.
        column: String,
        /// How near two are.
        #[serde(default)]
        metric: Metric,
    },
}

impl IndexSpec {
    /// Its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Text { columns } => columns,
            Self::Vector { column, .. } => std::slice::from_ref(column),
        }
    }

    /// `text` or `vector`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Vector { .. } => "vector",
        }
    }

    /// Its name: of its kind and columns, so that another metric takes the place of the one before.
    #[must_use]
    pub fn name(&self) -> String {
        let mut named = Vec::new();
        for column in self.columns() {
            named.extend_from_slice(&(column.len() as u64).to_le_bytes());
            named.extend_from_slice(column.as_bytes());
        }
        let print = digest(&named);
        format!("{}-{}", self.kind(), print.get(..16).unwrap_or(&print))
    }

    /// What is wrong with it by itself, if anything.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        let columns = self.columns();
        if columns.is_empty() || columns.iter().any(String::is_empty) {
            return Err(String::from("an index names its columns"));
        }
        if columns.len() > INDEX_COLUMNS_MAX {
            return Err(format!("an index has at most {INDEX_COLUMNS_MAX} columns"));
        }
        let twice = columns
            .iter()
            .enumerate()
            .find(|(at, column)| columns[..*at].contains(column));
        match twice {
            Some((_, column)) => Err(format!("an index names column `{column}` twice")),
            None => Ok(()),
        }
    }
}

/// The indexes of two specs, each once; of two with one name the second stays.
#[must_use]
pub fn together(first: &[IndexSpec], second: &[IndexSpec]) -> Vec<IndexSpec> {
    let replaced = |one: &&IndexSpec| second.iter().all(|other| other.name() != one.name());
    let mut all: Vec<IndexSpec> = first.iter().filter(replaced).cloned().collect();
    for one in second {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

/// `entry#<id>` / `index#<name>`: one index, and the job that makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// What it is over.
    pub spec: IndexSpec,
    /// The generation of the entry that it is of.
    pub generation: String,
    /// The job: never given twice, and part of the name of the file it writes.
    pub job: String,
    /// Who builds it, for people.
    pub holder: String,
    /// When the job began.
    pub started_at: Timestamp,
    /// How far it has come.
    pub state: IndexState,
}

/// How far an index has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// It is built.
    Building {
        /// From then on anybody may take over; moved while the build goes on.
        deadline: Timestamp,
        /// Rows that are done.
        rows_done: u64,
    },
    /// It answers.
    Ready {
        /// Since when.
        at: Timestamp,
        /// Bytes of its file.
        bytes: u64,
        /// Bytes at the end of the file that opening it reads.
        tail: u64,
        /// Rows.
        rows: u64,
    },
    /// The build failed, and nobody tries again before somebody asks for it.
    Failed {
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
    },
}

/// What is to be done about an index that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexDecision {
    /// It answers.
    Ready,
    /// Somebody builds it.
    Wait,
    /// Nobody does: the caller may.
    Build,
    /// Its build failed.
    Failed,
}

impl Index {
    /// The name of its file within the generation's folder.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.{}.index", self.spec.name(), self.job)
    }
}

/// Decides about an index of `spec` for an entry's `generation`: one of another generation, or that was asked for in another
/// way, is none.
#[must_use]
pub fn decide_index(
    index: Option<&Index>,
    spec: &IndexSpec,
    generation: &str,
    now: Timestamp,
) -> IndexDecision {
    let Some(index) = index.filter(|i| i.generation == generation && i.spec == *spec) else {
        return IndexDecision::Build;
    };
    match index.state {
        IndexState::Ready { .. } => IndexDecision::Ready,
        IndexState::Failed { .. } => IndexDecision::Failed,
        IndexState::Building { deadline, .. } if now < deadline => IndexDecision::Wait,
        IndexState::Building { .. } => IndexDecision::Build,
    }
}

/// Sort key of an index.
#[must_use]
pub fn index_key(name: &str) -> String {
    format!("{INDEX}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(columns: &[&str]) -> IndexSpec {
        let columns = columns.iter().map(|c| (*c).to_owned()).collect();
        IndexSpec::Text { columns }
    }

    fn vector(metric: Metric) -> IndexSpec {
        let column = String::from("v");
        IndexSpec::Vector { column, metric }
    }

    #[test]
    fn names_tell_columns_apart_and_not_metrics() {
        assert_ne!(text(&["ab", "c"]).name(), text(&["a", "bc"]).name());
        assert_ne!(text(&["v"]).name(), vector(Metric::Dot).name());
        assert_eq!(vector(Metric::L2).name(), vector(Metric::Dot).name());
        let both = together(&[text(&["a"]), vector(Metric::L2)], &[vector(Metric::Dot)]);
        assert_eq!(both, [text(&["a"]), vector(Metric::Dot)]);
        assert!(text(&["a", "a"]).check().is_err());
        assert!(text(&[]).check().is_err());
    }

    #[test]
    fn an_index_of_an_old_generation_is_none_and_a_dead_builder_is_taken_over() {
        let spec = text(&["a"]);
        let mut index = Index {
            spec: spec.clone(),
            generation: String::from("g1"),
            job: String::from("j"),
            holder: String::new(),
            started_at: Timestamp(0),
            state: IndexState::Building {
                deadline: Timestamp(10),
                rows_done: 0,
            },
        };
        let decide = |index: &Index, generation, now| {
            decide_index(Some(index), &spec, generation, Timestamp(now))
        };
        assert_eq!(decide(&index, "g1", 9), IndexDecision::Wait);
        assert_eq!(decide(&index, "g1", 10), IndexDecision::Build);
        assert_eq!(decide(&index, "g2", 9), IndexDecision::Build);
        index.state = IndexState::Ready {
            at: Timestamp(5),
            bytes: 1,
            tail: 1,
            rows: 1,
        };
        assert_eq!(decide(&index, "g1", 99), IndexDecision::Ready);
        assert_eq!(decide(&index, "g2", 99), IndexDecision::Build);
        assert_eq!(
            decide_index(None, &spec, "g1", Timestamp(0)),
            IndexDecision::Build
        );
    }
}
