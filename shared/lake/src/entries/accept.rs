//! What is taken as an entry's data, and what is not.

use std::collections::BTreeSet;

use arrow::{
    array::timezone::Tz,
    datatypes::{DataType, Schema},
};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::buffered::BufWriter;
use parquet::{
    arrow::{ARROW_SCHEMA_META_KEY, ArrowSchemaConverter},
    basic::{Compression, ConvertedType, Type},
    file::metadata::{ColumnChunkMetaData, ParquetMetaData},
};
use ports::{
    Error, Kind, Result,
    entries::{DataSet, Stored, Upload},
};
use tokio::io::AsyncWriteExt;

use super::spool::Spool;

/// Refuses columns that cannot be stored, or not be told apart.
pub(super) fn schema(action: &'static str, set: &DataSet, schema: &Schema) -> Result<()> {
    let invalid = |why: String| Err(Error::new(Kind::Invalid, action, set).because(why));
    if schema.fields().is_empty() {
        return invalid(String::from("it has no columns"));
    }
    let mut seen = BTreeSet::new();
    for field in schema.fields() {
        if !seen.insert(field.name()) {
            return invalid(format!(
                "it has two columns `{}`: give one of them another name",
                field.name()
            ));
        }
        if let Some(zone) = unknown_zone(field.data_type()) {
            return invalid(format!(
                "column `{}` has the time zone `{zone}`, which nobody knows: name one as `Europe/Paris` or `+01:00`",
                field.name()
            ));
        }
        let why = match is_storable(field.data_type()) {
            true => {
                let alone = Schema::new(vec![field.clone()]);
                let converted = ArrowSchemaConverter::new().convert(&alone);
                converted.err().map(|error| error.to_string())
            }
            false => Some(String::from("its values are of several types")),
        };
        if let Some(why) = why {
            return invalid(format!(
                "column `{}` cannot be stored ({why}): cast it, to VARCHAR for example",
                field.name()
            ));
        }
    }
    Ok(())
}

/// Whether parquet has a form for a type. Its own conversion panics over unions, which is what `->` of JSON answers with.
fn is_storable(kind: &DataType) -> bool {
    let union = |kind| matches!(kind, &DataType::Union(_, _)).then_some(());
    within(kind, &union).is_none()
}

/// The time zone somewhere in a type that no moment can be shown in.
fn unknown_zone(kind: &DataType) -> Option<&str> {
    within(kind, &|kind| match kind {
        DataType::Timestamp(_, Some(zone)) => zone.parse::<Tz>().is_err().then_some(zone.as_ref()),
        _ => None,
    })
}

/// What is found first of a type and those it holds.
fn within<'a, T>(kind: &'a DataType, find: &impl Fn(&'a DataType) -> Option<T>) -> Option<T> {
    let of_item = |kind: &'a DataType| within(kind, find);
    find(kind).or_else(|| match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => of_item(item.data_type()),
        DataType::Struct(fields) => fields.iter().find_map(|field| of_item(field.data_type())),
        DataType::Dictionary(_, values) => of_item(values),
        _ => None,
    })
}

/// Writes an upload as it arrives. It is complete only when it ended well, and every page of it can be read.
pub(super) async fn receive(
    mut sink: BufWriter,
    mut copy: Spool,
    set: &DataSet,
    mut upload: Upload,
    limit: u64,
) -> Result<Stored> {
    // Whatever became of the last request, an upload that was being ended cannot be given up any more.
    let mut ending = false;
    let outcome = async {
        let mut bytes = 0;
        while let Some(piece) = upload.try_next().await? {
            bytes += piece.len() as u64;
            if bytes > limit {
                let error = Error::new(Kind::TooLarge, "take upload", set);
                return Err(error.because(format!("it is larger than {limit} bytes")));
            }
            copy.put(set, &piece).await?;
            put(&mut sink, piece).await?;
        }
        let stored = copy.judge(set).await?;
        ending = true;
        match sink.shutdown().await {
            Ok(()) => Ok(stored),
            Err(error) => Err(Error::new(Kind::Unavailable, "take upload", set).because(error)),
        }
    }
    .await;
    if outcome.is_err() && !ending {
        // Parts that were sent already go.
        let _ = sink.abort().await;
    }
    outcome
}

