//! From queries to shapes: CTEs, set operations, tables and views.

use sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, SetExpr, Statement, TableAlias, TableFactor,
    TableWithJoins,
};

use super::{
    Role, Untraceable, changed,
    columns::{Columns, is_same},
    exprs,
    from::{From, Kind, On, Relation, joins},
    prior, quoted,
    shape::Shape,
};
use crate::{TableName, sql::parse};

/// Walks a query.
pub(super) struct Tracer<'a> {
    role: &'a dyn Fn(&TableName) -> Role,
    /// CTEs in sight, the nearest last.
    ctes: Vec<(Ident, Shape)>,
}

/// What a name in FROM stands for.
enum Named {
    Shape(Shape),
    Table(TableName),
}

impl<'a> Tracer<'a> {
    pub(super) fn new(role: &'a dyn Fn(&TableName) -> Role) -> Self {
        Self {
            role,
            ctes: Vec::new(),
        }
    }

    pub(super) fn query(&mut self, query: &Query) -> Result<Shape, Untraceable> {
        if query.limit_clause.is_some() || query.fetch.is_some() {
            return Err(
                Untraceable::because("LIMIT lets every row decide over every other")
                    .of(self.first_input(query)),
            );
        }
        if !query.pipe_operators.is_empty() || query.for_clause.is_some() {
            return Err(Untraceable::because("pipes are not traced"));
        }
        let outer = self.ctes.len();
        let shape = self.with(query).and_then(|()| self.body(&query.body));
        self.ctes.truncate(outer);
        shape?.bounded()
    }

    fn with(&mut self, query: &Query) -> Result<(), Untraceable> {
        let Some(with) = &query.with else {
            return Ok(());
        };
        if with.recursive {
            return Err(Untraceable::because("WITH RECURSIVE is not traced"));
        }
        for cte in &with.cte_tables {
            let shape = self.query(&cte.query)?.renamed(&columns(&cte.alias))?;
            self.ctes.push((cte.alias.name.clone(), shape));
        }
        Ok(())
    }

