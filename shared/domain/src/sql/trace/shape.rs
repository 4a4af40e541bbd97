//! What a traced query is to the one around it.

use sqlparser::ast::{Ident, SetOperator, SetQuantifier};

use super::{
    Untraceable,
    columns::{Columns, Known, is_same},
};
use crate::{TableName, sql::STATEMENT_BYTES_MAX};

/// A traced query.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Per place where an input is read: the input, and a query of which every changed row of this one is a row.
    pub changes: Vec<(TableName, String)>,
    /// A query of which every row of this one, then or now, is a row.
    pub prior: String,
    /// The columns of this query. Those two have the ones among them that are there.
    pub columns: Columns,
    /// Columns that rows belong together by: what it groups by, or what its windows are partitioned by.
    pub natural: Vec<Ident>,
}

impl Shape {
    /// The key to replace rows by.
    pub(super) fn key(&self, wanted: &[String]) -> Result<Vec<Ident>, Untraceable> {
        let wanted: Vec<Ident> = wanted.iter().map(|name| ident(name)).collect();
        let mut fault = None;
        for name in &wanted {
            fault = fault.or(match self.columns.find(name) {
                Known::There => None,
                Known::Missing(why) => Some(format!("the key column `{}` {why}", name.value)),
                Known::Absent => Some(format!(
                    "the key column `{}` is no column of the query",
                    name.value
                )),
            });
        }
        match fault {
            None if !wanted.is_empty() => Ok(wanted.iter().map(|name| self.spelt(name)).collect()),
            _ if !self.natural.is_empty() => Ok(self.natural.clone()),
            None => Err(Untraceable::because(
                "it has neither a unique_key nor a column that it groups by",
            )),
            Some(why) => {
                let input = self.changes.first().map(|(input, _)| input.clone());
                Err(Untraceable::because(why).of(input))
            }
        }
    }

    /// A name as the query spells it.
    fn spelt(&self, name: &Ident) -> Ident {
        let same = self
            .columns
            .named
            .iter()
            .find(|column| is_same(&column.name, name));
        same.map_or_else(|| name.clone(), |column| column.name.clone())
    }

    /// The same under other column names.
    pub(super) fn renamed(self, names: &[Ident]) -> Result<Self, Untraceable> {
        if names.is_empty() {
            return Ok(self);
        }
        let columns = self.columns.clone().renamed(names)?;
        let list = list(columns.there());
        let wrap = |text: String| format!("SELECT * FROM ({text}) AS _n ({list})");
        let natural = self.natural.iter().filter_map(|name| {
            let at = self
                .columns
                .named
                .iter()
                .position(|c| is_same(&c.name, name))?;
            columns.named.get(at).map(|column| column.name.clone())
        });
        Ok(Self {
            natural: natural.collect(),
            changes: map(self.changes, wrap),
            prior: wrap(self.prior),
            columns,
        })
    }

    /// The rows of two queries of the same columns, as a set operation makes them out of both.
    pub(super) fn combined(
        self,
        operator: SetOperator,
        quantifier: SetQuantifier,
        other: Self,
    ) -> Result<Self, Untraceable> {
        use SetQuantifier as Q;
        match quantifier {
            Q::All | Q::Distinct | Q::None => {}
            Q::ByName | Q::AllByName | Q::DistinctByName => {
                return Err(Untraceable::because(format!(
                    "{operator} BY NAME is not traced"
                )));
            }
        }
        let (left, right) = agreed(self, other)?;
        let natural: Vec<Ident> = match left.columns.ordered && right.columns.ordered {
            true => shared(&left, &right),
            false => Vec::new(),
        };
        let by_position = match left.columns.ordered {
            true => {
                let list = list(left.columns.there());
                (
                    String::new(),
                    String::from("SELECT * FROM ("),
                    format!(") AS _u ({list})"),
                )
            }
            // Names and types of the first branch.
            false => (
                format!(
                    "(SELECT * FROM ({}) AS _u WHERE FALSE) UNION ALL ",
                    left.prior
                ),
                "(".to_owned(),
                ")".to_owned(),
            ),
        };
        let (before, open, close) = by_position;
        let mut changes = left.changes;
        changes.extend(map(right.changes, |text| {
            format!("{before}{open}{text}{close}")
        }));
        let prior = match operator {
            SetOperator::Union => format!("({}) UNION ALL ({})", left.prior, right.prior),
            SetOperator::Except | SetOperator::Intersect | SetOperator::Minus => left.prior,
        };
        let shape = Self {
            changes,
            prior,
            columns: left.columns,
            natural,
        };
        shape.bounded()
    }

