//! Rows on the wire: JSON, CSV or Arrow IPC, encoded batch by batch.
//!
//! JSON is one object: `columns` (name and SQL type), `rows` (an object per row, every column
//! present), `row_count`. Integers and decimals are JSON numbers with all their digits, however
//! many a reader's own number type keeps. NaN and the infinities, which JSON has no word for, are
//! `null`. Timestamps are RFC 3339 text, binary is hexadecimal text. In CSV a NULL is an empty
//! field, and lists and structs are text. Where two columns have one name, the later ones get a
//! number in JSON and CSV: `id`, `id_2`.

mod legible;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    csv,
    datatypes::{DataType, Field, Schema, SchemaRef},
    error::ArrowError,
    ipc::writer::StreamWriter,
    json::{WriterBuilder, writer::JsonArray},
};
use bytes::Bytes;
use futures::{StreamExt, stream, stream::BoxStream};
use ports::{Error, Kind, Result, tables::Rows};
use serde_json::json;

/// A column type in SQL words.
pub use ports::columns::word as kind;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `text/csv`, with a header line.
    Csv,
    /// `application/vnd.apache.arrow.stream`.
    Arrow,
}

impl Format {
    /// The content type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// The encoded bytes of all rows, as they come.
#[must_use]
pub fn encode(rows: Rows, format: Format) -> BoxStream<'static, Result<Bytes>> {
    let encoder = Encoder::new(&rows.schema, format);
    let state = (encoder, rows.stream, Stage::Start);
    stream::try_unfold(state, |(mut encoder, mut rows, stage)| async move {
        match stage {
            Stage::Start => Ok(Some((encoder.start()?, (encoder, rows, Stage::Rows)))),
            Stage::Rows => match rows.next().await {
                Some(batch) => Ok(Some((
                    encoder.batch(&batch?)?,
                    (encoder, rows, Stage::Rows),
                ))),
                None => Ok(Some((encoder.finish()?, (encoder, rows, Stage::End)))),
            },
            Stage::End => Ok(None),
        }
    })
    .boxed()
}

enum Stage {
    Start,
    Rows,
    End,
}

/// Encodes batches of one schema.
struct Encoder {
    schema: SchemaRef,
    writer: Writer,
    rows: usize,
}

enum Writer {
    Json(arrow::json::Writer<Vec<u8>, JsonArray>),
    Csv,
    /// Made by the first call, which can fail.
    Arrow(Option<Box<StreamWriter<Vec<u8>>>>),
}

impl Encoder {
    fn new(schema: &SchemaRef, format: Format) -> Self {
        let (schema, writer) = match format {
            Format::Json => {
                let json = WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .with_encoder_factory(Arc::new(legible::RawJson))
                    .build::<_, JsonArray>(Vec::new());
                (distinct(schema), Writer::Json(json))
            }
            Format::Csv => (distinct(schema), Writer::Csv),
            Format::Arrow => (Arc::clone(schema), Writer::Arrow(None)),
        };
        Self {
            schema,
            writer,
            rows: 0,
        }
    }

    fn start(&mut self) -> Result<Bytes> {
        match &mut self.writer {
            Writer::Json(_) => {
                Ok(format!("{{\"columns\":{},\"rows\":", columns(&self.schema)).into())
            }
            Writer::Csv => {
                let none = RecordBatch::new_empty(Arc::clone(&self.schema));
                csv_text(
                    &legible::batch(&none, &self.schema, DataType::is_nested)?,
                    true,
                )
            }
            Writer::Arrow(writer) => {
                let started =
                    StreamWriter::try_new(Vec::new(), &self.schema).map_err(unencodable)?;
                Ok(taken(writer.insert(Box::new(started)).get_mut()))
            }
        }
    }

    fn batch(&mut self, batch: &RecordBatch) -> Result<Bytes> {
        self.rows += batch.num_rows();
        match &mut self.writer {
            Writer::Json(writer) => {
                let batch = legible::batch(batch, &self.schema, legible::is_json)?;
                writer.write(&batch).map_err(unencodable)?;
                Ok(taken(writer.get_mut()))
            }
            Writer::Csv => csv_text(
                &legible::batch(batch, &self.schema, DataType::is_nested)?,
                false,
            ),
            Writer::Arrow(writer) => match writer {
                Some(writer) => {
                    writer.write(batch).map_err(unencodable)?;
                    Ok(taken(writer.get_mut()))
                }
                None => Ok(Bytes::new()),
            },
        }
    }

    fn finish(&mut self) -> Result<Bytes> {
        match &mut self.writer {
            Writer::Json(writer) => {
                writer.finish().map_err(unencodable)?;
                let out = writer.get_mut();
                out.extend_from_slice(format!(",\"row_count\":{}}}\n", self.rows).as_bytes());
                Ok(taken(out))
            }
            Writer::Csv => Ok(Bytes::new()),
            Writer::Arrow(writer) => match writer {
                Some(writer) => {
                    writer.finish().map_err(unencodable)?;
                    Ok(taken(writer.get_mut()))
                }
                None => Ok(Bytes::new()),
            },
        }
    }
}

/// What was written, without the room that was left: answers wait for their readers.
fn taken(buffer: &mut Vec<u8>) -> Bytes {
    let mut written = std::mem::take(buffer);
    written.shrink_to_fit();
    written.into()
}

fn unencodable(error: ArrowError) -> Error {
    Error::new(Kind::Invalid, "encode", "rows").because(error)
}

fn csv_text(batch: &RecordBatch, header: bool) -> Result<Bytes> {
    let mut out = Vec::new();
    // The writer writes its header with the first batch, rows or not.
    csv::WriterBuilder::new()
        .with_header(header)
        .build(&mut out)
        .write(batch)
        .map_err(unencodable)?;
    Ok(taken(&mut out))
}

/// The schema with every column name used once.
fn distinct(schema: &SchemaRef) -> SchemaRef {
    let mut fields: Vec<Field> = Vec::with_capacity(schema.fields().len());
    let mut used: HashSet<String> = HashSet::new();
    // The number to try next for each name.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for field in schema.fields() {
        let mut name = field.name().clone();
        let number = numbers.entry(field.name()).or_insert(2);
        while used.contains(&name) {
            name = format!("{}_{number}", field.name());
            *number += 1;
        }
        used.insert(name.clone());
        fields.push(field.as_ref().clone().with_name(name));
    }
    Arc::new(Schema::new(fields))
}

/// The batch with JSON values of any kind, which have no form of their own, as their text.
///
/// # Errors
/// `Invalid` for a column that has no text.
pub fn readable(batch: &RecordBatch) -> Result<RecordBatch> {
    legible::batch(batch, &batch.schema(), legible::is_json)
}

fn columns(schema: &Schema) -> serde_json::Value {
    schema
        .fields()
        .iter()
        .map(|field| json!({ "name": field.name(), "type": kind(field.data_type()) }))
        .collect()
}

#[cfg(test)]
mod tests;
