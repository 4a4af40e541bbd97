//! Groups that can be brought up to date from what changed alone: their counts, sums and bounds of before, and those of
//! the rows that came and went.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, Value,
};

use super::{
    exprs::{self, canonical, uses},
    quoted,
};
use crate::{
    CHANGE, TableName,
    sql::{feed, trace::select},
};

/// How the groups of a query follow from what they were and what changed in one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The input.
    pub input: TableName,
    /// What comes and goes of each group, from the input's change feed.
    changes: String,
    /// The columns, in order.
    pub columns: Vec<Sum>,
}

/// A column of such a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Its name, as it is spelt in SQL.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What a column of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of what the group is told from others by.
    Key,
    /// Its rows.
    Rows,
    /// Its values that are there.
    Count,
    /// Their sum.
    Sum,
    /// The least of them.
    Least,
    /// The greatest of them.
    Most,
}

/// The column that says that a group follows from its own numbers and the changes.
pub const SURE: &str = "_sure";
/// The column that says that a group has rows.
pub const THERE: &str = "_there";

impl Sums {
    /// The groups that changed, as they are now: their columns, then [`SURE`] and [`THERE`]. `this` is the table of
    /// groups as they were; `cast` brings a value into the type of a column.
    #[must_use]
    pub fn statement(&self, this: &TableName, cast: &dyn Fn(&str, String) -> String) -> String {
        let (mut columns, mut doubts, mut on) = (Vec::new(), Vec::new(), Vec::new());
        let mut rows = String::from("0");
        for (at, Sum { name, kind }) in self.columns.iter().enumerate() {
            let (old, plus, minus) = (
                format!("t.{name}"),
                format!("d._p{at}"),
                format!("d._m{at}"),
            );
            let value = match kind {
                Kind::Key => {
                    on.push(format!("(d.{name} IS NOT DISTINCT FROM {old})"));
                    columns.push(format!("d.{name} AS {name}"));
                    continue;
                }
                Kind::Rows | Kind::Count => format!("coalesce({old}, 0) + {plus} - {minus}"),
                Kind::Sum => {
                    // Of values that went and none that came, a sum of 0 may be that of none at all.
                    let sum = format!(
                        "(coalesce({old}, 0) + coalesce({plus}, 0) - coalesce({minus}, 0))"
                    );
                    doubts.push(format!(
                        "{minus} IS NOT NULL AND {plus} IS NULL AND {sum} = 0"
                    ));
                    format!("CASE WHEN {old} IS NULL AND {plus} IS NULL THEN NULL ELSE {sum} END")
                }
                Kind::Least | Kind::Most => {
                    let (beats, reaches) = match kind {
                        Kind::Least => ("<=", "<="),
                        _ => (">=", ">="),
                    };
                    let new =
                        format!("{plus} IS NOT NULL AND ({old} IS NULL OR {plus} {beats} {old})");
                    doubts.push(format!(
                        "{minus} IS NOT NULL AND {minus} {reaches} {old} AND NOT ({new})"
                    ));
                    format!("CASE WHEN {new} THEN {plus} ELSE {old} END")
                }
            };
            if *kind == Kind::Rows {
                rows.clone_from(&value);
            }
            columns.push(format!("{} AS {name}", cast(name, value)));
        }
        let doubts = match doubts.is_empty() {
            true => String::from("FALSE"),
            false => doubts
                .iter()
                .map(|doubt| format!("coalesce({doubt}, FALSE)"))
                .collect::<Vec<_>>()
                .join(" OR "),
        };
        format!(
            "SELECT {}, CASE WHEN {rows} = 0 THEN TRUE WHEN {rows} < 0 THEN FALSE ELSE NOT ({doubts}) END AS {SURE}, \
             {rows} > 0 AS {THERE} FROM (\n{}\n) AS d LEFT JOIN {} AS t ON {}",
            columns.join(", "),
            self.changes,
            quoted(this),
            on.join(" AND ")
        )
    }
}

