//! Building a text index: spooled to a folder, merged into one segment, packed.

use std::{
    fs,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{Array, ArrayRef, StringArray},
    compute::cast,
    datatypes::DataType,
};
use bytes::Bytes;
use ports::{
    Error, Kind, Result,
    search::{Progress, ROWS_MAX},
    tables::Rows,
};
use tantivy::{
    Index, IndexSettings, TantivyDocument,
    directory::MmapDirectory,
    indexer::NoMergePolicy,
    schema::{Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions},
};
use tempfile::TempDir;

use super::{ROW, TOKENIZER, directory::Packed, directory::Ranges, unbuilt};
use crate::{
    bundle::{Content, Extent, Footer, Packer, Place},
    cache::Piece,
    feed::{self, Feed},
};

/// Bytes of postings in memory before they go to the folder.
const MEMORY: usize = 64 << 20;
/// Longest range that the tail has a copy of; longer ones are read when they are needed.
const HOT_MAX: u64 = 128 << 10;
/// Bytes that are read from the folder and sent at once.
const CHUNK: usize = 4 << 20;

/// Builds, and answers the length of the object and of its tail.
pub(crate) async fn build(
    place: Place<'_>,
    scratch: TempDir,
    rows: Rows,
    progress: &Progress,
) -> Result<(u64, u64)> {
    let columns: Vec<String> = rows
        .schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let (name, progress) = (place.name.to_owned(), progress.clone());
    let spooled = feed::through(place.name, rows, move |feed| {
        spool(&name, &scratch, &columns, feed, &progress)?;
        Spooled::of(&name, scratch, columns)
    })
    .await?;
    pack(place, spooled).await
}

fn schema(name: &str, columns: &[String]) -> Result<(Schema, Field, Vec<Field>)> {
    let mut schema = Schema::builder();
    let row = schema.add_u64_field(ROW, NumericOptions::default().set_fast());
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(TOKENIZER)
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let options = TextOptions::default().set_indexing_options(indexing);
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        if column == ROW || column.is_empty() || column.starts_with('-') {
            return Err(Error::new(Kind::Invalid, "build index", name)
                .because(format!("a column named `{column}` cannot be searched")));
        }
        fields.push(schema.add_text_field(column, options.clone()));
    }
    Ok((schema.build(), row, fields))
}

fn spool(
    name: &str,
    scratch: &TempDir,
    columns: &[String],
    feed: &mut Feed,
    progress: &Progress,
) -> Result<()> {
    let failed = |error| unbuilt(name, error);
    let (schema, row, fields) = schema(name, columns)?;
    let directory = MmapDirectory::open(scratch.path()).map_err(|error| failed(error.into()))?;
    let settings = IndexSettings::default();
    let index = Index::create(directory, schema, settings).map_err(failed)?;
    let mut writer = index.writer_with_num_threads(1, MEMORY).map_err(failed)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    let mut next = 0_u64;
    while let Some(batch) = feed.next() {
        let texts = batch.columns().iter().map(|column| text(name, column));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        for at in 0..batch.num_rows() {
            let mut document = TantivyDocument::new();
            for (column, field) in texts.iter().zip(&fields) {
                if column.is_valid(at) {
                    document.add_text(*field, column.value(at));
                }
            }
            document.add_u64(row, next);
            next += 1;
            writer.add_document(document).map_err(failed)?;
        }
        progress.add(batch.num_rows() as u64);
        if next > ROWS_MAX {
            return Err(Error::new(Kind::Invalid, "build index", name)
                .because(format!("it has more than {ROWS_MAX} rows")));
        }
    }
    if !feed.is_complete() {
        return Err(feed::cut(name));
    }
    writer.commit().map_err(failed)?;
    let segments = index.searchable_segment_ids().map_err(failed)?;
    if segments.len() > 1 {
        writer.merge(&segments).wait().map_err(failed)?;
    }
    writer.garbage_collect_files().wait().map_err(failed)?;
    writer.wait_merging_threads().map_err(failed)
}