    fn body(&mut self, body: &SetExpr) -> Result<Shape, Untraceable> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation {
                left,
                op,
                set_quantifier,
                right,
            } => {
                let (left, right) = (self.body(left)?, self.body(right)?);
                left.combined(*op, *set_quantifier, right)?.bounded()
            }
            SetExpr::Values(values) => Ok(Shape {
                changes: Vec::new(),
                prior: values.to_string(),
                columns: Columns::any(),
                natural: Vec::new(),
            }),
            SetExpr::Insert(_)
            | SetExpr::Update(_)
            | SetExpr::Delete(_)
            | SetExpr::Merge(_)
            | SetExpr::Table(_) => Err(Untraceable::because("it is no SELECT")),
        }
    }

    /// The relations of FROM.
    pub(super) fn from(&mut self, from: &[TableWithJoins]) -> Result<From, Untraceable> {
        let mut relations = Vec::new();
        for tables in from {
            relations.push(self.relation(&tables.relation, Kind::Inner, On::Anything)?);
            for join in &tables.joins {
                let (kind, on) =
                    joins(join).map_err(|error| error.of(self.input_of(&join.relation)))?;
                relations.push(self.relation(&join.relation, kind, on)?);
            }
        }
        Ok(From(relations))
    }

    fn relation(
        &mut self,
        factor: &TableFactor,
        kind: Kind,
        on: On,
    ) -> Result<Relation, Untraceable> {
        let (shape, alias, own) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let own = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
                match self.named(name)? {
                    Named::Shape(shape) => (shape, alias, own),
                    Named::Table(table) => {
                        return base(&table, alias.as_ref(), own, kind, on);
                    }
                }
            }
            TableFactor::Table {
                args: Some(args),
                alias,
                ..
            } if exprs::uses(args).columns.is_empty() => {
                // A function of constants: nothing about it ever changes.
                return Ok(Relation {
                    name: alias.as_ref().map(|alias| alias.name.clone()),
                    alias: String::new(),
                    columns: Columns::any(),
                    changes: Vec::new(),
                    prior: factor.to_string(),
                    kind,
                    on,
                });
            }
            TableFactor::Derived {
                lateral: false,
                subquery,
                alias,
                sample: None,
            } => (self.query(subquery)?, alias, None),
            _ => {
                return Err(Untraceable::because(format!(
                    "`{factor}` in FROM is not traced"
                )));
            }
        };
        let shape = match alias {
            Some(alias) => shape.renamed(&columns(alias))?,
            None => shape,
        };
        let name = alias.as_ref().map(|alias| alias.name.clone()).or(own);
        let in_brackets = |text: &str| format!("({text})");
        Ok(Relation {
            alias: name
                .as_ref()
                .map_or_else(String::new, |name| format!(" AS {name}")),
            name,
            changes: shape
                .changes
                .iter()
                .map(|(input, text)| (input.clone(), in_brackets(text)))
                .collect(),
            prior: in_brackets(&shape.prior),
            columns: shape.columns,
            kind,
            on,
        })
    }

    /// What a name stands for.
    fn named(&mut self, name: &ObjectName) -> Result<Named, Untraceable> {
        if let [one] = &name.0[..]
            && let Some(one) = one.as_ident()
            && let Some((_, shape)) = self.ctes.iter().rev().find(|(cte, _)| is_same(cte, one))
        {
            return Ok(Named::Shape(shape.clone()));
        }
        let table = table(name)
            .ok_or_else(|| Untraceable::because(format!("`{name}` is no table of the lake")))?;
        match (self.role)(&table) {
            Role::Input => Ok(Named::Table(table)),
            Role::Untold(why) => Err(Untraceable::because(why).of(Some(table))),
            Role::View(text) => {
                let statement =
                    parse(&text).map_err(|error| Untraceable::because(error.to_string()))?;
                exprs::is_repeatable(&statement).map_err(|error| error.of(Some(table.clone())))?;
                let Statement::Query(query) = &statement else {
                    return Err(Untraceable::because("it is no SELECT").of(Some(table)));
                };
                // A view sees no CTE of the query that names it.
                let outer = std::mem::take(&mut self.ctes);
                let shape = self.query(query);
                self.ctes = outer;
                shape.map(Named::Shape)
            }
        }
    }

    /// The first table with rows that a query names, for messages.
    pub(super) fn first_input(&self, query: &Query) -> Option<TableName> {
        let statement = Statement::Query(Box::new(query.clone()));
        let tables = crate::sql::tables(&statement).unwrap_or_default();
        tables.into_iter().next()
    }

    fn input_of(&self, factor: &TableFactor) -> Option<TableName> {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => table(name),
            _ => None,
        }
    }
}

/// An input itself.
fn base(
    table: &TableName,
    alias: Option<&TableAlias>,
    own: Option<Ident>,
    kind: Kind,
    on: On,
) -> Result<Relation, Untraceable> {
    let long = || Untraceable::because("its name is too long").of(Some(table.clone()));
    let changed = changed(table).ok_or_else(long)?;
    let prior = prior(table).ok_or_else(long)?;
    let name = alias.map(|alias| alias.name.clone()).or(own);
    let given = alias.map(columns).unwrap_or_default();
    let list: Vec<String> = given.iter().map(Ident::to_string).collect();
    let list = match list.is_empty() {
        true => String::new(),
        false => format!(" ({})", list.join(", ")),
    };
    Ok(Relation {
        alias: name
            .as_ref()
            .map_or_else(String::new, |name| format!(" AS {name}{list}")),
        name,
        columns: Columns::any()
            .renamed(&given)
            .map(|renamed| match given.is_empty() {
                true => Columns::any(),
                false => renamed,
            })?,
        changes: vec![(table.clone(), quoted(&changed))],
        prior: quoted(&prior),
        kind,
        on,
    })
}

fn columns(alias: &TableAlias) -> Vec<Ident> {
    let names = alias.columns.iter();
    names.map(|column| column.name.clone()).collect()
}

/// A name of two parts as a table's.
fn table(name: &ObjectName) -> Option<TableName> {
    let parts: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
    match parts?.as_slice() {
        [schema, table] => TableName::new(&schema.value, &table.value).ok(),
        _ => None,
    }
}
