//! Chains of look-ups: nothing runs before somebody wants rows.

use ports::query::Parameter;
use serde::de::DeserializeOwned;

use super::{
    MaterializedFrame,
    lookup::{Compiler, Lookups, Operand, column, quoted},
};
use crate::{
    batches::Batches,
    error::{Error, Result},
};

/// Some of a frame's rows. Every call gives another selection; none changes the one it was made from.
#[derive(Clone, Debug)]
#[must_use = "a selection does nothing until its rows are asked for"]
pub struct Selection {
    frame: MaterializedFrame,
    /// Met by all rows, or by none when excluded.
    conditions: Vec<(bool, Lookups)>,
    order: Vec<String>,
    values: Vec<String>,
    offset: u64,
    limit: Option<u64>,
    /// What was wrong with a call of the chain; said when rows are asked for.
    broken: Option<Error>,
}

impl MaterializedFrame {
    /// All rows, as the beginning of a chain.
    pub fn all(&self) -> Selection {
        Selection {
            frame: self.clone(),
            conditions: Vec::new(),
            order: Vec::new(),
            values: Vec::new(),
            offset: 0,
            limit: None,
            broken: None,
        }
    }

    /// Rows that meet a look-up: `frame.filter("n__gte", 7)`.
    pub fn filter(&self, lookup: &str, operand: impl Into<Operand>) -> Selection {
        self.all().filter(lookup, operand)
    }

    /// Rows that do not.
    pub fn exclude(&self, lookup: &str, operand: impl Into<Operand>) -> Selection {
        self.all().exclude(lookup, operand)
    }

    /// All rows in an order: column names, `-` before those that descend.
    pub fn order_by(&self, columns: &[&str]) -> Selection {
        self.all().order_by(columns)
    }

    /// Rows from `start` to before `stop`.
    pub fn slice(&self, start: u64, stop: u64) -> Selection {
        self.all().slice(start, stop)
    }

    /// Some columns.
    pub fn values(&self, columns: &[&str]) -> Selection {
        self.all().values(columns)
    }
}

impl Selection {
    fn uncut(mut self, what: &str) -> Self {
        if self.offset > 0 || self.limit.is_some() {
            let why = format!(
                "{what} after a slice means two things: put it before the slice, or write SQL"
            );
            self.broken.get_or_insert(Error::Lookup(why));
        }
        self
    }

    /// Rows that meet a look-up too.
    pub fn filter(self, lookup: &str, operand: impl Into<Operand>) -> Self {
        self.filter_all(Lookups::new().and(lookup, operand))
    }

    /// Rows that meet all of these too.
    pub fn filter_all(self, lookups: Lookups) -> Self {
        let mut next = self.uncut("`filter`");
        next.conditions.push((true, lookups));
        next
    }

    /// Rows that do not meet a look-up. Where the column is NULL it is not met.
    pub fn exclude(self, lookup: &str, operand: impl Into<Operand>) -> Self {
        self.exclude_all(Lookups::new().and(lookup, operand))
    }

    /// Rows that do not meet all of these at once.
    pub fn exclude_all(self, lookups: Lookups) -> Self {
        let mut next = self.uncut("`exclude`");
        next.conditions.push((false, lookups));
        next
    }

    /// In this order, and in no other that was said before.
    pub fn order_by(self, columns: &[&str]) -> Self {
        let mut next = self.uncut("`order_by`");
        next.order = columns.iter().map(|name| (*name).to_owned()).collect();
        next
    }

    /// Rows from `start` to before `stop`, of what there is so far.
    pub fn slice(mut self, start: u64, stop: u64) -> Self {
        let length = stop.saturating_sub(start);
        let left = self.limit.map(|limit| limit.saturating_sub(start));
        self.offset = self.offset.saturating_add(start);
        self.limit = Some(left.map_or(length, |left| left.min(length)));
        self
    }

    /// These columns, in this order.
    pub fn values(mut self, columns: &[&str]) -> Self {
        self.values = columns.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// The statement that this is, and its parameters.
    ///
    /// # Errors
    /// A column that is not there, a word that is no look-up, a value that it does not take.
    pub fn statement(&self) -> Result<(String, Vec<Parameter>)> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let columns = self.frame.columns();
        let mut compiler = Compiler {
            columns,
            parameters: Vec::new(),
        };
        let values = match self.values.is_empty() {
            true => String::from("*"),
            false => {
                let each = self.values.iter();
                let each =
                    each.map(|name| column(columns, name).map(|column| quoted(&column.name)));
                each.collect::<Result<Vec<_>>>()?.join(", ")
            }
        };
        let mut sql = format!("SELECT {values} FROM this");
        let mut all = Vec::new();
        for (met, lookups) in &self.conditions {
            let each = lookups
                .0
                .iter()
                .map(|(lookup, operand)| compiler.condition(lookup, operand));
            let each = each.collect::<Result<Vec<_>>>()?;
            all.extend(match (each.is_empty(), met) {
                (true, _) => None,
                (false, true) => Some(each.join(" AND ")),
                // What is neither met nor not, for a NULL, is not met.
                (false, false) => Some(format!("({}) IS NOT TRUE", each.join(" AND "))),
            });
        }
        if !all.is_empty() {
            sql.push_str(" WHERE ");
            sql.push_str(&all.join(" AND "));
        }
        let order = self.order.iter().map(|name| {
            let (name, descends) = name
                .strip_prefix('-')
                .map_or((name.as_str(), false), |name| (name, true));
            let found = column(columns, name)?;
            Ok(format!(
                "{}{}",
                quoted(&found.name),
                if descends { " DESC" } else { "" }
            ))
        });
        let order = order.collect::<Result<Vec<_>>>()?;
        if !order.is_empty() {
            sql.push_str(" ORDER BY ");
            sql.push_str(&order.join(", "));
        }
        if let Some(limit) = self.limit {
            sql.push_str(&format!(" LIMIT {limit}"));
        }
        if self.offset > 0 {
            sql.push_str(&format!(" OFFSET {}", self.offset));
        }
        Ok((sql, compiler.parameters))
    }

    /// The rows as Arrow.
    ///
    /// # Errors
    /// As [`statement`](Self::statement), and what running it brings.
    pub async fn arrow(&self) -> Result<Batches> {
        let (sql, parameters) = self.statement()?;
        self.frame.sql_with(&sql, &parameters).await
    }

    /// The rows as values of a type.
    ///
    /// # Errors
    /// As [`arrow`](Self::arrow), and for a row that is no such value.
    pub async fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        self.arrow().await?.rows()
    }

    /// How many rows there are, counted where they are.
    ///
    /// # Errors
    /// As [`arrow`](Self::arrow).
    pub async fn len(&self) -> Result<u64> {
        #[derive(serde::Deserialize)]
        struct Counted {
            n: u64,
        }
        let (sql, parameters) = self.statement()?;
        let sql = format!("SELECT count(*) AS n FROM ({sql})");
        let counted: Vec<Counted> = self.frame.sql_with(&sql, &parameters).await?.rows()?;
        Ok(counted.first().map_or(0, |counted| counted.n))
    }
}
