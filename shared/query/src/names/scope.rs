//! What a name can mean at one place of a statement.

/// A table, common table expression or subquery in a FROM clause.
#[derive(Clone, Debug, Default)]
pub(super) struct Relation {
    /// What it can be called before a dot.
    pub(super) names: Vec<String>,
    /// Its columns; none when they are not known.
    pub(super) columns: Vec<String>,
}

impl Relation {
    pub(super) fn is_any(&self, names: &[String]) -> bool {
        self.names.iter().any(|name| names.contains(name))
    }
}

/// What is in sight inside one SELECT.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    pub(super) relations: Vec<Relation>,
    /// Names the SELECT gives its columns.
    pub(super) aliases: Vec<String>,
    /// Whether aliases come before columns, as in ORDER BY.
    pub(super) aliases_first: bool,
}

/// What was found for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The name means what the planner makes of it.
    AsWritten,
    /// The column's spelling.
    Spelled(String),
    /// Spellings that differ in case alone.
    Several(Vec<String>),
}

impl Level {
    pub(super) fn of(relations: Vec<Relation>) -> Self {
        Self {
            relations,
            ..Self::default()
        }
    }

    /// The meaning of a name without a qualifier.
    pub(super) fn find(&self, name: &str) -> Found {
        let columns = || {
            among(
                name,
                self.relations.iter().flat_map(|relation| &relation.columns),
            )
        };
        let aliases = || among(name, &self.aliases);
        let first = if self.aliases_first {
            aliases()
        } else {
            columns()
        };
        match first {
            Found::Nothing if self.aliases_first => columns(),
            Found::Nothing => aliases(),
            found => found,
        }
    }

    /// Whether there is a column of exactly this name.
    pub(super) fn has_column(&self, name: &str) -> bool {
        let mut columns = self.relations.iter().flat_map(|relation| &relation.columns);
        columns.any(|column| column == name)
    }

    /// The schema of a table that goes by its own name.
    pub(super) fn schema_of(&self, name: &str) -> Option<&str> {
        let mut names = self.relations.iter().flat_map(|relation| &relation.names);
        names.find_map(|full| full.strip_suffix(name)?.strip_suffix('.'))
    }

    /// The meaning of a name behind a qualifier; none when nothing goes by the qualifier.
    pub(super) fn find_in(&self, qualifier: &str, name: &str) -> Option<Found> {
        let named = |relation: &&Relation| relation.names.iter().any(|name| name == qualifier);
        let relation = self.relations.iter().find(named)?;
        Some(among(name, &relation.columns))
    }
}

fn among<'a>(name: &str, columns: impl IntoIterator<Item = &'a String>) -> Found {
    let mut spellings: Vec<&String> = columns
        .into_iter()
        .filter(|column| column.eq_ignore_ascii_case(name))
        .collect();
    spellings.sort_unstable();
    spellings.dedup();
    let lower = folded(name);
    match spellings.as_slice() {
        [] => Found::Nothing,
        [only] if **only == lower => Found::AsWritten,
        [only] => Found::Spelled((*only).clone()),
        some if name == lower && some.contains(&&lower) => Found::AsWritten,
        some => Found::Several(some.iter().map(ToString::to_string).collect()),
    }
}

/// A name without quotes, as the planner folds it.
pub(super) fn folded(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_decides_only_where_it_must() {
        let check = |columns: &[&str], name: &str, expected: Found| {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            assert_eq!(among(name, &columns), expected, "{name}");
        };
        let columns = ["userId", "A", "B", "b", "c"];
        check(&columns, "userid", Found::Spelled("userId".into()));
        check(&columns, "USERID", Found::Spelled("userId".into()));
        check(&columns, "a", Found::Spelled("A".into()));
        check(&columns, "b", Found::AsWritten);
        check(&columns, "B", Found::Several(vec!["B".into(), "b".into()]));
        check(&columns, "C", Found::AsWritten);
        check(&columns, "d", Found::Nothing);
    }
}
