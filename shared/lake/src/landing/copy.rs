//! Incoming files whose rows are copied: text, and parquet of types that landing tables do not have.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, new_null_array},
    datatypes::{Schema, SchemaRef},
};
use bytes::Bytes;
use domain::{
    TableName,
    items::{BatchData, Column},
};
use engine::ingest::text::{Bad, Chunk, Decoder, TextFormat};
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStoreExt, buffered::BufWriter, path::Path};
use parquet::arrow::{AsyncArrowWriter, ParquetRecordBatchStreamBuilder};
use ports::{Error, Kind, Result, columns};

use super::{
    World,
    draft::{self, Draft},
    incoming::{Incoming, refuse},
    reader::RangeReader,
    schema,
};

/// Bytes given to the decoder at once.
const PIECE: usize = 256 << 10;

/// The format that a file's name tells; none for parquet.
pub(super) fn format(file: &Incoming) -> Result<Option<TextFormat>> {
    let extension = file
        .path
        .extension()
        .unwrap_or_default()
        .to_ascii_lowercase();
    match extension.as_str() {
        "parquet" => Ok(None),
        "ndjson" | "jsonl" | "json" => Ok(Some(TextFormat::Ndjson)),
        "csv" => Ok(Some(TextFormat::Csv)),
        _ => Err(refuse(
            file,
            "its name ends in none of .parquet, .ndjson, .jsonl, .json and .csv",
        )),
    }
}

/// A text file that was read to its end.
pub(super) struct Text {
    /// Its rows; none when it has none.
    pub(super) draft: Option<Draft>,
    /// Tells its content from another.
    pub(super) digest: String,
}

/// Reads a text file and writes its rows. A file of one chunk is read once, a longer one twice: its columns, and that
/// every line can be read, are known only at its end.
pub(super) async fn text(
    world: &World,
    table: &TableName,
    file: &Incoming,
    format: TextFormat,
    known: &[Column],
) -> Result<Text> {
    let mut sink = Sink::Keep {
        rows: 0,
        only: None,
    };
    let (found, digest) = read(world, file, Decoder::new(format, known), &mut sink).await?;
    let digest = digest.to_string();
    let only = match sink {
        Sink::Keep { rows: 0, .. } => {
            return Ok(Text {
                draft: None,
                digest,
            });
        }
        Sink::Keep { only, .. } => only,
        Sink::Write(_) => None,
    };
    if let Some(only) = only {
        let draft = draft::of_batches(world, table, &[&only], file.origin_at, Vec::new()).await?;
        return Ok(Text {
            draft: Some(draft),
            digest,
        });
    }
    let schema = Arc::new(Schema::new(columns::fields(table, &found)?));
    let mut writer = Writer::create(world, table, schema)?;
    let mut sink = Sink::Write(&mut writer);
    let (_, again) = read(world, file, Decoder::new(format, &found), &mut sink).await?;
    if again.to_string() != digest {
        return Err(refuse(file, "it changed while it was read"));
    }
    Ok(Text {
        draft: Some(writer.finish(world, file).await?),
        digest,
    })
}

/// What becomes of the batches of a file.
enum Sink<'a> {
    /// Counted; a file's only one is kept.
    Keep {
        rows: usize,
        only: Option<RecordBatch>,
    },
    Write(&'a mut Writer),
}

impl Sink<'_> {
    async fn take(&mut self, file: &Incoming, batch: RecordBatch) -> Result<()> {
        match self {
            Self::Keep { rows, only } => {
                *rows += batch.num_rows();
                *only = (*rows == batch.num_rows()).then_some(batch);
                Ok(())
            }
            Self::Write(writer) => {
                let batch = fit(&batch, &writer.schema).map_err(|e| refuse(file, e.to_string()))?;
                writer.write(&batch).await
            }
        }
    }
}

