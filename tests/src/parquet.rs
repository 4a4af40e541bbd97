//! Rows of JSON objects as parquet files, and answers in Arrow as JSON objects.

use std::io::Cursor;

use anyhow::Result;
use arrow::{
    array::RecordBatch,
    ipc::reader::StreamReader,
    json::{ArrayWriter, ReaderBuilder, reader::infer_json_schema_from_iterator},
};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use serde_json::Value;

/// A parquet file of some objects.
///
/// # Errors
/// When they have no common columns.
pub fn of_objects(rows: &[Value]) -> Result<Bytes> {
    of_batch(&batch(rows)?)
}

/// A batch of some objects.
///
/// # Errors
/// When they have no common columns.
pub fn batch(rows: &[Value]) -> Result<RecordBatch> {
    let schema = infer_json_schema_from_iterator(rows.iter().map(Ok))?;
    let mut decoder = ReaderBuilder::new(schema.clone().into()).build_decoder()?;
    decoder.serialize(rows)?;
    let batch = decoder.flush()?;
    Ok(batch.unwrap_or_else(|| RecordBatch::new_empty(schema.into())))
}

/// A parquet file of a batch.
///
/// # Errors
/// When it has a column that parquet has not.
pub fn of_batch(batch: &RecordBatch) -> Result<Bytes> {
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None)?;
    writer.write(batch)?;
    writer.close()?;
    Ok(file.into())
}

/// The rows of an Arrow stream as objects.
///
/// # Errors
/// When it is none.
pub fn objects_of_stream(bytes: &[u8]) -> Result<Vec<Value>> {
    let mut writer = ArrayWriter::new(Vec::new());
    let mut rows = 0;
    for batch in StreamReader::try_new(Cursor::new(bytes), None)? {
        let batch = batch?;
        rows += batch.num_rows();
        writer.write(&batch)?;
    }
    writer.finish()?;
    match rows {
        0 => Ok(Vec::new()),
        _ => Ok(serde_json::from_slice(&writer.into_inner())?),
    }
}