async fn put(sink: &mut BufWriter, piece: Bytes) -> Result<()> {
    Ok(sink.put(piece).await?)
}

/// Whether every part that the footer names lies in the file, and its counts of rows agree: a cheap look at files that are read
/// only later.
pub(super) fn whole(set: &DataSet, footer: &ParquetMetaData, bytes: u64) -> Result<()> {
    let corrupt = |why: &str| Err(Error::new(Kind::Corrupt, "read entry", set).because(why));
    let mut rows = 0_u64;
    for group in footer.row_groups() {
        // A column that does not repeat has a value, or a NULL, for each row.
        let agree = |chunk: &ColumnChunkMetaData| {
            chunk.column_descr().max_rep_level() > 0 || chunk.num_values() == group.num_rows()
        };
        if !group.columns().iter().all(agree) {
            return corrupt("its footer has other counts of rows for columns than for their group");
        }
        rows = match u64::try_from(group.num_rows()).map(|count| rows.checked_add(count)) {
            Ok(Some(rows)) => rows,
            _ => return corrupt("its footer has a count of rows that none can have"),
        };
    }
    if u64::try_from(footer.file_metadata().num_rows()) != Ok(rows) {
        return corrupt("its footer has another count of rows than its groups have together");
    }
    let chunks = footer.row_groups().iter().flat_map(|group| group.columns());
    for chunk in chunks {
        // Its own `byte_range` panics at numbers below zero, and a footer may hold any.
        let start = chunk.dictionary_page_offset();
        let start = u64::try_from(start.unwrap_or_else(|| chunk.data_page_offset()));
        let end = match (start, u64::try_from(chunk.compressed_size())) {
            (Ok(start), Ok(length)) => start.checked_add(length),
            _ => None,
        };
        if end.is_none_or(|end| end > bytes) {
            return corrupt("its footer names parts beyond its end");
        }
    }
    Ok(())
}

/// Refuses an upload with columns that are read with a loss: intervals of which nobody told whether they are months or
/// days, and moments of 96 bits.
pub(super) fn exact(set: &DataSet, footer: &ParquetMetaData) -> Result<()> {
    let footer = footer.file_metadata();
    let told = footer.key_value_metadata().into_iter().flatten();
    let told = told
        .into_iter()
        .any(|pair| pair.key == ARROW_SCHEMA_META_KEY);
    for column in footer.schema_descr().columns() {
        let why = match (column.converted_type(), column.physical_type()) {
            (ConvertedType::INTERVAL, _) if !told => {
                "an INTERVAL, whose months cannot be read: write it as VARCHAR, or as numbers of months, days and \
                 milliseconds"
            }
            (_, Type::INT96) => {
                "a moment of 96 bits, of which not all can be read: write it as a timestamp of microseconds"
            }
            _ => continue,
        };
        let told = format!("column `{}` is {why}", column.path().string());
        return Err(Error::new(Kind::Invalid, "take upload", set).because(told));
    }
    Ok(())
}

/// Refuses an upload that is compressed in a way that this program does not know.
pub(super) fn compressed(set: &DataSet, footer: &ParquetMetaData) -> Result<()> {
    let chunks = footer.row_groups().iter().flat_map(|group| group.columns());
    for chunk in chunks {
        match chunk.compression() {
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => {}
            other => {
                let why = format!(
                    "column `{}` is compressed by {other}: write it with zstd, snappy or uncompressed",
                    chunk.column_path().string()
                );
                return Err(Error::new(Kind::Invalid, "take upload", set).because(why));
            }
        }
    }
    Ok(())
}
