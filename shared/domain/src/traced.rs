//! Which of a project's models refresh by key, and why the others do not.

use std::collections::BTreeMap;

use crate::{
    Materialized, Model, Project, Strategy, TableName,
    sql::{
        self, Bindings,
        trace::{Role, Trace, Untraceable, trace},
    },
};

impl Model {
    /// Whether the engine finds out by itself which of its rows to replace.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self.config.materialized == Materialized::Incremental
            && self.config.strategy == Strategy::Auto
    }
}

impl Project {
    /// How changes of a model's inputs become keys of its table; none for a model of another strategy.
    #[must_use]
    pub fn traced(&self, model: &Model) -> Option<Result<Trace, Untraceable>> {
        model.is_auto().then(|| {
            let text = text(model)?;
            trace(&text, &model.config.unique_key, &|table| {
                self.role(model, table)
            })
        })
    }

    fn role(&self, model: &Model, table: &TableName) -> Role {
        let Some(read) = self.models.get(table) else {
            return Role::Input;
        };
        match read.config.materialized {
            Materialized::View | Materialized::Ephemeral => match text(read) {
                Ok(text) => Role::View(text),
                Err(error) => Role::Untold(error.why),
            },
            _ if read.name == model.name => {
                Role::Untold("the query reads its own table".to_owned())
            }
            _ => match self.inputs.get(&model.name) {
                Some(inputs) if !inputs.contains(table) => Role::Untold(
                    "only batch runs build it, and nobody tells what changed".to_owned(),
                ),
                Some(_) | None => Role::Input,
            },
        }
    }
}

/// A model's query without its filter.
fn text(model: &Model) -> Result<String, Untraceable> {
    let bindings = Bindings {
        this: &model.name,
        watermark: None,
        watermarks: BTreeMap::new(),
        changes: None,
    };
    sql::text(model, &bindings, false).map_err(|error| Untraceable {
        input: None,
        why: error.to_string(),
    })
}