    /// Refuses a query that became too large.
    pub(super) fn bounded(self) -> Result<Self, Untraceable> {
        let changes = self.changes.iter().map(|(_, text)| text.len());
        match changes.sum::<usize>() + self.prior.len() > STATEMENT_BYTES_MAX {
            true => Err(Untraceable::because(
                "it is too large once views and CTEs are written out",
            )),
            false => Ok(self),
        }
    }

    /// Only some of the columns, by position.
    fn only(self, keep: &[bool]) -> Self {
        let mut columns = self.columns;
        let mut keeps = keep.iter();
        columns
            .named
            .retain(|_| keeps.next().copied().unwrap_or(false));
        let list = list(columns.there());
        let wrap = |text: String| format!("SELECT {list} FROM ({text}) AS _o");
        Self {
            changes: map(self.changes, wrap),
            prior: wrap(self.prior),
            columns,
            natural: self.natural,
        }
    }
}

/// Two queries with just the columns that both have.
fn agreed(left: Shape, right: Shape) -> Result<(Shape, Shape), Untraceable> {
    if left.columns.is_full() && right.columns.is_full() {
        return Ok((left, right));
    }
    let (one, other) = (&left.columns, &right.columns);
    if !(one.ordered && other.ordered && one.named.len() == other.named.len()) {
        return Err(Untraceable::because(
            "columns of a set operation cannot be told from each other: name them",
        ));
    }
    let both = one.named.iter().zip(&other.named);
    let keep: Vec<bool> = both
        .map(|(one, other)| one.missing.is_none() && other.missing.is_none())
        .collect();
    let missing = one.named.iter().zip(&other.named);
    let missing: Vec<_> = missing
        .map(|(one, other)| one.missing.clone().or_else(|| other.missing.clone()))
        .collect();
    let names = one.named.clone();
    let (mut left, right) = (left.only(&keep), right.only(&keep));
    left.columns.named = names
        .into_iter()
        .zip(missing)
        .map(|(column, missing)| super::columns::Column { missing, ..column })
        .collect();
    Ok((left, right))
}

/// Columns of the first branch by which rows of both belong together.
fn shared(left: &Shape, right: &Shape) -> Vec<Ident> {
    let has = |shape: &Shape, name: &Ident| shape.natural.iter().any(|n| is_same(n, name));
    let both = left.columns.there().zip(right.columns.there());
    both.filter(|(one, other)| has(left, one) && has(right, other))
        .map(|(one, _)| one.clone())
        .collect()
}

fn map(
    changes: Vec<(TableName, String)>,
    to: impl Fn(String) -> String,
) -> Vec<(TableName, String)> {
    changes
        .into_iter()
        .map(|(input, text)| (input, to(text)))
        .collect()
}

fn list<'a>(names: impl Iterator<Item = &'a Ident>) -> String {
    names.map(Ident::to_string).collect::<Vec<_>>().join(", ")
}

/// A key column as it is written in a directive.
fn ident(name: &str) -> Ident {
    let inner = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'));
    match inner {
        Some(inner) => Ident::with_quote('"', inner.replace("\"\"", "\"")),
        None => Ident::new(name),
    }
}
