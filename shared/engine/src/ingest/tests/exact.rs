//! Parquet files with more than one reading tells: landed exactly, or refused with the column's name.

use std::{io::Write, sync::Arc};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{IntervalMonthDayNanoType, TimestampMicrosecondType},
};
use parquet::{
    data_type::{ByteArray, FixedLenByteArray, FixedLenByteArrayType, Int96, Int96Type},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use ports::{Kind, Result};

use super::*;
use crate::ingest::file;

/// Loads a file of one interval or one moment of 96 bits per row; the rows that landed.
async fn load(schema: &str, intervals: &[[u32; 3]], moments: &[[u32; 3]]) -> Result<RecordBatch> {
    let schema = parse_message_type(schema).expect("a schema");
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    while let Some(mut column) = group.next_column().expect("a column") {
        let levels = vec![1; intervals.len() + moments.len()];
        if intervals.is_empty() {
            let moments = moments.iter().map(|words| {
                let mut moment = Int96::new();
                moment.set_data(words[0], words[1], words[2]);
                moment
            });
            let moments: Vec<Int96> = moments.collect();
            let typed = column.typed::<Int96Type>();
            typed
                .write_batch(&moments, Some(&levels), None)
                .expect("written");
        } else {
            let intervals = intervals.iter().map(|parts| {
                let parts: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
                FixedLenByteArray::from(ByteArray::from(parts))
            });
            let intervals: Vec<FixedLenByteArray> = intervals.collect();
            let typed = column.typed::<FixedLenByteArrayType>();
            typed
                .write_batch(&intervals, Some(&levels), None)
                .expect("written");
        }
        column.close().expect("closed");
    }
    group.close().expect("closed");
    writer.close().expect("closed");
    let (world, landing, _) = world();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f.parquet");
    std::fs::File::create(&path)
        .and_then(|mut file| file.write_all(&bytes))
        .expect("room");
    let table = TableName::landing("flights").expect("a name");
    file(&world, &table, &path, None, &|_| {}).await?;
    Ok(landing.appends("landing.flights")[0].rows.clone())
}

#[tokio::test]
async fn intervals_keep_their_months() {
    let schema = "message m { optional fixed_len_byte_array(12) iv (INTERVAL); }";
    let five_hours = 5 * 3_600_000;
    let rows = load(
        schema,
        &[[14, 3, five_hours], [1, 0, 0], [0, 0, u32::MAX]],
        &[],
    )
    .await;
    let rows = rows.expect("loaded");
    let found = rows.column(0).as_primitive::<IntervalMonthDayNanoType>();
    let parts = |row: usize| {
        let value = found.value(row);
        (value.months, value.days, value.nanoseconds)
    };
    assert_eq!(parts(0), (14, 3, 5 * 3_600_000_000_000));
    assert_eq!(parts(1), (1, 0, 0));
    assert_eq!(parts(2), (0, 0, i64::from(u32::MAX) * 1_000_000));
}

#[tokio::test]
async fn intervals_inside_of_others_are_refused_by_name() {
    let schema =
        "message m { optional group s { required fixed_len_byte_array(12) iv (INTERVAL); } }";
    let error = load(schema, &[[14, 3, 0]], &[]).await.expect_err("refused");
    let told = error.chain();
    assert_eq!(error.kind, Kind::Invalid, "{told}");
    assert!(
        told.contains("`s.iv`") && told.contains("VARCHAR"),
        "{told}"
    );
}

#[tokio::test]
async fn moments_of_96_bits_are_of_any_year_and_of_whole_microseconds() {
    let schema = "message m { optional int96 at; }";
    // Nanoseconds of the day in two words, then the Julian day.
    let (epoch, far) = (2_440_588, 2_440_588 + 1_000_000);
    let rows = load(schema, &[], &[[3_000, 0, epoch], [5_000, 0, far]]).await;
    let rows = rows.expect("loaded");
    let found = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(found.value(0), 3);
    assert_eq!(found.value(1), 1_000_000 * 86_400_000_000 + 5);
    let error = load(schema, &[], &[[3_001, 0, epoch]]).await;
    let told = error.expect_err("refused").chain();
    assert!(
        told.contains("`at`") && told.contains("microseconds"),
        "{told}"
    );
}
