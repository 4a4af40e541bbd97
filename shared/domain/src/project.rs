//! A project: its models and how they hang together.

use std::collections::{BTreeMap, BTreeSet};

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

impl Project {
    /// Reads model files: (path relative to the project, text). Never fails: what cannot be read is a finding and the
    /// model is left out. `known` names the tables that exist beside the models; without it a missing landing table is
    /// not judged.
    #[must_use]
    pub fn load(
        files: &[(String, String)],
        known: Option<&BTreeSet<TableName>>,
    ) -> (Self, Vec<Finding>) {
        let _ = (files, known);
        unimplemented!()
    }

    /// The model or input whose name is nearest to a mistyped one.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Option<String> {
        let _ = name;
        unimplemented!()
    }

    /// Live incremental models, in dependency order.
    pub fn live(&self) -> impl Iterator<Item = &Model> {
        self.order
            .iter()
            .filter(|name| self.inputs.contains_key(name))
            .filter_map(|name| self.models.get(name))
    }

    /// Every live incremental model a live model depends on, directly or not; views are looked through.
    #[must_use]
    pub fn ancestors(&self, model: &TableName) -> BTreeSet<TableName> {
        let mut found = BTreeSet::new();
        let mut open = vec![model];
        while let Some(next) = open.pop() {
            for input in self.inputs.get(next).into_iter().flatten() {
                if self.inputs.contains_key(input) && found.insert(input.clone()) {
                    open.push(input);
                }
            }
        }
        found
    }
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
