//! A pretend query engine: it knows the queries of the simulated models and no others, and answers them in microseconds.
//! Some seeds use the real one instead.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use domain::{TableName, sql};
use futures::{StreamExt, TryStreamExt};
use ports::{
    Error, Kind, Objects, Query, Result, Tables,
    query::{Catalog, Statement},
    tables::Rows,
};

use crate::{
    frame::{self, Cell},
    gate::{Gate, silence},
    models::Shape,
    scheduler::{Call, Verdict},
};

/// The pretend engine of one process.
#[derive(Debug)]
pub(crate) struct Pretend {
    pub(crate) tables: Arc<dyn Tables>,
    pub(crate) objects: Objects,
}

fn unknown(text: &str) -> Error {
    Error::new(Kind::Invalid, "run", text).because("the pretend engine knows no such query")
}

/// The model whose query a text is, and the watermarks in it.
fn read(text: &str) -> Result<(Shape, Vec<u64>)> {
    let fed = |table: &str| {
        let table = table.parse::<TableName>().ok()?;
        sql::feed(&table)
    };
    let written = |text: &str, name: &TableName| {
        let plain = text.replace('"', "");
        plain.contains(&name.to_string())
    };
    let has = |part: &str| text.contains(part);
    let is_fed = |table: &str| fed(table).is_some_and(|name| written(text, &name));
    let shape = if is_fed("landing.refunds") {
        Shape::Moves
    } else if is_fed("silver.orders") {
        Shape::Groups
    } else if is_fed("silver.users") {
        Shape::Heads
    } else if has("silver.names") {
        Shape::Pairs
    } else if has("silver.moves") {
        Shape::Ledger
    } else if has("landing.users") {
        Shape::Users
    } else if has("landing.orders") && has("amt") {
        Shape::Orders
    } else if has("landing.orders") {
        Shape::Names
    } else {
        return Err(unknown(text));
    };
    let marks = text.split("_seq > ").skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    Ok((shape, marks.collect()))
}

fn columns(shape: Shape) -> Vec<(&'static str, DataType)> {
    let names: &[&str] = match shape {
        Shape::Users | Shape::Members => &["op", "lsn", "item", "grp", "amt", "_seq"],
        other => other.columns(),
    };
    let kind = |name: &str| match name {
        "op" => DataType::Utf8,
        _ => DataType::Int64,
    };
    names.iter().map(|name| (*name, kind(name))).collect()
}

impl Pretend {
    async fn table(
        &self,
        catalog: &Catalog,
        name: &str,
        after: u64,
        columns: &[&str],
    ) -> Result<frame::Rows> {
        let pin = pinned(catalog, name)?;
        frame::table(&*self.tables, &self.objects, pin, after, columns).await
    }

    async fn rows(&self, shape: Shape, marks: &[u64], catalog: &Catalog) -> Result<frame::Rows> {
        let mark = |at: usize| marks.get(at).copied().unwrap_or(0);
        let after = |rows: frame::Rows, at: usize, mark: u64| -> frame::Rows {
            let newer = |row: &Vec<Cell>| u64::try_from(row[at].int()).is_ok_and(|seq| seq > mark);
            rows.into_iter().filter(newer).collect()
        };
        let names: Vec<&str> = columns(shape).into_iter().map(|(name, _)| name).collect();
        Ok(match shape {
            Shape::Orders | Shape::Names => {
                self.table(catalog, "landing.orders", mark(0), &names)
                    .await?
            }
            Shape::Users | Shape::Members => {
                self.table(catalog, "landing.users", mark(0), &names)
                    .await?
            }
            Shape::Moves => {
                let mut rows = self.fed(catalog, "landing.orders", &names).await?;
                for mut row in self.fed(catalog, "landing.refunds", &names).await? {
                    row[1] = Cell::Int(-row[1].int());
                    rows.push(row);
                }
                rows
            }
            Shape::Ledger => after(
                self.table(catalog, "silver.moves", 0, &names).await?,
                2,
                mark(0),
            ),
            Shape::Pairs => {
                let orders = self.table(catalog, "silver.orders", 0, &["item", "amt", "_seq"]);
                let orders = orders.await?;
                let named = self.table(catalog, "silver.names", 0, &["item", "grp", "_seq"]);
                let named: BTreeMap<Cell, Vec<Cell>> = named
                    .await?
                    .into_iter()
                    .map(|row| (row[0].clone(), row))
                    .collect();
                let newer = |cell: &Cell, mark| u64::try_from(cell.int()).is_ok_and(|s| s > mark);
                let pair = |row: Vec<Cell>| {
                    let name = named.get(&row[0])?;
                    let is_new = newer(&row[2], mark(0)) || newer(&name[2], mark(1));
                    is_new.then(|| vec![row[0].clone(), row[1].clone(), name[1].clone()])
                };
                orders.into_iter().filter_map(pair).collect()
            }
            Shape::Groups => self.totals(catalog, "silver.orders").await?,
            Shape::Heads => self.totals(catalog, "silver.users").await?,
            Shape::Sums | Shape::Tallies => return Err(unknown(shape.name())),
        })
    }

