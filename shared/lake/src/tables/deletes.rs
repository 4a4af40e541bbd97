//! Position deletes: parquet files of (file, row), sorted, that Iceberg readers subtract.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    },
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ArrowWriter, PARQUET_FIELD_ID_META_KEY, arrow_reader::ParquetRecordBatchReaderBuilder,
        arrow_writer::ArrowWriterOptions,
    },
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::WriterProperties,
    schema::types::ColumnPath,
};
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;

/// Iceberg's field id of the column that names the data file.
pub(crate) const PATH_ID: i32 = 2_147_483_546;
/// Iceberg's field id of the column that names the row.
const POS_ID: i32 = 2_147_483_545;
/// Rows encoded at a time.
const CHUNK: usize = 64 << 10;

/// Deleted rows by location of their data file.
pub(crate) type Positions = BTreeMap<String, RoaringTreemap>;

/// Adds `more` to `positions`.
pub(crate) fn add(positions: &mut Positions, location: &str, more: &RoaringTreemap) {
    match positions.get_mut(location) {
        Some(rows) => *rows |= more,
        None => drop(positions.insert(location.to_owned(), more.clone())),
    }
}

/// How many rows are deleted.
pub(crate) fn count(positions: &Positions) -> u64 {
    positions.values().map(RoaringTreemap::len).sum()
}

/// A delete file's bytes, for one or more rows.
pub(crate) fn encode(positions: &Positions) -> Result<Bytes> {
    let failed =
        |e: &str| Error::new(Kind::Corrupt, "encode", "position deletes").because(e.to_owned());
    let schema = schema();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_column_dictionary_enabled(ColumnPath::from("pos"), false)
        .set_column_encoding(ColumnPath::from("pos"), Encoding::DELTA_BINARY_PACKED)
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema.clone(), options)
        .map_err(|e| failed(&e.to_string()))?;
    for (location, rows) in positions {
        let path: ArrayRef = Arc::new(StringArray::from(vec![location.as_str()]));
        let mut rows = rows
            .iter()
            .map(|row| i64::try_from(row).unwrap_or(i64::MAX))
            .peekable();
        while rows.peek().is_some() {
            let chunk = Int64Array::from_iter_values(rows.by_ref().take(CHUNK));
            let same = Int32Array::from(vec![0; chunk.len()]);
            let paths =
                DictionaryArray::try_new(same, path.clone()).map_err(|e| failed(&e.to_string()))?;
            RecordBatch::try_new(schema.clone(), vec![Arc::new(paths), Arc::new(chunk)])
                .map_err(|e| failed(&e.to_string()))
                .and_then(|batch| writer.write(&batch).map_err(|e| failed(&e.to_string())))?;
        }
    }
    writer
        .into_inner()
        .map(Bytes::from)
        .map_err(|e| failed(&e.to_string()))
}

fn schema() -> SchemaRef {
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let field = |name: &str, kind, id: i32| {
        Field::new(name, kind, false)
            .with_metadata([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())].into())
    };
    let fields = vec![
        field("file_path", text, PATH_ID),
        field("pos", DataType::Int64, POS_ID),
    ];
    Arc::new(Schema::new(fields))
}

/// The rows a delete file names.
pub(crate) fn decode(path: &str, bytes: Bytes) -> Result<Positions> {
    let corrupt =
        |why: String| Error::new(Kind::Corrupt, "read position deletes", path).because(why);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
        .and_then(|builder| builder.with_batch_size(CHUNK).build())
        .map_err(|e| corrupt(e.to_string()))?;
    let mut positions = Positions::new();
    for batch in reader {
        let batch = batch.map_err(|e| corrupt(e.to_string()))?;
        let column = |name: &str, kind: DataType| {
            let column = batch
                .column_by_name(name)
                .filter(|c| *c.data_type() == kind && c.null_count() == 0);
            column.ok_or_else(|| corrupt(format!("it has no column `{name}` of {kind}")))
        };
        let files = column("file_path", DataType::Utf8)?.as_string::<i32>();
        let rows = column("pos", DataType::Int64)?
            .as_primitive::<Int64Type>()
            .values();
        let mut at = 0;
        while at < batch.num_rows() {
            let file = files.value(at);
            let run = (at..batch.num_rows())
                .take_while(|row| files.value(*row) == file)
                .count();
            let rows = rows[at..at + run].iter().map(|row| u64::try_from(*row));
            let set = rows.collect::<Result<RoaringTreemap, _>>();
            add(
                &mut positions,
                file,
                &set.map_err(|_| corrupt("a position is negative".into()))?,
            );
            at += run;
        }
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let positions = Positions::from([
            ("file:///a".to_owned(), (0..100_000).step_by(3).collect()),
            ("file:///b".to_owned(), [7, 1 << 33].into_iter().collect()),
        ]);
        let bytes = encode(&positions).expect("encodes");
        assert_eq!(decode("p", bytes).expect("decodes"), positions);
    }

    #[test]
    fn other_bytes_are_corrupt() {
        let error = decode("p", Bytes::from_static(b"nothing")).expect_err("no parquet");
        assert_eq!(error.kind, Kind::Corrupt);
    }
}
