//! Columns whose stored names have upper-case letters, named without quotes.
//!
//! The rule: a name written in lower case means the column of exactly that name, if there is one. Otherwise a name
//! without quotes means the one column that equals it but for case; when several do (`"B"` and `"b"`), the statement is
//! refused and told to quote. Quoted names mean what they say. Aliases and columns of common table expressions that
//! the statement defines without quotes are in lower case, as ever; a column selected without an alias keeps its stored
//! spelling.
//!
//! A name before a dot is a relation first, the nearest of that name, and a column with fields only when no relation has
//! it, as in standard SQL.
//!
//! This is a pass over the tree before planning: it puts the stored spelling, quoted, in the place of the name. Scopes
//! are those of SQL: a subquery sees its own relations first, then those around it.

mod exprs;
mod scope;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::ControlFlow,
};

use crate::catalog::SCHEMA;
use domain::{TableName, sql::visit};
use exprs::Exprs;
use scope::{Level, Relation, folded};
use sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias,
    TableFactor, TableWithJoins, Visitor, WildcardAdditionalOptions,
};

/// Columns of the tables a statement reads.
pub(crate) type Columns = BTreeMap<TableName, Vec<String>>;

/// A name that several columns answer to.
#[derive(Debug)]
pub(crate) struct Ambiguous {
    name: Ident,
    spellings: Vec<String>,
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.name.span.start;
        if place.line > 0 {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        let quoted: Vec<String> = self
            .spellings
            .iter()
            .map(|name| Ident::with_quote('"', name).to_string())
            .collect();
        write!(
            f,
            "column {} is ambiguous, write {}",
            self.name.value,
            quoted.join(" or ")
        )
    }
}

type Result<T> = std::result::Result<T, Ambiguous>;

/// Puts stored spellings in the place of names without quotes.
pub(crate) fn resolve(statement: &mut Statement, columns: &Columns) -> Result<()> {
    let spelled = columns.values().flatten().any(|name| *name != folded(name));
    if !spelled && !hides(statement, columns) {
        return Ok(());
    }
    let mut resolver = Resolver {
        tables: columns,
        ctes: Vec::new(),
        recursions: 0,
        levels: Vec::new(),
    };
    match statement {
        Statement::Query(query) => resolver.query(query).map(drop),
        Statement::Explain { statement, .. } => resolve(statement, columns),
        _ => Ok(()),
    }
}