/// A column as text, however it is stored.
fn text(name: &str, column: &ArrayRef) -> Result<StringArray> {
    let invalid = |why: String| Error::new(Kind::Invalid, "build index", name).because(why);
    let kind = column.data_type();
    let inner = match kind {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    if !matches!(
        inner,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    ) {
        return Err(invalid(format!("a column of {kind} is no text")));
    }
    let cast = cast(column, &DataType::Utf8).map_err(|error| invalid(error.to_string()))?;
    let text = cast.as_any().downcast_ref::<StringArray>().cloned();
    text.ok_or_else(|| invalid(String::from("it is no text")))
}

/// The folder of a finished index, laid out as the object will be.
struct Spooled {
    /// Removes itself.
    folder: TempDir,
    files: Vec<(String, Extent)>,
    columns: Vec<String>,
    hot: Vec<Extent>,
}

impl Spooled {
    fn of(name: &str, folder: TempDir, columns: Vec<String>) -> Result<Self> {
        let failed =
            |error: io::Error| Error::new(Kind::Unavailable, "build index", name).because(error);
        let mut named = Vec::new();
        for entry in fs::read_dir(folder.path()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file = entry.file_name().to_string_lossy().into_owned();
            // Documents are the entry's rows: nothing is read from here, but tantivy opens it.
            if !file.ends_with(".lock") {
                named.push((file, entry.metadata().map_err(failed)?.len()));
            }
        }
        named.sort();
        let mut bytes = 0;
        let mut files = Vec::with_capacity(named.len());
        for (file, length) in named {
            let start = bytes;
            files.push((file, Extent { start, length }));
            bytes += length;
        }
        let mut spooled = Self {
            folder,
            files,
            columns,
            hot: Vec::new(),
        };
        spooled.hot = spooled.opened().map_err(|error| unbuilt(name, error))?;
        Ok(spooled)
    }

    /// The ranges that opening reads.
    fn opened(&self) -> tantivy::Result<Vec<Extent>> {
        let folder = self.folder.path().to_owned();
        let files = self.files.clone();
        let seen = Arc::new(Seen {
            folder,
            files,
            ranges: Mutex::default(),
        });
        let index = Index::open(Packed::new(seen.clone(), self.files.clone()))?;
        let searcher = index.reader()?.searcher();
        for segment in searcher.segment_readers() {
            for (field, entry) in index.schema().fields() {
                if entry.is_indexed() {
                    segment.inverted_index(field)?;
                }
            }
            segment.fast_fields().u64(ROW)?;
        }
        drop(searcher);
        let mut ranges = seen.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(joined(std::mem::take(&mut *ranges)))
    }

    fn range(&self, extent: Extent) -> io::Result<Bytes> {
        let mut bytes = vec![0; usize::try_from(extent.length).unwrap_or(0)];
        read(self.folder.path(), &self.files, extent.start, &mut bytes)?;
        Ok(Bytes::from(bytes))
    }
}

/// Ranges without those that are too long, and each only once.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Extent> {
    ranges.retain(|range| range.end - range.start <= HOT_MAX);
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut hot: Vec<Extent> = Vec::new();
    for range in ranges {
        match hot.last_mut() {
            Some(last) if range.start <= last.end() => {
                last.length = last.end().max(range.end) - last.start;
            }
            _ => hot.push(Extent {
                start: range.start,
                length: range.end - range.start,
            }),
        }
    }
    hot
}

/// The folder as the object it will be, that remembers what is read of it.
#[derive(Debug)]
struct Seen {
    folder: PathBuf,
    files: Vec<(String, Extent)>,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Ranges for Seen {
    fn range(&self, range: Range<u64>) -> io::Result<(Piece, Range<usize>)> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        read(&self.folder, &self.files, range.start, &mut bytes)?;
        let mut seen = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(range);
        Ok((Piece::from(bytes), 0..length))
    }
}

fn read(folder: &Path, files: &[(String, Extent)], start: u64, into: &mut [u8]) -> io::Result<()> {
    let mut at = start;
    let mut rest = into;
    while !rest.is_empty() {
        let held = files
            .iter()
            .find(|(_, extent)| extent.start <= at && at < extent.end());
        let (file, extent) = held.ok_or(io::ErrorKind::UnexpectedEof)?;
        let here = usize::try_from(extent.end() - at).unwrap_or(usize::MAX);
        let here = here.min(rest.len());
        let (now, later) = rest.split_at_mut(here);
        fs::File::open(folder.join(file))?.read_exact_at(now, at - extent.start)?;
        at += here as u64;
        rest = later;
    }
    Ok(())
}

async fn pack(place: Place<'_>, spooled: Spooled) -> Result<(u64, u64)> {
    let mut packer = Packer::new(place);
    let spooled = Arc::new(spooled);
    match fill(&mut packer, place.name, &spooled).await {
        Ok(footer) => packer.finish(&footer).await,
        Err(error) => {
            packer.give_up().await;
            Err(error)
        }
    }
}

async fn fill(packer: &mut Packer, name: &str, spooled: &Arc<Spooled>) -> Result<Footer> {
    let failed =
        |error: io::Error| Error::new(Kind::Unavailable, "build index", name).because(error);
    for (file, _) in &spooled.files {
        let path = spooled.folder.path().join(file);
        let mut open = fs::File::open(path).map_err(failed)?;
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let mut chunk = Vec::with_capacity(CHUNK);
                (&mut open).take(CHUNK as u64).read_to_end(&mut chunk)?;
                Ok::<_, io::Error>((open, chunk))
            });
            let read = read
                .await
                .map_err(|error| failed(io::Error::other(error)))?;
            let (rest, chunk) = read.map_err(failed)?;
            open = rest;
            if chunk.is_empty() {
                break;
            }
            packer.put(Bytes::from(chunk)).await?;
        }
    }
    packer.begin_tail();
    for extent in &spooled.hot {
        packer.put(spooled.range(*extent).map_err(failed)?).await?;
    }
    Ok(Footer {
        content: Content::Text {
            files: spooled.files.clone(),
            columns: spooled.columns.clone(),
        },
        hot: spooled.hot.clone(),
        more: 0,
    })
}
