//! What is known of a relation's columns.

use sqlparser::ast::Ident;

use super::Untraceable;

/// A column that is known by name.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub name: Ident,
    /// Why queries of changes do not have it; none when they do.
    pub missing: Option<String>,
    /// Whether it is an expression that was given no name.
    pub nameless: bool,
}

/// Columns of a relation.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    /// Those known by name.
    pub named: Vec<Column>,
    /// There may be others, and queries of changes have all of them.
    pub open: bool,
    /// Those known by name are all, in their order.
    pub ordered: bool,
}

/// What is known of one column.
pub(super) enum Known<'a> {
    /// Queries of changes have it.
    There,
    /// They do not, and why.
    Missing(&'a str),
    /// The relation has none of this name, as far as is known.
    Absent,
}

/// Whether two names may be one. A name in quotes may differ by case alone from another; they are taken as one.
pub(super) fn is_same(one: &Ident, other: &Ident) -> bool {
    one.value.eq_ignore_ascii_case(&other.value)
}

impl Columns {
    /// Any columns, all of them there.
    pub(super) fn any() -> Self {
        Self {
            named: Vec::new(),
            open: true,
            ordered: false,
        }
    }

    /// Whether queries of changes have every column.
    pub(super) fn is_full(&self) -> bool {
        self.named.iter().all(|column| column.missing.is_none()) && (self.open || self.ordered)
    }

    pub(super) fn find(&self, name: &Ident) -> Known<'_> {
        let mut same = self
            .named
            .iter()
            .filter(|column| is_same(&column.name, name))
            .peekable();
        if same.peek().is_none() {
            return match self.open {
                true => Known::There,
                false => Known::Absent,
            };
        }
        match same.find_map(|column| column.missing.as_deref()) {
            Some(why) => Known::Missing(why),
            None => Known::There,
        }
    }

    /// The columns under other names; those given are the first ones.
    pub(super) fn renamed(mut self, names: &[Ident]) -> Result<Self, Untraceable> {
        if !self.ordered {
            if !self.is_full() {
                return Err(Untraceable::because(
                    "columns are given other names, of which not all can be traced",
                ));
            }
            let there = |name: &Ident| Column {
                name: name.clone(),
                missing: None,
                nameless: false,
            };
            return Ok(Self {
                named: names.iter().map(there).collect(),
                open: false,
                ordered: true,
            });
        }
        for (column, name) in self.named.iter_mut().zip(names) {
            column.name = name.clone();
            column.nameless = false;
        }
        Ok(self)
    }

    /// Names of those that queries of changes have and that were given one.
    pub(super) fn there_by_name(&self) -> impl Iterator<Item = &Ident> {
        let named = self.named.iter().filter(|column| !column.nameless);
        named
            .filter(|column| column.missing.is_none())
            .map(|column| &column.name)
    }

    /// Names of those that queries of changes have, in order.
    pub(super) fn there(&self) -> impl Iterator<Item = &Ident> {
        let there = self.named.iter().filter(|column| column.missing.is_none());
        there.map(|column| &column.name)
    }
}