/// The inputs from whose changes alone the groups of a query follow. `key` is what rows are replaced by.
pub(super) fn sums(query: &Query, key: &[Ident], read: &[TableName]) -> Vec<Sums> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Vec::new();
    };
    let (mut select, unaliased) = (Select::clone(select), select::unaliased(select));
    exprs::shorten(&mut select, &unaliased);
    let select = &select;
    let Some(columns) = columns(select, key) else {
        return Vec::new();
    };
    let once = |table: &TableName| read.iter().filter(|other| *other == table).count() == 1;
    let mut found = Vec::new();
    for at in 0..select.from.len() {
        for relation in 0..=select.from[at].joins.len() {
            found.extend(of(query, select, &columns, (at, relation)).filter(|s| once(&s.input)));
        }
    }
    found
}

/// The columns, when each is a part of the key or a number that follows from those of parts.
fn columns(select: &Select, key: &[Ident]) -> Option<Vec<(Sum, Expr)>> {
    let plain = select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && uses(&select.projection).windows.is_empty();
    if !plain {
        return None;
    }
    let mut columns = Vec::new();
    for item in &select.projection {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, select::label(expr)?),
            SelectItem::ExprWithAlias { expr, alias } => (expr, alias.clone()),
            _ => return None,
        };
        let kind = match uses(expr).aggregates {
            false => Kind::Key,
            true => aggregate(expr)?,
        };
        let name = name.to_string();
        columns.push((Sum { name, kind }, expr.clone()));
    }
    let alone = matches!(select.from.as_slice(), [only] if only.joins.is_empty());
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(list, _) => {
            !list.is_empty() && list.iter().all(|expr| is_output(expr, &columns, alone))
        }
    };
    let keys = columns
        .iter()
        .filter(|(column, _)| column.kind == Kind::Key);
    let whole = keys.clone().count() == key.len()
        && keys
            .clone()
            .all(|(column, _)| key.iter().any(|name| name.to_string() == column.name));
    let counted = columns.iter().any(|(column, _)| column.kind == Kind::Rows);
    (grouped && whole && counted).then_some(columns)
}

/// Whether a group's expression is a column of the key: by number, by name, or as it is.
fn is_output(expr: &Expr, columns: &[(Sum, Expr)], alone: bool) -> bool {
    if let Expr::Value(value) = expr
        && let Value::Number(number, _) = &value.value
    {
        let at = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        return at
            .and_then(|at| columns.get(at))
            .is_some_and(|(column, _)| column.kind == Kind::Key);
    }
    let asked = canonical(expr, alone);
    // A name may be that of a column of an input instead: of one that the output is made of, or, when the output follows
    // from what else is grouped by, of any. Then there is more than one group to a key.
    let is_new = |own: &Sum, of: &Expr| {
        let used = uses(of).columns;
        let mut names = used.iter().filter_map(|parts| parts.last());
        let others = columns
            .iter()
            .filter(|(column, _)| column.kind == Kind::Key && column.name != own.name);
        let others: Vec<String> = others
            .flat_map(|(column, of)| [canonical(of, true), column.name.clone()])
            .collect();
        !names.any(|name| name.value.eq_ignore_ascii_case(&asked))
            && !exprs::is_determined(of, &others, true)
    };
    columns.iter().any(|(column, of)| {
        column.kind == Kind::Key
            && (is_one(of, expr, alone) || column.name == asked && is_new(column, of))
    })
}

/// Whether two expressions are the same one. A column without its relation can only be one, whose relation need not be
/// said; with two of them `a.x` and `b.x` are two columns.
fn is_one(one: &Expr, other: &Expr, alone: bool) -> bool {
    let bare = |expr: &Expr| matches!(expr, Expr::Identifier(_));
    let alone = alone || bare(one) != bare(other);
    canonical(one, alone) == canonical(other, alone)
}

