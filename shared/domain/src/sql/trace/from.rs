//! The relations of one SELECT, and what joins them.

use sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectNamePart,
};

use super::{
    Untraceable,
    columns::{Columns, Known, is_same},
    exprs::{conjuncts, reads, uses},
};
use crate::TableName;

/// How a relation meets those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Inner,
    /// Rows before it stay when it has none for them.
    Left,
}

/// What rows that meet have in common.
#[expect(clippy::large_enum_variant, reason = "a query has few joins")]
#[derive(Clone, Debug)]
pub(super) enum On {
    Anything,
    Condition(Expr),
    Columns(Vec<Ident>),
    SameNames,
}

/// One relation.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub name: Option<Ident>,
    /// ` AS name (columns)`.
    pub alias: String,
    pub columns: Columns,
    pub changes: Vec<(TableName, String)>,
    pub prior: String,
    pub kind: Kind,
    pub on: On,
}

/// The relations of a SELECT, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct From(pub Vec<Relation>);

/// Reads how a join joins.
pub(super) fn joins(join: &Join) -> Result<(Kind, On), Untraceable> {
    let (kind, constraint) = match &join.join_operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => {
            (Kind::Inner, on)
        }
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (Kind::Left, on),
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => {
            return Err(Untraceable::because(
                "a RIGHT JOIN is not traced: write it as a LEFT JOIN",
            ));
        }
        JoinOperator::FullOuter(_) => {
            return Err(Untraceable::because("a FULL JOIN is not traced"));
        }
        _ => return Err(Untraceable::because("a join of this kind is not traced")),
    };
    if let JoinConstraint::On(condition) = constraint
        && let (true, input) = reads(condition)
    {
        return Err(Untraceable::because("a join goes by a subquery over it").of(input));
    }
    let on = match constraint {
        JoinConstraint::On(condition) => On::Condition(condition.clone()),
        JoinConstraint::Natural => On::SameNames,
        JoinConstraint::None => On::Anything,
        JoinConstraint::Using(names) => {
            let ident = |part: &ObjectNamePart| part.as_ident().cloned();
            let names = names.iter().map(|name| name.0.last().and_then(ident));
            On::Columns(names.collect::<Option<_>>().unwrap_or_default())
        }
    };
    Ok((kind, on))
}

/// Whether a condition compares two columns for equality: never true of a NULL.
fn is_equation(part: &Expr) -> bool {
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    match part {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } => is_column(left) && is_column(right),
        _ => false,
    }
}

/// Where a column of an expression comes from.
enum Source<'a> {
    Of(usize),
    /// It could be of several relations.
    Several,
    /// Queries of changes do not have it, and why.
    Missing(&'a str),
}

const HIDDEN: &str = "is not what windows below it are partitioned by";
const OPTIONAL: &str = "comes from the right side of a LEFT JOIN";

impl From {
    /// Whether a query of changes may use all that the query itself uses.
    pub(super) fn is_whole(&self) -> bool {
        let whole =
            |relation: &Relation| relation.kind == Kind::Inner && relation.columns.is_full();
        self.0.iter().all(whole)
    }

    fn named(&self, name: &Ident) -> Option<usize> {
        let is = |relation: &Relation| relation.name.as_ref().is_some_and(|n| is_same(n, name));
        self.0.iter().position(is)
    }

