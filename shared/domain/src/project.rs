//! A project: its models and how they hang together.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Materialized, Model, Severity, TableName, validate};

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
        let mut findings = Vec::new();
        let mut models: BTreeMap<TableName, Model> = BTreeMap::new();
        for (path, text) in files {
            let Some(model) = validate::model(path, text, &mut findings) else {
                continue;
            };
            if let Some(first) = models.get(&model.name) {
                let message = format!("`{}` is defined in `{}` already", model.name, first.file);
                findings.push(validate::about(
                    &model,
                    Severity::Error,
                    "duplicate_model",
                    message,
                ));
                continue;
            }
            models.insert(model.name.clone(), model);
        }
        let (order, loops) = order(&models);
        for path in &loops {
            let message = format!("models read each other in a loop: {path}");
            let first = path.split(" -> ").next().and_then(|name| name.parse().ok());
            if let Some(model) = first.and_then(|name: TableName| models.get(&name)) {
                findings.push(validate::about(model, Severity::Error, "cycle", message));
            }
        }
        models.retain(|name, _| order.contains(name));
        let mut project = Self {
            models,
            order,
            inputs: BTreeMap::new(),
        };
        project.inputs = project
            .models
            .values()
            .filter(|model| {
                model.config.live && model.config.materialized == Materialized::Incremental
            })
            .map(|model| (model.name.clone(), project.walk(model).live))
            .collect();
        validate::project(&project, known, &mut findings);
        if files.is_empty() {
            findings.push(Finding {
                model: String::new(),
                severity: Severity::Warning,
                code: "no_models",
                message: "the project has no models: add `transform/<schema>/<name>.sql`"
                    .to_owned(),
                file: String::new(),
                line: 0,
                column: 0,
            });
        }
        (project, findings)
    }

    /// What a model reads, with views and ephemeral models looked through.
    pub(crate) fn walk(&self, model: &Model) -> Reads {
        let mut reads = Reads::default();
        let mut seen = BTreeSet::from([model.name.clone()]);
        let mut open: Vec<TableName> = model.reads.iter().rev().cloned().collect();
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            match self.models.get(&name) {
                Some(read) => match read.config.materialized {
                    Materialized::View | Materialized::Ephemeral => {
                        open.extend(read.reads.iter().rev().cloned());
                    }
                    Materialized::Incremental if read.config.live => reads.live.push(name),
                    Materialized::Incremental | Materialized::Table => reads.batch.push(name),
                },
                None if name.is_landing() => reads.live.push(name),
                None => reads.unknown.push(name),
            }
        }
        reads
    }

    /// The model or input whose name is nearest to a mistyped one.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Option<String> {
        let inputs = self.models.values().flat_map(|model| &model.reads);
        let names: BTreeSet<String> = self
            .models
            .keys()
            .chain(inputs)
            .map(ToString::to_string)
            .collect();
        crate::name::nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
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

impl Finding {
    /// About a model file that is no UTF-8, with line and column of where it is none.
    #[must_use]
    pub fn not_text(file: String, (line, column): (usize, usize)) -> Self {
        Self {
            model: file.clone(),
            severity: Severity::Error,
            code: "not_utf8",
            message: "the file is no UTF-8 from here on: save it as UTF-8".to_owned(),
            file,
            line,
            column,
        }
    }
}

/// What a model reads.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Landing tables and live incremental models.
    pub(crate) live: Vec<TableName>,
    /// Models that only batch runs build.
    pub(crate) batch: Vec<TableName>,
    /// Neither models nor landing tables.
    pub(crate) unknown: Vec<TableName>,
}

/// Models after all they read, ties by name; and the loops, as `a -> b -> a`, whose members are left out of the order.
fn order(models: &BTreeMap<TableName, Model>) -> (Vec<TableName>, Vec<String>) {
    let (mut order, mut loops) = (Vec::with_capacity(models.len()), Vec::new());
    // In the order or on a loop.
    let mut settled = BTreeSet::new();
    loop {
        let is_ready = |model: &&Model| {
            let mut reads = model.reads.iter().filter(|read| models.contains_key(*read));
            !settled.contains(&model.name) && reads.all(|read| settled.contains(read))
        };
        let ready: Vec<TableName> = models
            .values()
            .filter(is_ready)
            .map(|m| m.name.clone())
            .collect();
        if !ready.is_empty() {
            order.extend(ready.iter().cloned());
            settled.extend(ready);
            continue;
        }
        let start = models.keys().find(|name| !settled.contains(*name));
        let Some(path) = start.and_then(|start| loop_from(models, &settled, start)) else {
            return (order, loops);
        };
        let names: Vec<String> = path
            .iter()
            .chain(path.first())
            .map(ToString::to_string)
            .collect();
        loops.push(names.join(" -> "));
        settled.extend(path);
    }
}

/// The loop that following the first unsettled read of each model from `start` runs into.
fn loop_from<'a>(
    models: &'a BTreeMap<TableName, Model>,
    settled: &BTreeSet<TableName>,
    start: &'a TableName,
) -> Option<Vec<TableName>> {
    let mut path: Vec<&TableName> = vec![start];
    loop {
        let at = path.last()?;
        let next = models
            .get(*at)?
            .reads
            .iter()
            .find(|read| models.contains_key(*read) && !settled.contains(*read))?;
        if let Some(from) = path.iter().position(|name| *name == next) {
            return Some(path[from..].iter().map(|name| (*name).clone()).collect());
        }
        path.push(next);
    }
}
