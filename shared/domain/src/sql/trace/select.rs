//! One SELECT: which of its columns a query of changes has, and what it keeps of the rest.

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, NamedWindowExpr, ObjectName, ObjectNamePart, Query, Select,
    SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
    WildcardAdditionalOptions, WindowSpec, WindowType,
};

use super::{
    Untraceable,
    columns::{Column, Columns},
    correlated,
    exprs::{self, canonical, conjuncts, is_determined, reads, uses},
    from::{From, Kind},
    shape::Shape,
    tracer::Tracer,
};
use crate::TableName;

/// A condition of WHERE, once for rows that were or are and once per place where changed rows come in.
struct Condition {
    prior: String,
    changes: Vec<(TableName, String)>,
}

/// What the windows of a SELECT are partitioned by.
struct Partitions {
    of: Vec<Vec<String>>,
    /// Whether there is only one relation, whose name need not be said.
    alone: bool,
}

/// What a SELECT gives out.
struct Outputs {
    columns: Columns,
    /// The items that queries of changes have.
    items: Vec<String>,
}

impl Tracer<'_> {
    pub(super) fn select(&mut self, select: &Select) -> Result<Shape, Untraceable> {
        let mut select = select.clone();
        let fault = |error: Untraceable, of: &Select| error.of(first_input(of));
        plain(&select).map_err(|error| fault(error, &select))?;
        let unaliased = unaliased(&select);
        exprs::shorten(&mut select, &unaliased);
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        let from = self.from(&select.from)?;
        let traced = self.block(&select, &from);
        traced.map_err(|error| fault(error, &select))
    }

    fn block(&mut self, select: &Select, from: &From) -> Result<Shape, Untraceable> {
        let groups = groups(select)?;
        if !groups && (uses(&select.projection).aggregates || uses(&select.having).aggregates) {
            return Err(Untraceable::because(
                "one aggregate over all rows has no key",
            ));
        }
        let partitions = Partitions {
            of: partitions(select, from.0.len() == 1)?,
            alone: from.0.len() == 1,
        };
        let outputs = outputs(select, from, groups, &partitions)?;
        if outputs.items.is_empty() {
            return Err(Untraceable::because(match outputs.columns.named.first() {
                Some(Column {
                    name,
                    missing: Some(why),
                    ..
                }) => format!("`{}` {why}, and it gives out nothing else", name.value),
                _ => "it gives out nothing that can be traced".to_owned(),
            }));
        }
        let natural: Vec<Ident> = match groups || !partitions.of.is_empty() || is_distinct(select) {
            true => outputs.columns.there_by_name().cloned().collect(),
            false => Vec::new(),
        };
        let conditions = self.conditions(select, from)?;
        let items = outputs.items.join(", ");
        let text = |from: &str, conditions: Vec<&str>| {
            let whole: Vec<String> = conditions.iter().map(|part| format!("({part})")).collect();
            let from = match from {
                "" => String::new(),
                from => format!(" FROM {from}"),
            };
            match whole.is_empty() {
                true => format!("SELECT {items}{from}"),
                false => format!("SELECT {items}{from} WHERE {}", whole.join(" AND ")),
            }
        };
        let priors: Vec<&str> = conditions.iter().map(|part| part.prior.as_str()).collect();
        let mut changes: Vec<(TableName, String)> = from
            .changes()?
            .into_iter()
            .map(|(input, from)| (input, text(&from, priors.clone())))
            .collect();
        let rows = from.text(None)?;
        for (at, condition) in conditions.iter().enumerate() {
            for (input, changed) in &condition.changes {
                let mut parts = priors.clone();
                parts[at] = changed;
                changes.push((input.clone(), text(&rows, parts)));
            }
        }
        Ok(Shape {
            prior: text(&rows, priors),
            changes,
            columns: outputs.columns,
            natural,
        })
    }

    /// The conditions of WHERE that queries of changes can have. One that is left out only lets more rows through.
    fn conditions(&mut self, select: &Select, from: &From) -> Result<Vec<Condition>, Untraceable> {
        let parts = select.selection.as_ref().map(conjuncts).unwrap_or_default();
        let mut kept = Vec::new();
        for part in parts {
            if uses(part).subquery {
                kept.extend(self.subquery(part, from)?);
            } else if from.missing(part).is_none() {
                kept.push(Condition {
                    prior: part.to_string(),
                    changes: Vec::new(),
                });
            }
        }
        Ok(kept)
    }

    /// A condition with a subquery: that there is a row for it, or that a value is among its rows.
    fn subquery(&mut self, part: &Expr, from: &From) -> Result<Option<Condition>, Untraceable> {
        let withheld = correlated::outer(part);
        let withheld = withheld.iter().find_map(|parts| from.withheld(parts));
        let (before, query): (String, &Query) = match part {
            Expr::InSubquery {
                expr,
                subquery,
                negated: false,
            } if !uses(expr.as_ref()).subquery => {
                if let Some(why) = from.missing(expr) {
                    return Err(Untraceable::because(format!("`{expr}` {why}")));
                }
                (format!("{expr} IN "), subquery)
            }
            Expr::Exists {
                subquery,
                negated: false,
            } => (String::from("EXISTS "), subquery),
            _ => {
                return match reads(part) {
                    (false, _) if withheld.is_none() && from.missing(part).is_none() => {
                        Ok(Some(Condition {
                            prior: part.to_string(),
                            changes: Vec::new(),
                        }))
                    }
                    (false, _) => Ok(None),
                    (true, input) => Err(Untraceable::because(
                        "a subquery over it decides over rows, other than by IN or EXISTS",
                    )
                    .of(input)),
                };
            }
        };
        if let Some(why) = withheld {
            return Err(Untraceable::because(why));
        }
        let shape = self.query(query)?;
        if !shape.columns.is_full() {
            let input = shape.changes.first().map(|(input, _)| input.clone());
            return Err(Untraceable::because("a subquery aggregates over it").of(input));
        }
        let whole = |text: &str| format!("{before}({text})");
        Ok(Some(Condition {
            prior: whole(&shape.prior),
            changes: shape
                .changes
                .iter()
                .map(|(input, text)| (input.clone(), whole(text)))
                .collect(),
        }))
    }
}

