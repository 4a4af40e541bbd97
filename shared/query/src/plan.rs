//! From a statement's text to a plan: parse, find what it names, resolve names, let DataFusion plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use datafusion::{
    catalog::view::ViewTable,
    common::{DataFusionError, ParamValues, ScalarValue},
    execution::{FunctionRegistry, SessionState, context::SQLOptions},
    logical_expr::{LogicalPlan, ScalarUDF},
    sql::parser::Statement as DfStatement,
};
use domain::{CHANGE, SEQUENCE, TableName, sql};
use ports::{
    Kind, Result,
    query::{Catalog, Parameter, RowOrder},
    tables::{Pin, Scan},
};
use sqlparser::ast::Statement;

use crate::{
    catalog::{Named, Providers},
    decimals,
    entry::EntryTable,
    failure::Doing,
    feed::FeedTable,
    labels::label_casts,
    landing::LandingTable,
    model::{Lake, ModelTable},
    names,
    sequenced::{self, Told},
    shorthand, unions,
};

/// Plans statements over one catalog.
pub(crate) struct Planner<'a> {
    pub(crate) base: &'a SessionState,
    pub(crate) lake: &'a Arc<Lake>,
    pub(crate) catalog: &'a Catalog,
    /// The entry that the statement is over; then it reads nothing else.
    pub(crate) entry: Option<&'a Scan>,
    pub(crate) doing: Doing<'a>,
    /// The function that asks for affected rows, when the catalog has some.
    pub(crate) affected: Option<Arc<ScalarUDF>>,
}

/// A plan and the state to run it with.
pub(crate) struct Planned {
    pub(crate) state: SessionState,
    pub(crate) plan: LogicalPlan,
    pub(crate) last: Last,
    /// Whether the column `_seq` of a live model is not the sequence of one table.
    pub(crate) foreign: bool,
}

/// What tells which row came last.
pub(crate) enum Last {
    /// Their order, unless nobody asked.
    Order,
    /// Their last column, which nobody asked for.
    Arrival,
    /// Nothing: the columns that no two rows have in common, when any are known.
    Unknown(Option<Vec<String>>),
}