    fn source(&self, parts: &[Ident]) -> Source<'_> {
        let (at, column) = match parts {
            [column] => (self.unqualified(column), column),
            [first, second, ..] => match self.named(first) {
                Some(at) => (Some(at), second),
                // A field of a structure.
                None => (self.unqualified(first), first),
            },
            [] => return Source::Several,
        };
        let Some(at) = at else {
            return Source::Several;
        };
        match self.0[at].columns.find(column) {
            Known::Missing(why) => Source::Missing(why),
            Known::Absent if !self.0[at].columns.ordered => Source::Missing(HIDDEN),
            Known::There | Known::Absent => Source::Of(at),
        }
    }

    /// The relation that a name without one belongs to, if that can be told without knowing all columns.
    fn unqualified(&self, column: &Ident) -> Option<usize> {
        if self.0.len() == 1 {
            return Some(0);
        }
        let joined = self.0.iter().any(|relation| match &relation.on {
            On::Columns(names) => names.iter().any(|name| is_same(name, column)),
            On::Anything | On::Condition(_) | On::SameNames => false,
        });
        if joined && self.0.len() == 2 {
            return Some(0);
        }
        let has = |relation: &Relation| {
            !relation.columns.ordered || !matches!(relation.columns.find(column), Known::Absent)
        };
        let mut having = (0..self.0.len()).filter(|at| has(&self.0[*at]));
        having.next().filter(|_| having.next().is_none())
    }

    /// Why a query of changes cannot have an expression; none when it can.
    pub(super) fn missing(&self, expr: &Expr) -> Option<String> {
        if self.is_whole() {
            return None;
        }
        uses(expr)
            .columns
            .iter()
            .find_map(|parts| match self.source(parts) {
                Source::Of(at) if self.0[at].kind == Kind::Left => Some(OPTIONAL.to_owned()),
                Source::Of(_) => None,
                Source::Missing(why) => Some(why.to_owned()),
                Source::Several => Some(format!(
                    "could be a column of several relations (write the one before `{}`)",
                    parts.last().map_or("", |name| &name.value)
                )),
            })
    }

    /// Why a query of changes cannot have a column that a subquery takes from one of the relations; none when it can, or when
    /// the column is of none of them.
    pub(super) fn withheld(&self, parts: &[Ident]) -> Option<String> {
        self.named(parts.first()?)?;
        let why = self.missing(&Expr::CompoundIdentifier(parts.to_vec()))?;
        let names: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
        Some(format!(
            "a subquery takes `{}`, which {why}",
            names.join(".")
        ))
    }

    /// The relations in SQL, changed rows in the place of one of them, as they were and are in that of all others.
    pub(super) fn text(&self, changed: Option<(usize, &str)>) -> Result<String, Untraceable> {
        let at = changed.map_or(self.0.len(), |(at, _)| at);
        let needed = match changed {
            Some((at, _)) => self.needed(at)?,
            None => Vec::new(),
        };
        let mut text = String::new();
        for (index, relation) in self.0.iter().enumerate() {
            let left = relation.kind == Kind::Left;
            // What is joined on the left without need has no say: the key is not its.
            if left && index != at && !needed.contains(&index) {
                continue;
            }
            let rows = match changed {
                Some((at, rows)) if at == index => rows,
                Some(_) | None => relation.prior.as_str(),
            };
            let on = match index {
                0 => String::new(),
                _ => self.on(index)?,
            };
            let join = match (index, &relation.on) {
                (0, _) => "",
                (_, On::Anything) => " CROSS JOIN ",
                (_, On::SameNames) => " NATURAL JOIN ",
                (_, On::Condition(_) | On::Columns(_)) => " JOIN ",
            };
            text.push_str(&format!("{join}{rows}{}{on}", relation.alias));
        }
        Ok(text)
    }

    /// What is joined on the left and named where the relation is joined, or where such a one is. A row that one of them
    /// has nothing for is equal to no row of the relation, so here all of them are inner joins.
    fn needed(&self, at: usize) -> Result<Vec<usize>, Untraceable> {
        let (mut needed, mut open) = (Vec::new(), vec![at]);
        while let Some(next) = open.pop() {
            let optional = |other: &usize| self.0[*other].kind == Kind::Left && *other < next;
            let parts = match &self.0[next].on {
                On::Condition(condition) => conjuncts(condition),
                On::Columns(_) | On::SameNames if (0..next).any(|other| optional(&other)) => {
                    return Err(Untraceable::because(
                        "a join by names follows a LEFT JOIN: write ON and the relations of its columns",
                    ));
                }
                On::Columns(_) | On::SameNames | On::Anything => Vec::new(),
            };
            let parts: Vec<_> = parts
                .into_iter()
                .filter(|part| self.can_join(next, part))
                .collect();
            let names = |part: &Expr, other: usize| {
                let columns = uses(part).columns;
                columns
                    .iter()
                    .any(|parts| matches!(self.source(parts), Source::Of(of) if of == other))
            };
            for other in (0..next).filter(|other| optional(other)) {
                let naming: Vec<_> = parts.iter().filter(|part| names(part, other)).collect();
                if naming.is_empty() || needed.contains(&other) {
                    continue;
                }
                if !naming.iter().any(|part| is_equation(part)) {
                    return Err(Untraceable::because(format!(
                        "`{}` is joined on the left and then by more than an equation",
                        self.0[other].name.as_ref().map_or("", |name| &name.value)
                    )));
                }
                needed.push(other);
                open.push(other);
            }
        }
        Ok(needed)
    }

    /// What joins one relation: of several conditions those that can be had.
    fn on(&self, at: usize) -> Result<String, Untraceable> {
        let relation = &self.0[at];
        match &relation.on {
            On::Anything => Ok(String::new()),
            On::SameNames if self.is_whole() => Ok(String::new()),
            On::SameNames => Err(Untraceable::because(
                "a NATURAL JOIN is traced only between tables: write its columns",
            )),
            On::Columns(names) => {
                let names: Vec<String> = names.iter().map(Ident::to_string).collect();
                Ok(format!(" USING ({})", names.join(", ")))
            }
            On::Condition(condition) if self.is_whole() => Ok(format!(" ON {condition}")),
            On::Condition(condition) => {
                let all = conjuncts(condition);
                let can = |part: &&Expr| self.can_join(at, part);
                let kept: Vec<String> = all
                    .iter()
                    .copied()
                    .filter(can)
                    .map(|part| format!("({part})"))
                    .collect();
                match kept.is_empty() {
                    true => Err(Untraceable::because(format!(
                        "what joins `{}` cannot be traced: {condition}",
                        relation.name.as_ref().map_or("", |name| &name.value)
                    ))),
                    false => Ok(format!(" ON {}", kept.join(" AND "))),
                }
            }
        }
    }

    /// Whether a condition can stand where relation `at` is joined. One that is joined on the left may name others that
    /// are; no inner join may, as it is made without them.
    fn can_join(&self, at: usize, part: &Expr) -> bool {
        let optional = self.0[at].kind == Kind::Left;
        uses(part)
            .columns
            .iter()
            .all(|parts| match self.source(parts) {
                Source::Of(of) => optional || self.0[of].kind == Kind::Inner,
                Source::Several | Source::Missing(_) => false,
            })
    }

    /// Every place where changed rows come in: the input, and the relations with them.
    pub(super) fn changes(&self) -> Result<Vec<(TableName, String)>, Untraceable> {
        let mut all = Vec::new();
        for (at, relation) in self.0.iter().enumerate() {
            for (input, rows) in &relation.changes {
                let text = self.text(Some((at, rows)));
                all.push((
                    input.clone(),
                    text.map_err(|error| error.of(Some(input.clone())))?,
                ));
            }
        }
        Ok(all)
    }
}