/// Whether a name before a dot is that of a column, too.
fn hides(statement: &Statement, columns: &Columns) -> bool {
    struct Names(BTreeSet<String>, BTreeSet<String>);
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr {
                self.0.extend(parts.first().map(ident));
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            for item in &select.projection {
                if let SelectItem::ExprWithAlias { alias, .. } = item {
                    self.1.insert(ident(alias));
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(BTreeSet::new(), BTreeSet::new());
    let _ = visit(statement, &mut names);
    let Names(before, given) = names;
    !before.is_disjoint(&given) || columns.values().flatten().any(|name| before.contains(name))
}

/// Most recursive expressions inside of each other whose first branches are looked into ahead of the rest: each doubles
/// the work of those inside.
const RECURSIONS_MAX: usize = 4;

struct Resolver<'a> {
    tables: &'a Columns,
    /// Common table expressions in sight whose first branch is looked into.
    recursions: usize,
    /// Common table expressions in sight, the nearest last.
    ctes: Vec<(String, Vec<String>)>,
    /// Relations in sight, the nearest level last.
    levels: Vec<Level>,
}

impl Resolver<'_> {
    /// Resolves a query and answers with the names of its columns, as far as they have one.
    fn query(&mut self, query: &mut Query) -> Result<Vec<String>> {
        let outer = self.ctes.len();
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let name = ident(&cte.alias.name);
            if let SetExpr::SetOperation { left, .. } = cte.query.body.as_ref()
                && self.recursions < RECURSIONS_MAX
            {
                // In case it is recursive: inside it has the columns of its first branch.
                self.recursions += 1;
                let first = self.body(&mut left.clone());
                self.recursions -= 1;
                let first = first?.0;
                self.ctes.push((name.clone(), renamed(first, &cte.alias)));
            }
            let columns = self.query(&mut cte.query)?;
            self.ctes.push((name, renamed(columns, &cte.alias)));
        }
        let (columns, level) = self.body(&mut query.body)?;
        if let Some(order) = &mut query.order_by {
            self.within(
                Level {
                    aliases_first: true,
                    ..level
                },
                |resolver| Exprs::resolve(resolver, order),
            )?;
        }
        self.ctes.truncate(outer);
        Ok(columns)
    }

    fn within<T>(&mut self, level: Level, work: impl FnOnce(&mut Self) -> T) -> T {
        self.levels.push(level);
        let done = work(self);
        self.levels.pop();
        done
    }

    fn body(&mut self, body: &mut SetExpr) -> Result<(Vec<String>, Level)> {
        let columns = match body {
            SetExpr::Select(select) => return self.select(select),
            SetExpr::Query(query) => self.query(query)?,
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left)?.0;
                self.body(right)?;
                columns
            }
            SetExpr::Values(values) => {
                Exprs::resolve(self, values)?;
                Vec::new()
            }
            _ => Vec::new(),
        };
        let level = Level {
            aliases: columns.clone(),
            ..Level::default()
        };
        Ok((columns, level))
    }

    fn select(&mut self, select: &mut Select) -> Result<(Vec<String>, Level)> {
        let mut level = Level::default();
        for table in &mut select.from {
            self.joined(table, &mut level.relations)?;
        }
        self.within(level, |resolver| {
            for table in &mut select.from {
                resolver.constraints(table)?;
            }
            for item in &mut select.projection {
                resolver.item(item)?;
            }
            if let Some(exclude) = &mut select.exclude {
                resolver.excluded(exclude)?;
            }
            Exprs::resolve(resolver, &mut select.selection)?;
            let columns = resolver.outputs(&select.projection);
            if let Some(level) = resolver.levels.last_mut() {
                level.aliases.clone_from(&columns);
            }
            Exprs::resolve(resolver, &mut select.distinct)?;
            Exprs::resolve(resolver, &mut select.group_by)?;
            Exprs::resolve(resolver, &mut select.having)?;
            Exprs::resolve(resolver, &mut select.named_window)?;
            Exprs::resolve(resolver, &mut select.qualify)?;
            let level = resolver.levels.last().cloned().unwrap_or_default();
            Ok((columns, level))
        })
    }

    fn joined(&mut self, table: &mut TableWithJoins, found: &mut Vec<Relation>) -> Result<()> {
        self.factor(&mut table.relation, found)?;
        for join in &mut table.joins {
            self.factor(&mut join.relation, found)?;
        }
        Ok(())
    }

    fn factor(&mut self, factor: &mut TableFactor, found: &mut Vec<Relation>) -> Result<()> {
        // What a lateral relation may also name.
        let beside = |found: &[Relation]| Level::of(found.to_vec());
        let (columns, names, alias) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let (names, columns) = self.table(name);
                (columns, names, alias.as_ref())
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                ..
            } => {
                let columns = match *lateral {
                    true => self.within(beside(found), |resolver| resolver.query(subquery))?,
                    false => self.query(subquery)?,
                };
                (columns, Vec::new(), alias.as_ref())
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                let mut inner = Vec::new();
                self.joined(table_with_joins, &mut inner)?;
                let Some(alias) = alias else {
                    found.append(&mut inner);
                    return Ok(());
                };
                let columns = inner
                    .into_iter()
                    .flat_map(|relation| relation.columns)
                    .collect();
                (columns, Vec::new(), Some(&*alias))
            }
            TableFactor::Table {
                args: Some(args),
                alias,
                ..
            } => {
                self.within(beside(found), |resolver| Exprs::resolve(resolver, args))?;
                (Vec::new(), Vec::new(), alias.as_ref())
            }
            TableFactor::UNNEST {
                alias, array_exprs, ..
            } => {
                self.within(beside(found), |resolver| {
                    Exprs::resolve(resolver, array_exprs)
                })?;
                (Vec::new(), Vec::new(), alias.as_ref())
            }
            _ => return Ok(()),
        };
        found.push(match alias {
            Some(alias) => Relation {
                names: vec![ident(&alias.name)],
                columns: renamed(columns, alias),
            },
            None => Relation { names, columns },
        });
        Ok(())
    }

    /// Names a table goes by, and its columns; no columns when it is not known.
    fn table(&self, name: &ObjectName) -> (Vec<String>, Vec<String>) {
        let parts: Vec<String> = name
            .0
            .iter()
            .filter_map(ObjectNamePart::as_ident)
            .map(ident)
            .collect();
        match parts.as_slice() {
            [cte] => {
                let known = self.ctes.iter().rev().find(|(name, _)| name == cte);
                // A table without a schema is the entry that the statement is over.
                let entry = || self.tables.get(&TableName::new(SCHEMA, cte).ok()?);
                let columns = match known {
                    Some((_, columns)) => Some(columns),
                    None => entry(),
                };
                (parts.clone(), columns.cloned().unwrap_or_default())
            }
            [schema, table] => {
                let known = TableName::new(schema, table).ok();
                let columns = known.and_then(|name| self.tables.get(&name));
                (
                    vec![table.clone(), parts.join(".")],
                    columns.cloned().unwrap_or_default(),
                )
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn constraints(&mut self, table: &mut TableWithJoins) -> Result<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = &mut table.relation
        {
            self.constraints(table_with_joins)?;
        }
        for join in &mut table.joins {
            if let TableFactor::NestedJoin {
                table_with_joins, ..
            } = &mut join.relation
            {
                self.constraints(table_with_joins)?;
            }
            if let JoinOperator::AsOf {
                match_condition, ..
            } = &mut join.join_operator
            {
                Exprs::resolve(self, match_condition)?;
            }
            match constraint(&mut join.join_operator) {
                Some(JoinConstraint::On(condition)) => Exprs::resolve(self, condition)?,
                Some(JoinConstraint::Using(columns)) => {
                    columns
                        .iter_mut()
                        .try_for_each(|column| self.last_part(column))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn item(&mut self, item: &mut SelectItem) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr)
            | SelectItem::ExprWithAlias { expr, .. }
            | SelectItem::ExprWithAliases { expr, .. } => Exprs::resolve(self, expr),
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                self.wildcard(options)
            }
        }
    }

    fn wildcard(&mut self, options: &mut WildcardAdditionalOptions) -> Result<()> {
        if let Some(exclude) = &mut options.opt_exclude {
            self.excluded(exclude)?;
        }
        if let Some(except) = &mut options.opt_except {
            self.column(&mut except.first_element)?;
            except
                .additional_elements
                .iter_mut()
                .try_for_each(|name| self.column(name))?;
        }
        for element in options
            .opt_replace
            .iter_mut()
            .flat_map(|replace| &mut replace.items)
        {
            Exprs::resolve(self, &mut element.expr)?;
            self.column(&mut element.column_name)?;
        }
        Ok(())
    }

    fn excluded(&mut self, exclude: &mut ExcludeSelectItem) -> Result<()> {
        match exclude {
            ExcludeSelectItem::Single(name) => self.last_part(name),
            ExcludeSelectItem::Multiple(names) => {
                names.iter_mut().try_for_each(|name| self.last_part(name))
            }
        }
    }

    fn last_part(&mut self, name: &mut ObjectName) -> Result<()> {
        match name.0.last_mut() {
            Some(ObjectNamePart::Identifier(ident)) => self.column(ident),
            _ => Ok(()),
        }
    }

    /// Names of the columns of a resolved projection.
    fn outputs(&self, projection: &[SelectItem]) -> Vec<String> {
        let relations = self.levels.last().map(|level| level.relations.as_slice());
        let relations = relations.unwrap_or_default();
        let mut names = Vec::new();
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    names.extend(crate::labels::column(expr).map(ident))
                }
                SelectItem::ExprWithAlias { alias, .. } => names.push(ident(alias)),
                SelectItem::ExprWithAliases { aliases, .. } => {
                    names.extend(aliases.iter().map(ident));
                }
                SelectItem::Wildcard(_) => {
                    names.extend(
                        relations
                            .iter()
                            .flat_map(|relation| relation.columns.clone()),
                    );
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let (known, _) = self.table(name);
                    let named = relations.iter().filter(|relation| relation.is_any(&known));
                    names.extend(named.flat_map(|relation| relation.columns.clone()));
                }
                SelectItem::QualifiedWildcard(..) => {}
            }
        }
        names
    }
}

/// A name as the planner reads it.
pub(crate) fn ident(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => folded(&name.value),
    }
}

/// Columns under the names an alias gives them.
fn renamed(mut columns: Vec<String>, alias: &TableAlias) -> Vec<String> {
    for (index, given) in alias.columns.iter().enumerate() {
        match columns.get_mut(index) {
            Some(column) => *column = ident(&given.name),
            None => columns.push(ident(&given.name)),
        }
    }
    columns
}

fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint)
        | JoinOperator::StraightJoin(constraint)
        | JoinOperator::AsOf { constraint, .. } => Some(constraint),
        JoinOperator::CrossApply
        | JoinOperator::OuterApply
        | JoinOperator::ArrayJoin
        | JoinOperator::LeftArrayJoin
        | JoinOperator::InnerArrayJoin => None,
    }
}
