//! What people and programs are shown of an entry.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use domain::{
    Position, TableName,
    entry::{EntryId, IndexSpec, Mode, Summary},
    items::Column,
};
use ports::columns;
use serde::Serialize;

use super::{Entry, Registry};

/// An entry without its rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Its name.
    pub id: String,
    /// The call it is the result of.
    pub fingerprint: String,
    /// Whose it is; none when it is everybody's.
    pub tenant: Option<String>,
    /// What people call it.
    pub key: String,
    /// The function's version.
    pub version: i64,
    /// `building` or `ready`.
    pub status: &'static str,
    /// How it is served once it is expired.
    pub mode: Mode,
    /// When it was committed, or began to be built (RFC 3339).
    pub created_at: String,
    /// From when on it is expired; none for never.
    pub expires_at: Option<String>,
    /// Whether it is.
    pub expired: bool,
    /// Rows.
    pub row_count: u64,
    /// Bytes of its data.
    pub byte_size: u64,
    /// The generation that is read.
    pub generation: Option<String>,
    /// Whether the server can make it by itself.
    pub refreshable: bool,
    /// What only the row itself tells.
    #[serde(flatten)]
    pub more: Option<More>,
}

/// What lists leave out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct More {
    /// Whether the rows ride in the registry.
    pub inline: bool,
    /// Their length there, as text.
    pub inline_length: Option<u64>,
    /// Columns, in SQL words.
    pub columns: Vec<Column>,
    /// How far the tables had come that its query read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub watermarks: BTreeMap<TableName, Position>,
    /// The query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// What it is searched by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<IndexSpec>,
}

/// Columns in SQL words.
pub(super) fn columns(schema: &Schema) -> Vec<Column> {
    let column = |field: &arrow::datatypes::FieldRef| Column {
        name: field.name().clone(),
        kind: columns::word(field.data_type()),
    };
    schema.fields().iter().map(column).collect()
}

impl Registry {
    /// What is shown of an entry.
    #[must_use]
    pub fn shown(&self, entry: &Entry) -> Shown {
        let content = &entry.content;
        let more = More {
            inline: content.inline.is_some(),
            inline_length: content.inline,
            columns: content.columns.clone(),
            watermarks: content.watermarks.clone(),
            sql: entry.row.spec.query.as_ref().map(|query| query.sql.clone()),
            index: entry.row.spec.indexes.clone(),
        };
        Shown {
            more: Some(more),
            ..self.listed(&entry.id, &Summary::from(&entry.row))
        }
    }

    /// What is shown of an entry in a list.
    #[must_use]
    pub fn listed(&self, id: &EntryId, summary: &Summary) -> Shown {
        let now = self.now();
        Shown {
            id: id.to_string(),
            fingerprint: id.fingerprint().to_string(),
            tenant: id.tenant().map(str::to_owned),
            key: summary.key.clone(),
            version: summary.version,
            status: if summary.ready { "ready" } else { "building" },
            mode: summary.mode,
            created_at: summary.created_at.to_string(),
            expires_at: summary.expires_at.map(|at| at.to_string()),
            expired: summary.expires_at.is_some_and(|at| now >= at),
            row_count: summary.rows,
            byte_size: summary.bytes,
            generation: summary.generation.clone(),
            refreshable: summary.query,
            more: None,
        }
    }
}
