//! Reads a tree and the variables over it, collecting every complaint instead of stopping at the
//! first.

use std::collections::BTreeMap;

use crate::{
    Complaint,
    tree::{Key, Node, Value},
    words::{mistyped, nearest},
};

/// Prefix of the variables that override settings.
const PREFIX: &str = "HEADWATER_";

/// Where settings come from, and what was wrong with them.
pub(crate) struct Reader<'a> {
    vars: &'a BTreeMap<String, String>,
    pub(crate) complaints: Vec<Complaint>,
}

/// One map of the file, being read key by key.
pub(crate) struct Section {
    /// Dotted path for messages and, in capitals, for variables; empty at the top.
    path: String,
    entries: Vec<(Key, Node)>,
    /// Keys asked for so far: whatever else the file has is unknown.
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(vars: &'a BTreeMap<String, String>) -> Self {
        Self {
            vars,
            complaints: Vec::new(),
        }
    }

    pub(crate) fn complain(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.complaints.push(Complaint {
            place: place.into(),
            message: message.into(),
        });
    }

    /// The map that `node` holds; a complaint and an empty map when it holds something else.
    pub(crate) fn section(&mut self, path: &str, node: Option<Node>) -> Section {
        let entries = match node {
            None => Vec::new(),
            Some(Node {
                value: Value::Map(entries),
                ..
            }) => entries,
            Some(Node {
                value: Value::Null, ..
            }) => Vec::new(),
            Some(Node {
                place,
                value: Value::Scalar(_) | Value::List,
            }) => {
                let what = if path.is_empty() { "the file" } else { path };
                self.complain(place, format!("`{what}` must hold `key: value` lines"));
                Vec::new()
            }
        };
        Section {
            path: path.to_owned(),
            entries,
            known: Vec::new(),
        }
    }

    /// One scalar of a section, its variable first, read by `parse`; `default` when neither is
    /// there or it is wrong.
    pub(crate) fn value<T, E: ToString>(
        &mut self,
        section: &mut Section,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> T {
        let node = section.take(key);
        let variable = section.variable(key);
        let (place, text) = match (self.vars.get(&variable), node) {
            (Some(text), _) => (variable, text.clone()),
            (
                None,
                Some(Node {
                    place,
                    value: Value::Scalar(text),
                }),
            ) => (place, text),
            (
                None,
                Some(Node {
                    place,
                    value: Value::List | Value::Map(_),
                }),
            ) => {
                self.complain(place, format!("`{}` must be one value", section.name(key)));
                return default;
            }
            (
                None,
                None
                | Some(Node {
                    value: Value::Null, ..
                }),
            ) => return default,
        };
        parse(&text).unwrap_or_else(|error| {
            self.complain(
                place,
                format!("`{}`: {}", section.name(key), error.to_string()),
            );
            default
        })
    }

    /// Complains about the keys of a section that nobody asked for.
    pub(crate) fn finish(&mut self, section: Section) {
        for (key, _) in &section.entries {
            let near = nearest(&key.name, section.known.iter().copied());
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", section.known.join(", ")),
            };
            self.complain(
                &key.place,
                format!("unknown key `{}`; {hint}", section.name(&key.name)),
            );
        }
    }

    /// Complains about variables that are all but those of a key of the top, or of one of its sections.
    pub(crate) fn finish_top(&mut self, known: &[&str]) {
        let names = self
            .vars
            .keys()
            .filter_map(|name| name.strip_prefix(PREFIX));
        let names: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        for name in names {
            if known.iter().any(|known| is_under(&name, known)) {
                continue;
            }
            let (first, rest) = match name.split_once('_') {
                Some((first, rest)) => (first, format!("_{rest}")),
                None => (name.as_str(), String::new()),
            };
            if let Some(near) = mistyped(first, known.iter().copied()) {
                let variable = |name: &str| format!("{PREFIX}{}", name.to_ascii_uppercase());
                let meant = variable(&format!("{near}{rest}"));
                self.complain(
                    variable(&name),
                    format!("it sets nothing; did you mean `{meant}`?"),
                );
            }
        }
    }

    /// Complains about variables under `section` that override nothing. Other `HEADWATER_*`
    /// variables belong to others.
    pub(crate) fn finish_variables(&mut self, section: &str, known: &[&str]) {
        let prefix = format!("{PREFIX}{}_", section.to_ascii_uppercase());
        let strange: Vec<String> = self
            .vars
            .keys()
            .filter_map(|name| name.strip_prefix(&prefix))
            .map(str::to_ascii_lowercase)
            .filter(|key| !known.contains(&key.as_str()))
            .collect();
        for key in strange {
            let hint = nearest(&key, known.iter().copied())
                .map(|near| format!("; did you mean `{prefix}{}`?", near.to_ascii_uppercase()))
                .unwrap_or_default();
            self.complain(
                format!("{prefix}{}", key.to_ascii_uppercase()),
                format!("no setting `{section}.{key}`{hint}"),
            );
        }
    }
}

/// Whether a variable is one of a section's, or stands for a section.
fn is_under(variable: &str, section: &str) -> bool {
    let rest = variable.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

impl Section {
    /// Takes a key's node out.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let at = self
            .entries
            .iter()
            .position(|(found, _)| found.name == key)?;
        Some(self.entries.remove(at).1)
    }

    /// Takes every entry out, whatever its key.
    pub(crate) fn take_all(&mut self) -> Vec<(Key, Node)> {
        std::mem::take(&mut self.entries)
    }

    /// Keys asked for so far.
    pub(crate) fn known(&self) -> &[&'static str] {
        &self.known
    }

    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn variable(&self, key: &str) -> String {
        format!(
            "{PREFIX}{}",
            self.name(key).replace('.', "_").to_ascii_uppercase()
        )
    }
}
