//! Rows of a program's own types, as Arrow and back.
//!
//! Columns come from the type where its fields tell them (numbers, texts, booleans, options, lists and structs of these), so
//! that an empty result, or one whose options are all `None`, has the columns of any other. What a type does not tell (maps,
//! flattened or untagged parts, fields that read only a certain text) is taken from the rows.

mod columns;

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, Field, Fields, Schema},
    json::{
        ReaderBuilder, WriterBuilder, reader::infer_json_schema_from_iterator, writer::JsonArray,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    batches::Batches,
    error::{Error, Result},
};

/// Rows that are looked at together.
const CHUNK: usize = 8_192;

/// Rows as batches.
pub(crate) fn to_batches<T: Serialize + DeserializeOwned>(rows: &[T]) -> Result<Batches, String> {
    let schema = Arc::new(schema(rows)?);
    let mut decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(CHUNK)
        .build_decoder()
        .map_err(|error| error.to_string())?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    for chunk in rows.chunks(CHUNK) {
        decoder
            .serialize(chunk)
            .map_err(|error| error.to_string())?;
        batches.extend(decoder.flush().map_err(|error| error.to_string())?);
    }
    Ok(Batches::new(schema, batches))
}

/// Columns of rows: what the type says, completed by what the rows say.
fn schema<T: Serialize + DeserializeOwned>(rows: &[T]) -> Result<Schema, String> {
    let told = columns::of::<T>();
    if let Some(told) = &told
        && told.iter().all(|(_, kind)| kind.is_some())
    {
        let fields = told.iter().filter_map(|(name, kind)| {
            kind.clone()
                .map(|kind| Field::new(name.clone(), kind, true))
        });
        return Ok(Schema::new(fields.collect::<Vec<_>>()));
    }
    let values = rows.iter().map(serde_json::to_value);
    let values: Vec<Value> = values
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if let Some(other) = values.iter().find(|value| !value.is_object()) {
        return Err(format!(
            "a row is `{}` and not a struct or a map with a value per column",
            other.to_string().chars().take(40).collect::<String>()
        ));
    }
    let found = infer_json_schema_from_iterator(values.iter().map(Ok))
        .map_err(|error| error.to_string())?;
    let Some(told) = told else {
        return match found.fields().is_empty() {
            false => Ok(settled(&found)),
            true => Err(String::from(
                "there are no rows, and their type does not tell its columns: return record batches, or rows of a struct",
            )),
        };
    };
    let found: BTreeMap<&String, &DataType> = found
        .fields()
        .iter()
        .map(|field| (field.name(), field.data_type()))
        .collect();
    let fields = told.into_iter().map(|(name, kind)| {
        let kind = kind.or_else(|| found.get(&name).map(|kind| settle(kind)));
        Field::new(name, kind.unwrap_or(DataType::Utf8), true)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

fn settled(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| Field::new(field.name(), settle(field.data_type()), true);
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

/// The type of a column of which only NULLs were seen is text: the next result may have others.
fn settle(kind: &DataType) -> DataType {
    match kind {
        DataType::Null => DataType::Utf8,
        DataType::List(item) => DataType::List(Arc::new(Field::new(
            item.name(),
            settle(item.data_type()),
            true,
        ))),
        DataType::Struct(fields) => {
            let field =
                |field: &Arc<Field>| Field::new(field.name(), settle(field.data_type()), true);
            DataType::Struct(fields.iter().map(field).collect::<Fields>())
        }
        other => other.clone(),
    }
}

/// Batches as rows of a type.
pub(crate) fn of_batches<T: DeserializeOwned>(batches: &Batches) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(batches.num_rows());
    for batch in batches.batches.iter().filter(|batch| batch.num_rows() > 0) {
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, JsonArray>(Vec::new());
        writer.write(batch).map_err(Error::unreadable)?;
        writer.finish().map_err(Error::unreadable)?;
        let rows: Vec<T> = serde_json::from_slice(writer.get_ref()).map_err(Error::unreadable)?;
        all.extend(rows);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
