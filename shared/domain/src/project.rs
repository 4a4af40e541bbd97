//! A project: its models and how they hang together.

use std::collections::BTreeMap;

use crate::{Model, Severity, TableName};

/// A parsed project, in dependency order.
#[derive(Clone, Debug, Default)]
pub struct Project {
    /// Models by name.
    pub models: BTreeMap<TableName, Model>,
    /// Every model after all it reads, ties by name.
    pub order: Vec<TableName>,
    /// Live inputs per live incremental model: landing tables and live incremental models, with views and ephemeral
    /// models looked through; in first-seen order.
    pub inputs: BTreeMap<TableName, Vec<TableName>>,
}

/// Something `validate` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The model, or the file when it could not be read as one.
    pub model: String,
    /// How bad it is.
    pub severity: Severity,
    /// Stable word for programs: `unknown_config_key`.
    pub code: &'static str,
    /// Sentence for people: what and what to do next.
    pub message: String,
    /// File relative to the project.
    pub file: String,
    /// Line, from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// Column, from 1; 0 with line 0.
    pub column: usize,
}
