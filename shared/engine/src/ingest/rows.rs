//! Typed rows under construction, and the columns they are of.

use std::collections::HashMap;

use arrow::datatypes::DataType;

use super::{
    build::{self, Builder},
    text::{Bad, Chunk, Reject},
    value::Value,
};

#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) list: Vec<(String, DataType)>,
    pub(super) index: HashMap<String, usize>,
}

impl Columns {
    pub(super) fn add(&mut self, name: &str, data_type: DataType) {
        self.index.insert(name.to_owned(), self.list.len());
        self.list.push((name.to_owned(), data_type));
    }

    /// The column of a name; `next` is where it most likely is.
    pub(super) fn find(&self, name: &str, next: usize) -> Option<usize> {
        match self.list.get(next) {
            Some((likely, _)) if likely == name => Some(next),
            _ => self.index.get(name).copied(),
        }
    }
}

/// Rows under construction: a row counts when all of it could be read.
pub(super) struct RowBuilder<'a> {
    columns: &'a Columns,
    builders: Vec<Builder>,
    row: Vec<Value<'a>>,
    rows: usize,
    rejects: Vec<Reject>,
}

impl<'a> RowBuilder<'a> {
    pub(super) fn new(columns: &'a Columns, rows: usize) -> Self {
        let builders = columns
            .list
            .iter()
            .map(|(_, data_type)| Builder::new(data_type, rows))
            .collect();
        let row = vec![Value::Null; columns.list.len()];
        Self {
            columns,
            builders,
            row,
            rows: 0,
            rejects: Vec::new(),
        }
    }

    pub(super) fn set(
        &mut self,
        column: usize,
        read: impl FnOnce(&DataType) -> Result<Value<'a>, String>,
    ) -> Result<(), String> {
        let (name, data_type) = &self.columns.list[column];
        self.row[column] = read(data_type).map_err(|why| format!("column `{name}`: {why}"))?;
        Ok(())
    }

    pub(super) fn end(&mut self, read: Result<(), String>, line: u64, text: &[u8]) {
        match read {
            Ok(()) => {
                self.rows += 1;
                for (builder, value) in self.builders.iter_mut().zip(&mut self.row) {
                    builder.append(std::mem::replace(value, Value::Null));
                }
            }
            Err(reason) => {
                self.row.fill(Value::Null);
                let text = String::from_utf8_lossy(text.trim_ascii_end()).into_owned();
                self.rejects.push(Reject { line, reason, text });
            }
        }
    }

    pub(super) fn finish(self) -> Result<Chunk, Bad> {
        let Self {
            columns,
            builders,
            rows,
            rejects,
            ..
        } = self;
        let names = columns.list.iter().map(|(name, _)| name.clone());
        let arrays = names
            .zip(builders.into_iter().map(Builder::finish))
            .collect();
        let batch = build::batch(arrays, rows).map_err(|e| Bad {
            line: 0,
            reason: e.to_string(),
        })?;
        Ok(Chunk {
            rows: (rows > 0).then_some(batch),
            rejects,
        })
    }
}
