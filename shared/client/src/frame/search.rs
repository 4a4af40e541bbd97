//! Search in entries that have indexes: asked of the registry, which holds them.

use serde::Serialize;
use serde_json::Value;

use super::MaterializedFrame;
use crate::{
    batches::Batches,
    error::{Error, Result},
};

/// A full-text search. The best come first, with a column `_score`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Search {
    query: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    limit: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    select: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<String>,
}

impl Search {
    /// Words to look for.
    #[must_use]
    pub fn new(query: &str) -> Self {
        Self {
            query: query.to_owned(),
            columns: Vec::new(),
            filter: None,
            limit: 10,
            offset: 0,
            select: Vec::new(),
            wait: None,
        }
    }

    /// In this column too; in all that are indexed when none is said.
    #[must_use]
    pub fn column(mut self, column: &str) -> Self {
        self.columns.push(column.to_owned());
        self
    }

    /// From this place of the ranking on.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }
}

/// A search for the nearest vectors. The nearest come first, with a column `_score`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VectorSearch {
    column: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    vector: Option<Vec<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    limit: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    select: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<String>,
}

impl VectorSearch {
    fn of(column: &str) -> Self {
        Self {
            column: column.to_owned(),
            vector: None,
            text: None,
            filter: None,
            limit: 10,
            select: Vec::new(),
            wait: None,
        }
    }

    /// The nearest of a vector.
    #[must_use]
    pub fn near(column: &str, vector: Vec<f32>) -> Self {
        Self {
            vector: Some(vector),
            ..Self::of(column)
        }
    }

    /// The nearest of a text, which the registry's embedder makes a vector of.
    #[must_use]
    pub fn like(column: &str, text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..Self::of(column)
        }
    }
}

macro_rules! both {
    ($($kind:ty),*) => {$(
        impl $kind {
            /// Only rows that meet a condition in SQL.
            #[must_use]
            pub fn filter(mut self, sql: &str) -> Self {
                self.filter = Some(sql.to_owned());
                self
            }

            /// At most so many; 10 when nothing is said.
            #[must_use]
            pub fn limit(mut self, limit: u64) -> Self {
                self.limit = limit;
                self
            }

            /// This column of the rows too; all when none is said.
            #[must_use]
            pub fn select(mut self, column: &str) -> Self {
                self.select.push(column.to_owned());
                self
            }

            /// Waits so long for an index that is still being built.
            #[must_use]
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.wait = Some(format!("{}ms", wait.as_millis()));
                self
            }
        }
    )*};
}
both!(Search, VectorSearch);

fn body(search: &impl Serialize) -> Result<String> {
    let body: Result<Value, _> = serde_json::to_value(search);
    body.map(|body| body.to_string()).map_err(Error::unreadable)
}

impl MaterializedFrame {
    /// Full-text search over the entry; one that is on its way into the registry is waited for.
    ///
    /// # Errors
    /// [`Error::IndexNotReady`] with the job while the index is built; a column without an index; a result that was not stored.
    pub async fn search(&self, search: &Search) -> Result<Batches> {
        self.ask("/search", body(search)?, "search").await
    }

    /// The nearest vectors of the entry.
    ///
    /// # Errors
    /// As [`search`](Self::search), and a vector of another length.
    pub async fn vector_search(&self, search: &VectorSearch) -> Result<Batches> {
        self.ask("/vector-search", body(search)?, "vector search")
            .await
    }
}