/// Refuses what is not traced.
fn plain(select: &Select) -> Result<(), Untraceable> {
    let odd = !select.lateral_views.is_empty()
        || select.prewhere.is_some()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty()
        || select.value_table_mode.is_some()
        || select.exclude.is_some();
    if select.top.is_some() {
        return Err(Untraceable::because(
            "TOP lets every row decide over every other",
        ));
    }
    let elsewhere = [
        reads(&select.projection),
        reads(&select.group_by),
        reads(&select.having),
        reads(&select.qualify),
        reads(&select.distinct),
        reads(&select.named_window),
    ];
    if let Some((_, input)) = elsewhere.into_iter().find(|(any, _)| *any) {
        return Err(Untraceable::because("a subquery over it stands outside of WHERE").of(input));
    }
    match odd {
        true => Err(Untraceable::because("a clause of it is not traced")),
        false => Ok(()),
    }
}

/// Whether rows are grouped.
fn groups(select: &Select) -> Result<bool, Untraceable> {
    let (given, modifiers) = match &select.group_by {
        GroupByExpr::All(modifiers) => (None, modifiers),
        GroupByExpr::Expressions(list, modifiers) => (Some(list), modifiers),
    };
    let totals = |expr: &Expr| match expr {
        Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_) => true,
        Expr::Tuple(parts) => parts.is_empty(),
        _ => false,
    };
    if !modifiers.is_empty() || given.is_some_and(|list| list.iter().any(totals)) {
        return Err(Untraceable::because(
            "totals over groups (ROLLUP, CUBE, GROUPING SETS) are not traced",
        ));
    }
    Ok(given.is_none_or(|list| !list.is_empty()))
}

fn is_distinct(select: &Select) -> bool {
    matches!(select.distinct, Some(Distinct::Distinct))
}

/// Per window what it is partitioned by, as compared. DISTINCT ON is one more.
fn partitions(select: &Select, alone: bool) -> Result<Vec<Vec<String>>, Untraceable> {
    let canonical = |expr: &Expr| canonical(expr, alone);
    let mut windows = uses(&select.projection).windows;
    windows.extend(uses(&select.qualify).windows);
    let mut all = Vec::new();
    for window in &windows {
        let spec = spec(select, window)?;
        all.push(spec.partition_by.iter().map(canonical).collect());
    }
    if let Some(Distinct::On(exprs)) = &select.distinct {
        all.push(exprs.iter().map(canonical).collect());
    }
    Ok(all)
}

fn spec<'a>(select: &'a Select, window: &'a WindowType) -> Result<&'a WindowSpec, Untraceable> {
    let unknown = || Untraceable::because("a window of it is not known");
    let name = match window {
        WindowType::WindowSpec(spec) => match &spec.window_name {
            None => return Ok(spec),
            Some(name) => name,
        },
        WindowType::NamedWindow(name) => name,
    };
    let mut named = select.named_window.iter();
    let found = named.find(|window| window.0.value.eq_ignore_ascii_case(&name.value));
    match found.map(|window| &window.1) {
        Some(NamedWindowExpr::WindowSpec(spec)) if spec.window_name.is_none() => Ok(spec),
        _ => Err(unknown()),
    }
}