/// The batch with exactly these columns, NULL where it lacks one.
fn fit(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> std::result::Result<RecordBatch, arrow::error::ArrowError> {
    let column = |field: &Arc<arrow::datatypes::Field>| match batch.column_by_name(field.name()) {
        Some(column) => Arc::clone(column),
        None => new_null_array(field.data_type(), batch.num_rows()),
    };
    RecordBatch::try_new(
        Arc::clone(schema),
        schema.fields().iter().map(column).collect(),
    )
}

/// Decodes a whole file; returns its columns and its digest.
async fn read(
    world: &World,
    file: &Incoming,
    mut decoder: Decoder,
    sink: &mut Sink<'_>,
) -> Result<(Vec<Column>, Digest)> {
    let mut digest = Digest::default();
    let mut bytes = world.objects.get(&file.path).await?.into_stream();
    while let Some(more) = bytes.next().await {
        let more = more?;
        for piece in more.chunks(PIECE) {
            digest.add(piece);
            for batch in batches(file, decoder.push(piece))? {
                sink.take(file, batch).await?;
            }
        }
    }
    for batch in batches(file, decoder.finish())? {
        sink.take(file, batch).await?;
    }
    Ok((decoder.columns(), digest))
}

/// The batches of some chunks; the first row that could not be read refuses the file.
fn batches(
    file: &Incoming,
    chunks: std::result::Result<Vec<Chunk>, Bad>,
) -> Result<Vec<RecordBatch>> {
    let chunks = chunks.map_err(|bad| refuse(file, bad.to_string()))?;
    if let Some(reject) = chunks.iter().flat_map(|chunk| &chunk.rejects).next() {
        return Err(refuse(
            file,
            format!("line {}: {}", reject.line, reject.reason),
        ));
    }
    Ok(chunks.into_iter().filter_map(|chunk| chunk.rows).collect())
}

/// Copies a parquet file into the types of landing columns.
pub(super) async fn parquet(
    world: &World,
    table: &TableName,
    file: &Incoming,
    builder: ParquetRecordBatchStreamBuilder<RangeReader>,
    schema: SchemaRef,
) -> Result<Draft> {
    let unreadable = |e: ::parquet::errors::ParquetError| refuse(file, e.to_string());
    let mut writer = Writer::create(world, table, schema)?;
    let mut rows = builder.build().map_err(unreadable)?;
    while let Some(batch) = rows.try_next().await.map_err(unreadable)? {
        if batch.num_rows() > 0 {
            let batch = schema::canonical(table, batch)?;
            let batch = fit(&batch, &writer.schema).map_err(|e| refuse(file, e.to_string()))?;
            writer.write(&batch).await?;
        }
    }
    writer.finish(world, file).await
}

/// An object being written, row group by row group.
struct Writer {
    path: Path,
    schema: SchemaRef,
    rows: u64,
    writer: AsyncArrowWriter<BufWriter>,
}

impl Writer {
    fn create(world: &World, table: &TableName, schema: SchemaRef) -> Result<Self> {
        let path = draft::object_path(world, table);
        let buffer = BufWriter::new(Arc::clone(&world.objects), path.clone());
        let properties = draft::properties(&schema).map_err(|e| unwritable(&path, e))?;
        let writer = AsyncArrowWriter::try_new(buffer, Arc::clone(&schema), Some(properties))
            .map_err(|e| unwritable(&path, e))?;
        Ok(Self {
            path,
            schema,
            rows: 0,
            writer,
        })
    }

    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer
            .write(batch)
            .await
            .map_err(|e| unwritable(&self.path, e))
    }

    /// The object is durable, and the draft names it.
    async fn finish(mut self, world: &World, file: &Incoming) -> Result<Draft> {
        self.writer
            .finish()
            .await
            .map_err(|e| unwritable(&self.path, e))?;
        let size = world.objects.head(&self.path).await?.size;
        Ok(Draft {
            rows: self.rows,
            columns: schema::columns_of(&self.schema),
            origin_at: file.origin_at,
            data: BatchData::Object {
                path: self.path.to_string(),
                size,
            },
            bytes: Bytes::new(),
            marks: Vec::new(),
        })
    }
}

fn unwritable(path: &Path, error: ::parquet::errors::ParquetError) -> Error {
    Error::new(Kind::Unavailable, "write landing object", path).because(error)
}

/// FNV-1a of 64 bits: stable between versions, and enough to tell a file from one that took its name.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