    async fn fed(&self, catalog: &Catalog, name: &str, columns: &[&str]) -> Result<frame::Rows> {
        let table = name.parse::<TableName>().map_err(|_| unknown(name))?;
        let feed = sql::feed(&table).and_then(|feed| catalog.feeds.get(&feed));
        let feed = feed.ok_or_else(|| unknown(name))?;
        let rows = frame::feed(&self.objects, feed, columns).await?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    async fn totals(&self, catalog: &Catalog, name: &str) -> Result<frame::Rows> {
        let mut totals: BTreeMap<Cell, (i64, i64)> = BTreeMap::new();
        for row in self.fed(catalog, name, &["grp"]).await? {
            totals.insert(row[0].clone(), (0, 0));
        }
        for row in self.table(catalog, name, 0, &["grp", "amt"]).await? {
            if let Some((total, count)) = totals.get_mut(&row[0]) {
                *total += row[1].int();
                *count += 1;
            }
        }
        let row = |(group, (total, count))| {
            let total = if count == 0 {
                Cell::Null
            } else {
                Cell::Int(total)
            };
            vec![group, total, Cell::Int(count)]
        };
        Ok(totals.into_iter().map(row).collect())
    }
}

fn pinned<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a ports::tables::Pin> {
    let found = catalog
        .tables
        .iter()
        .find(|(table, _)| table.to_string() == name);
    found.map(|(_, pin)| pin).ok_or_else(|| unknown(name))
}

#[async_trait]
impl Query for Pretend {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> Result<Rows> {
        let (shape, marks) = read(&statement.sql)?;
        let rows = self.rows(shape, &marks, catalog).await?;
        let batch = frame::batch(&columns(shape), &rows)?;
        Ok(Rows {
            schema: batch.schema(),
            stream: futures::stream::iter([Ok(batch)]).boxed(),
        })
    }

    async fn describe(&self, statement: &Statement, _: &Catalog) -> Result<SchemaRef> {
        let (shape, _) = read(&statement.sql)?;
        Ok(frame::schema(&columns(shape)))
    }
}

/// The real engine, whose threads are its own: everybody else waits while it works, and it works in one call.
#[derive(Debug)]
pub(crate) struct Real {
    pub(crate) inner: Arc<dyn Query>,
    pub(crate) gate: Gate,
}

impl Real {
    async fn go(&self, statement: &Statement) -> Result<()> {
        let subject: String = statement.sql.chars().take(60).collect();
        match self.gate.enter(Call::Statement, subject).await {
            Verdict::Go => Ok(()),
            _ => Err(silence()),
        }
    }
}

#[async_trait]
impl Query for Real {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> Result<Rows> {
        self.go(statement).await?;
        let _hold = self.gate.scheduler.hold();
        let rows = self.inner.run(statement, catalog).await?;
        let batches: Vec<_> = rows.stream.try_collect().await?;
        Ok(Rows {
            schema: rows.schema,
            stream: futures::stream::iter(batches.into_iter().map(Ok)).boxed(),
        })
    }

    async fn describe(&self, statement: &Statement, catalog: &Catalog) -> Result<SchemaRef> {
        self.go(statement).await?;
        let _hold = self.gate.scheduler.hold();
        self.inner.describe(statement, catalog).await
    }
}