impl Planner<'_> {
    /// Plans a statement with its parameters bound.
    pub(crate) async fn plan(&self, asked: &ports::query::Statement) -> Result<Planned> {
        let parameters = &asked.parameters;
        let (statement, names) = self.parse(&asked.sql, None)?;
        let mut providers = Providers::new();
        for view in self.order(&names)? {
            self.view(&view, &mut providers).await?;
        }
        let in_sequence = |name: &TableName| {
            let feed = self.catalog.feeds.get(name);
            name.is_landing() || feed.is_some_and(|feed| feed.in_sequence)
        };
        let reads_landing = providers.keys().chain(&names).any(in_sequence);
        let (state, plan) = self.logical(statement, &names, &mut providers).await?;
        let mut state = state;
        // Exchanging rows between partitions would mix the sequence order of a landing table.
        state
            .config_mut()
            .options_mut()
            .optimizer
            .enable_round_robin_repartition = !reads_landing;
        let plan = if parameters.is_empty() {
            plan
        } else {
            let values = parameters
                .iter()
                .map(|value| scalar(value).into())
                .collect();
            plan.with_param_values(ParamValues::List(values))
                .map_err(|e| self.doing.failed(e))?
        };
        read_only(&plan).map_err(|error| self.doing.failed(error))?;
        let mut foreign = false;
        if let Some(watermarks) = &asked.watermarks {
            let misread = sequenced::misread(&plan, watermarks);
            if let Some(told) = misread.map_err(|error| self.doing.failed(error))? {
                return Err(self.doing.error(Kind::Invalid).because(told));
            }
            foreign = sequenced::is_foreign(&plan);
        }
        let (plan, last) = self.ordered(plan, asked)?;
        Ok(Planned {
            state,
            plan,
            last,
            foreign,
        })
    }

    /// A plan whose rows come in the order that is asked for, and what tells which of them is the last.
    fn ordered(
        &self,
        plan: LogicalPlan,
        asked: &ports::query::Statement,
    ) -> Result<(LogicalPlan, Last)> {
        if asked.order == RowOrder::Any {
            return Ok((plan, Last::Order));
        }
        self.told(plan, asked)
            .map_err(|error| self.doing.failed(error))?
            .ok_or_else(|| self.unordered())
    }

    /// None when there is no order that rows could be brought into, and there has to be.
    fn told(
        &self,
        plan: LogicalPlan,
        asked: &ports::query::Statement,
    ) -> std::result::Result<Option<(LogicalPlan, Last)>, DataFusionError> {
        let is_landed = self.catalog.feeds.is_empty() && sequenced::is_as_landed(&plan);
        let told = Told::of(&plan)?;
        // A watermark of another table says nothing of when these came.
        let drivers = asked.watermarks.iter().flat_map(BTreeMap::keys);
        let only = told.as_ref().and_then(Told::table);
        let only = only.filter(|only| drivers.clone().all(|table| table == only));
        let is_one = drivers.count() == 1;
        let is_fit = |told: &Told| match asked.order {
            RowOrder::Sequence => only.is_some() || told.is_pure() && !is_one,
            _ => true,
        };
        let Some(told) = told.filter(is_fit) else {
            let last = match is_landed {
                true => Last::Order,
                false => Last::Unknown(sequenced::unique(&plan)),
            };
            return Ok((asked.order != RowOrder::Sequence).then_some((plan, last)));
        };
        let told = match asked.order {
            RowOrder::Known | RowOrder::Sequence => told.sorted()?,
            RowOrder::Any | RowOrder::Told => told,
        };
        Ok(Some(if only.is_none() {
            let unique = sequenced::unique(&plan);
            (told.asked()?, Last::Unknown(unique))
        } else if is_landed && !told.is_misled() {
            (told.asked()?, Last::Order)
        } else {
            (told.with_arrival()?, Last::Arrival)
        }))
    }

    /// What a query is told whose rows have no order, where one is needed.
    fn unordered(&self) -> ports::Error {
        let told = format!(
            "in which order its rows came in cannot be told, and change events are taken in that order: have it \
             yield a column {SEQUENCE}, such as the {SEQUENCE} of the events' table, or max({SEQUENCE}) AS {SEQUENCE} \
             of a group"
        );
        self.doing.error(Kind::Invalid).because(told)
    }

    fn parse(&self, text: &str, view: Option<&TableName>) -> Result<(Statement, Vec<TableName>)> {
        let invalid = |error: sql::SqlError| {
            let error = match view {
                Some(view) => format!("view {view}: {error}"),
                None => error.to_string(),
            };
            self.doing.error(Kind::Invalid).because(error)
        };
        let text = crate::alias::sequence(text).map_err(invalid)?;
        let statement = sql::parse(&text).map_err(invalid)?;
        let names = match self.entry {
            Some(_) => sql::tables_over_entry(&statement),
            None => sql::tables(&statement),
        };
        Ok((statement, names.map_err(invalid)?))
    }

    /// The views that `names` need, each after the views it reads itself.
    fn order(&self, names: &[TableName]) -> Result<Vec<TableName>> {
        let mut done = Vec::new();
        let mut reads: BTreeMap<TableName, Vec<TableName>> = BTreeMap::new();
        let mut open: BTreeSet<TableName> = BTreeSet::new();
        let mut stack: Vec<(TableName, bool)> = names
            .iter()
            .rev()
            .map(|name| (name.clone(), false))
            .collect();
        while let Some((name, visited)) = stack.pop() {
            if visited {
                open.remove(&name);
                done.push(name);
                continue;
            }
            let Some(text) = self.catalog.views.get(&name) else {
                continue;
            };
            if reads.contains_key(&name) {
                if open.contains(&name) {
                    let told = format!("view {name} reads itself");
                    return Err(self.doing.error(Kind::Invalid).because(told));
                }
                continue;
            }
            let (_, inner) = self.parse(text, Some(&name))?;
            open.insert(name.clone());
            stack.push((name.clone(), true));
            stack.extend(inner.iter().rev().map(|name| (name.clone(), false)));
            reads.insert(name, inner);
        }
        Ok(done)
    }

    async fn view(&self, name: &TableName, providers: &mut Providers) -> Result<()> {
        let Some(text) = self.catalog.views.get(name) else {
            return Ok(());
        };
        let (statement, names) = self.parse(text, Some(name))?;
        let (_, plan) = self.logical(statement, &names, providers).await?;
        read_only(&plan).map_err(|error| self.doing.failed(error))?;
        providers.insert(name.clone(), Arc::new(ViewTable::new(plan, None)));
        Ok(())
    }

    async fn logical(
        &self,
        mut statement: Statement,
        names: &[TableName],
        providers: &mut Providers,
    ) -> Result<(SessionState, LogicalPlan)> {
        for name in names {
            if !providers.contains_key(name) {
                let provider = self.table(name).await?;
                providers.insert(name.clone(), provider);
            }
        }
        let columns = names.iter().filter_map(|name| {
            let schema = providers.get(name)?.schema();
            let columns = schema.fields().iter().map(|field| field.name().clone());
            Some((name.clone(), columns.collect()))
        });
        names::resolve(&mut statement, &columns.collect()).map_err(|ambiguous| {
            self.doing
                .error(Kind::Invalid)
                .because(ambiguous.to_string())
        })?;
        unions::name_apart(&mut statement);
        label_casts(&mut statement);
        shorthand::write_out(&mut statement);
        decimals::keep_digits(&mut statement);
        let named: Providers = names
            .iter()
            .filter_map(|name| Some((name.clone(), Arc::clone(providers.get(name)?))))
            .collect();
        let mut state = self.base.clone();
        state.register_catalog_list(Arc::new(Named(Arc::new(named))));
        if let Some(affected) = &self.affected {
            state
                .register_udf(Arc::clone(affected))
                .map_err(|error| self.doing.failed(error))?;
        }
        state.mark_start_execution();
        let statement = DfStatement::Statement(Box::new(statement));
        let plan = state.statement_to_plan(statement).await;
        Ok((state, plan.map_err(|error| self.doing.failed(error))?))
    }

    async fn table(&self, name: &TableName) -> Result<Arc<dyn datafusion::catalog::TableProvider>> {
        if let Some(scan) = self.entry {
            let (scan, lake) = (scan.clone(), Arc::clone(self.lake));
            return Ok(Arc::new(EntryTable { scan, lake }));
        }
        if let Some(feed) = self.catalog.feeds.get(name) {
            let table = FeedTable::new(Arc::clone(feed), Arc::clone(self.lake));
            return Ok(Arc::new(table.ok_or_else(|| {
                let of = sql::fed_by(name).unwrap_or_else(|| name.clone());
                let told = format!(
                    "it has a column {CHANGE} of its own, which is what its change feed adds: give it another name"
                );
                ports::Error::new(Kind::Invalid, "read changes of", of).because(told)
            })?));
        }
        let Some(pin) = self.catalog.tables.get(name) else {
            let known = self.catalog.tables.keys().chain(self.catalog.views.keys());
            let told = format!(
                "there is no table {name}{}",
                crate::nearest::hint(name, known)
            );
            return Err(ports::Error::new(Kind::NotFound, "find table", name).because(told));
        };
        let (pin, lake) = (pin.clone(), Arc::clone(self.lake));
        Ok(match &pin {
            Pin::Landing {
                schema, through, ..
            } => {
                let (schema, through) = (Arc::clone(schema), *through);
                if schema.column_with_name(SEQUENCE).is_none() {
                    let told = format!("its schema has no column {SEQUENCE}");
                    return Err(ports::Error::new(Kind::Corrupt, "read table", name).because(told));
                }
                Arc::new(LandingTable {
                    pin,
                    through,
                    schema,
                    lake,
                })
            }
            Pin::Model { .. } => {
                let schema = lake.tables.schema(&pin).await?;
                Arc::new(ModelTable { pin, schema, lake })
            }
        })
    }
}

/// A second lock behind `domain::sql::parse`: the plan itself neither writes nor changes settings.
fn read_only(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(plan)
}

fn scalar(value: &Parameter) -> ScalarValue {
    match value {
        Parameter::Null => ScalarValue::Null,
        Parameter::Boolean(value) => ScalarValue::Boolean(Some(*value)),
        Parameter::Integer(value) => ScalarValue::Int64(Some(*value)),
        Parameter::Float(value) => ScalarValue::Float64(Some(*value)),
        Parameter::Text(value) => ScalarValue::Utf8(Some(value.clone())),
    }
}