fn aggregate(expr: &Expr) -> Option<Kind> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let bare = function.filter.is_none()
        && function.over.is_none()
        && function.within_group.is_empty()
        && function.null_treatment.is_none();
    let [ObjectNamePart::Identifier(name)] = &function.name.0[..] else {
        return None;
    };
    let argument = argument(function)?;
    let name = name.value.to_ascii_lowercase();
    match (name.as_str(), argument) {
        _ if !bare => None,
        ("count", FunctionArgExpr::Wildcard) => Some(Kind::Rows),
        ("count", FunctionArgExpr::Expr(Expr::Value(value))) if value.value != Value::Null => {
            Some(Kind::Rows)
        }
        ("count", FunctionArgExpr::Expr(_)) => Some(Kind::Count),
        ("sum", FunctionArgExpr::Expr(_)) => Some(Kind::Sum),
        ("min", FunctionArgExpr::Expr(_)) => Some(Kind::Least),
        ("max", FunctionArgExpr::Expr(_)) => Some(Kind::Most),
        _ => None,
    }
}

/// The only argument of a plain call.
fn argument(function: &Function) -> Option<&FunctionArgExpr> {
    match &function.args {
        FunctionArguments::List(list)
            if list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
        {
            match &list.args[..] {
                [FunctionArg::Unnamed(argument)] => Some(argument),
                _ => None,
            }
        }
        FunctionArguments::List(_) | FunctionArguments::None | FunctionArguments::Subquery(_) => {
            None
        }
    }
}

/// The changes of one relation, when it is an input that the rows of others are joined to.
fn of(
    query: &Query,
    select: &Select,
    columns: &[(Sum, Expr)],
    (at, relation): (usize, usize),
) -> Option<Sums> {
    let mut select = select.clone();
    let tables = &mut select.from[at];
    let factor = match relation.checked_sub(1) {
        None => &mut tables.relation,
        Some(join) => {
            let join = &mut tables.joins[join];
            match super::from::joins(join).ok()?.0 {
                super::from::Kind::Inner => &mut join.relation,
                super::from::Kind::Left => return None,
            }
        }
    };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = factor
    else {
        return None;
    };
    let parts: Vec<Ident> = name
        .0
        .iter()
        .map(|part| part.as_ident().cloned())
        .collect::<Option<_>>()?;
    let [schema, table] = parts.as_slice() else {
        return None;
    };
    let input = TableName::new(&schema.value, &table.value).ok()?;
    let fed = feed(&input)?;
    let quote = |part: &str| Ident::with_quote('"', part);
    *name = ObjectName::from(vec![quote(fed.schema()), quote(fed.name())]);
    let own = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: table.clone(),
        columns: Vec::new(),
        at: None,
    });
    if !own.columns.is_empty() {
        return None;
    }
    let change = format!("{}.{CHANGE}", own.name);
    let came = format!("{change} IN ('insert', 'update_after')");
    let went = format!("{change} IN ('delete', 'update_before')");
    let mut items = Vec::new();
    let mut minus = Vec::new();
    for (at, (column, expr)) in columns.iter().enumerate() {
        items.push(match column.kind {
            Kind::Key => format!("{expr} AS {}", column.name),
            _ => {
                minus.push(format!("{expr} FILTER (WHERE {went}) AS _m{at}"));
                format!("{expr} FILTER (WHERE {came}) AS _p{at}")
            }
        });
    }
    items.append(&mut minus);
    let from: Vec<String> = select.from.iter().map(ToString::to_string).collect();
    let with = query
        .with
        .as_ref()
        .map_or_else(String::new, |with| format!("{with} "));
    let condition = select
        .selection
        .as_ref()
        .map_or_else(String::new, |condition| format!(" WHERE {condition}"));
    Some(Sums {
        input,
        changes: format!(
            "{with}SELECT {} FROM {}{condition} {}",
            items.join(", "),
            from.join(", "),
            select.group_by
        ),
        columns: columns.iter().map(|(column, _)| column.clone()).collect(),
    })
}