/// The columns a SELECT gives out, and why those are missing that no query of changes has.
fn outputs(
    select: &Select,
    from: &From,
    groups: bool,
    partitions: &Partitions,
) -> Result<Outputs, Untraceable> {
    let mut outputs = Outputs {
        columns: Columns {
            named: Vec::new(),
            open: false,
            ordered: true,
        },
        items: Vec::new(),
    };
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let missing = missing(expr, from, partitions);
                match label(expr) {
                    Some(name) => outputs.take(name, item.to_string(), missing),
                    None => {
                        let name = Ident::with_quote('"', expr.to_string());
                        outputs.take(name, item.to_string(), missing);
                        outputs
                            .columns
                            .named
                            .iter_mut()
                            .next_back()
                            .into_iter()
                            .for_each(|c| c.nameless = true);
                    }
                }
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let missing = missing(expr, from, partitions);
                outputs.take(alias.clone(), item.to_string(), missing);
            }
            SelectItem::Wildcard(options) if !groups => {
                let plain = *options == WildcardAdditionalOptions::default();
                outputs.wildcard(item, None, plain, from, partitions)?;
            }
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) if !groups => {
                let plain = *options == WildcardAdditionalOptions::default();
                outputs.wildcard(item, last(name), plain, from, partitions)?;
            }
            _ => {
                return Err(Untraceable::because(format!("`{item}` is not traced")));
            }
        }
    }
    Ok(outputs)
}

impl Outputs {
    fn take(&mut self, name: Ident, item: String, missing: Option<String>) {
        if missing.is_none() {
            self.items.push(item);
        }
        self.columns.named.push(Column {
            name,
            missing,
            nameless: false,
        });
    }

    /// All columns of a relation, or of all.
    fn wildcard(
        &mut self,
        item: &SelectItem,
        of: Option<Ident>,
        plain: bool,
        from: &From,
        partitions: &Partitions,
    ) -> Result<(), Untraceable> {
        self.columns.ordered = false;
        if !partitions.of.is_empty() {
            // Of all columns only what every window is partitioned by is there.
            let (first, others) = partitions.of.split_at(1);
            let common = first.iter().flatten().filter(|name| {
                others.iter().all(|other| other.contains(name))
                    && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            });
            for name in common {
                let name = Ident::new(name.as_str());
                let expr = Expr::Identifier(name.clone());
                let missing = missing(&expr, from, partitions);
                self.take(name.clone(), name.to_string(), missing);
            }
            return Ok(());
        }
        if from.is_whole() {
            self.items.push(item.to_string());
            self.columns.open = true;
            return Ok(());
        }
        if !plain {
            return Err(Untraceable::because(format!("`{item}` is not traced")));
        }
        let is_asked = |name: &Option<Ident>| match (&of, name) {
            (None, _) => true,
            (Some(of), Some(name)) => of.value.eq_ignore_ascii_case(&name.value),
            (Some(_), None) => false,
        };
        for relation in from.0.iter().filter(|relation| is_asked(&relation.name)) {
            if relation.kind == Kind::Left {
                continue;
            }
            let Some(name) = &relation.name else {
                return Err(Untraceable::because("a relation of it has no name"));
            };
            self.items.push(format!("{name}.*"));
            self.columns.open |= relation.columns.open;
            self.columns.named.extend(relation.columns.named.clone());
        }
        Ok(())
    }
}

/// Why queries of changes do not have an output column; none when they do.
fn missing(expr: &Expr, from: &From, partitions: &Partitions) -> Option<String> {
    let made = uses(expr);
    if made.aggregates {
        return Some("is an aggregate".to_owned());
    }
    if !made.windows.is_empty() {
        return Some("is a window function".to_owned());
    }
    let determined = |by: &Vec<String>| is_determined(expr, by, partitions.alone);
    if !partitions.of.iter().all(determined) {
        return Some("is not what its windows are partitioned by".to_owned());
    }
    from.missing(expr)
}

/// The name of a column that is given none: that of the column it is, or casts.
pub(super) fn label(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Cast { expr, .. } | Expr::Nested(expr) => label(expr),
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(parts) => parts.last().cloned(),
        _ => None,
    }
}

fn last(name: &ObjectName) -> Option<Ident> {
    name.0.last().and_then(ObjectNamePart::as_ident).cloned()
}

/// Tables that go by no other name, schema and name.
pub(super) fn unaliased(select: &Select) -> Vec<(Ident, Ident)> {
    let joined = select.from.iter().flat_map(|tables| {
        std::iter::once(&tables.relation).chain(tables.joins.iter().map(|join| &join.relation))
    });
    joined
        .filter_map(|factor| match factor {
            TableFactor::Table {
                name, alias: None, ..
            } => match &name.0[..] {
                [schema, table] => Some((schema.as_ident()?.clone(), table.as_ident()?.clone())),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

/// The first table that a SELECT names, for messages.
fn first_input(select: &Select) -> Option<TableName> {
    reads(&select.from).1
}
