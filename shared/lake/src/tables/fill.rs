//! Writing events with the values that they keep: the rows of the change and of the table that have them are picked out,
//! however they are held, and no others are read.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array, new_null_array},
    compute::{cast, concat_batches, interleave, take},
    datatypes::{DataType, SchemaRef},
};
use ports::{Error, Kind, Result, tables::FilePart};
use roaring::RoaringTreemap;

use super::{
    columns::{ORIGINS, batch_of},
    gaps::{Filled, Filling, Source},
    intake::{Rest, by_file, keep},
    origins::to_text,
    rewrite::pick,
    stage::Stage,
    write::{NewFile, Writer},
};

/// Rows with values from elsewhere that are put together at once, before it is known how large they are.
const FIRST_ROWS: usize = 1_024;

/// What was written of a change.
pub(super) struct Written {
    /// Files that are done.
    pub files: Vec<NewFile>,
    /// Writes the rest.
    pub writer: Writer,
    /// Rows of the files to be deleted again, numbered across them.
    pub unstored: RoaringTreemap,
    /// The rows that were asked for.
    pub late: Option<RecordBatch>,
}

/// Rows that values are taken from.
struct Donors {
    batch: RecordBatch,
    /// Their numbers, in order; with the place of the first, by file when they are the table's.
    places: BTreeMap<usize, (RoaringTreemap, u64)>,
}

/// Some rows of a change none of which is stored.
pub(super) async fn only(
    stage: &Stage<'_>,
    rest: Rest,
    rows: &RoaringTreemap,
) -> Result<Option<RecordBatch>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let donors = match rest {
        Rest::Held(batches) => held(stage, &batches, rows.clone())?,
        Rest::Written(writer) => reread(stage, &writer.finish().await?, rows.clone()).await?,
    };
    Ok(Some(donors.batch))
}

/// Writes the rows of a change, less those `without`, and those with values from elsewhere; gives back the rows `late`.
pub(super) async fn write(
    stage: &Stage<'_>,
    filling: &Filling,
    names: Option<usize>,
    rest: Rest,
    without: RoaringTreemap,
    late: &RoaringTreemap,
) -> Result<Written> {
    if filling.rows.is_empty() && late.is_empty() {
        let (writer, unstored) = rest.write(without, stage.target()).await?;
        let files = Vec::new();
        return Ok(Written {
            files,
            writer,
            unstored,
            late: None,
        });
    }
    let filled: RoaringTreemap = filling.rows.iter().map(|row| row.event).collect();
    let without = without | filled;
    let columns = &stage.draft.columns.file;
    let (change, files, writer, unstored) = match rest {
        Rest::Held(batches) => {
            let batches = batches.into_iter().map(|batch| padded(batch, columns));
            let batches: Vec<RecordBatch> = batches.collect::<Result<_>>()?;
            let rest = Rest::Held(batches.clone());
            let (writer, unstored) = rest.write(without, stage.target()).await?;
            (OfChange::Held(batches), Vec::new(), writer, unstored)
        }
        Rest::Written(writer) => {
            let files = writer.finish().await?;
            stage.remember(&files);
            (
                OfChange::Written,
                files,
                Writer::new(stage.target()),
                without,
            )
        }
    };
    // Rows with values from elsewhere may be as many as the change has events, whose rows are not held either; and these values
    // are the wide ones, so that it shows only once some are there how many fit.
    let limits = stage.lake.limits;
    let most = usize::try_from(limits.held_rows).unwrap_or(usize::MAX);
    let (mut left, mut portion) = (filling.rows.as_slice(), FIRST_ROWS);
    while !left.is_empty() {
        let (rows, others) = left.split_at(portion.min(most).clamp(1, left.len()));
        left = others;
        let mut wanted: RoaringTreemap = rows.iter().map(|row| row.event).collect();
        let mut of_table = BTreeMap::<usize, RoaringTreemap>::new();
        let anew = rows.iter().filter_map(|row| row.anew);
        for (file, row) in anew {
            of_table.entry(file).or_default().insert(row);
        }
        for (_, source) in rows.iter().flat_map(|row| &row.sources) {
            match source {
                Source::Change(row) => drop(wanted.insert(*row)),
                Source::Stored(file, row) => drop(of_table.entry(*file).or_default().insert(*row)),
                Source::Nothing => {}
            }
        }
        let stored = stored(stage, of_table).await?;
        let change = change.pick(stage, &files, wanted).await?;
        let batch = build(rows, columns, (names, filling.place), &change, &stored)?;
        let bytes = batch.get_array_memory_size().max(1);
        let fair = rows.len().saturating_mul(limits.held_bytes) / bytes;
        portion = fair.clamp(1, portion.saturating_mul(8));
        if !writer.write(batch).await {
            // Why shows when the writer is finished.
            break;
        }
    }
    let late = match late.is_empty() {
        true => None,
        false => Some(change.pick(stage, &files, late.clone()).await?.batch),
    };
    Ok(Written {
        files,
        writer,
        unstored,
        late,
    })
}

/// Where the rows of the change are.
enum OfChange {
    /// In memory.
    Held(Vec<RecordBatch>),
    /// In files that are done.
    Written,
}

impl OfChange {
    async fn pick(
        &self,
        stage: &Stage<'_>,
        files: &[NewFile],
        wanted: RoaringTreemap,
    ) -> Result<Donors> {
        match self {
            Self::Held(batches) => held(stage, batches, wanted),
            Self::Written => reread(stage, files, wanted).await,
        }
    }
}

/// A batch with NULL in the columns that have come behind its own.
fn padded(batch: RecordBatch, to: &SchemaRef) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let mut columns = batch.columns().to_vec();
    let more = to.fields().iter().skip(columns.len());
    columns.extend(more.map(|field| new_null_array(field.data_type(), rows)));
    batch_of(to, columns, rows)
}

/// Rows of the change that are in memory.
fn held(stage: &Stage<'_>, batches: &[RecordBatch], wanted: RoaringTreemap) -> Result<Donors> {
    let mut first = 0;
    let mut picked = Vec::new();
    for batch in batches {
        let rows = first..first + batch.num_rows() as u64;
        first = rows.end;
        if wanted.range_cardinality(rows.clone()) > 0 {
            let mask: Vec<bool> = rows.map(|row| wanted.contains(row)).collect();
            picked.push(keep(batch, mask.into())?);
        }
    }
    let places = BTreeMap::from([(0, (wanted, 0))]);
    Ok(Donors {
        batch: concat(&stage.draft.columns.file, &picked)?,
        places,
    })
}

/// Rows of the change that are in files already.
async fn reread(stage: &Stage<'_>, files: &[NewFile], wanted: RoaringTreemap) -> Result<Donors> {
    let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
    let columns = &stage.draft.columns;
    let mut picked = Vec::new();
    for (file, rows) in files.iter().zip(by_file(files, &wanted)) {
        let part = Arc::new(FilePart {
            path: file.path.clone(),
            size: file.size,
            rows: file.rows,
            first_sequence: None,
            deleted: None,
            bounds: file.bounds.clone(),
        });
        picked.extend(pick(objects, footers, part, columns, &rows).await?);
    }
    let places = BTreeMap::from([(0, (wanted, 0))]);
    Ok(Donors {
        batch: concat(&columns.file, &picked)?,
        places,
    })
}

/// Rows of the table.
async fn stored(stage: &Stage<'_>, wanted: BTreeMap<usize, RoaringTreemap>) -> Result<Donors> {
    let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
    let columns = &stage.draft.columns;
    let (mut picked, mut places, mut first) = (Vec::new(), BTreeMap::new(), 0);
    for (at, rows) in wanted {
        let base = stage.base.as_ref().expect("what was found is in a table");
        let part = base.files[at].part.clone();
        picked.extend(pick(objects, footers, part, columns, &rows).await?);
        let next = first + rows.len();
        places.insert(at, (rows, first));
        first = next;
    }
    Ok(Donors {
        batch: concat(&columns.file, &picked)?,
        places,
    })
}

fn concat(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
    concat_batches(schema, batches).map_err(corrupt)
}

fn corrupt(error: arrow::error::ArrowError) -> Error {
    Error::new(Kind::Corrupt, "keep", "unchanged values").because(error)
}

impl Donors {
    /// Place of a row in the batch.
    fn place(&self, file: usize, row: u64) -> usize {
        let place = self.places.get(&file).map(|(rows, first)| {
            let before = rows.rank(row).saturating_sub(1);
            usize::try_from(first + before).unwrap_or(usize::MAX)
        });
        place.unwrap_or(usize::MAX)
    }

    /// A column, in the type that the table has it in.
    fn column(&self, at: usize, kind: &DataType) -> Result<ArrayRef> {
        let column = self.batch.column(at);
        match column.data_type() == kind {
            true => Ok(column.clone()),
            false => cast(column, kind).map_err(corrupt),
        }
    }
}

/// Rows, with all their values.
fn build(
    rows: &[Filled],
    schema: &SchemaRef,
    (names, place): (Option<usize>, Option<usize>),
    change: &Donors,
    stored: &Donors,
) -> Result<RecordBatch> {
    let own = rows.iter().map(|row| change.place(0, row.event));
    let own: Vec<usize> = own.collect();
    let places: UInt64Array = own.iter().map(|place| Some(*place as u64)).collect();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (at, field) in schema.fields().iter().enumerate() {
        let kind = field.data_type();
        if names == Some(at) {
            columns.push(names_of(rows, schema));
            continue;
        }
        if field.name() == ORIGINS {
            let texts = rows.iter().map(|row| to_text(&row.origins, schema));
            columns.push(Arc::new(texts.collect::<StringArray>()));
            continue;
        }
        let source = |row: &Filled| {
            let mut sources = row.sources.iter();
            let found = sources.find(|(column, _)| *column == at);
            let anew = row.anew.filter(|_| place != Some(at));
            let anew = anew.map(|(file, number)| Source::Stored(file, number));
            found.map(|(_, source)| *source).or(anew)
        };
        let sources: Vec<_> = rows.iter().map(source).collect();
        let kept = change.column(at, kind)?;
        if sources.iter().all(Option::is_none) {
            columns.push(take(&kept, &places, None).map_err(corrupt)?);
            continue;
        }
        let (stored_rows, none) = (stored.column(at, kind)?, new_null_array(kind, 1));
        let pick = |(own, source): (&usize, &Option<Source>)| match source {
            None => (0, *own),
            Some(Source::Change(row)) => (0, change.place(0, *row)),
            Some(Source::Stored(file, row)) => (1, stored.place(*file, *row)),
            Some(Source::Nothing) => (2, 0),
        };
        let picks: Vec<_> = own.iter().zip(&sources).map(pick).collect();
        let all: [&dyn Array; 3] = [&kept, &stored_rows, &none];
        columns.push(interleave(&all, &picks).map_err(corrupt)?);
    }
    batch_of(schema, columns, own.len())
}

/// Of each row the JSON array of what it has no value for; NULL when it has all.
fn names_of(rows: &[Filled], schema: &SchemaRef) -> ArrayRef {
    let missing = |row: &Filled| {
        let lost = row.origins.iter().filter(|(_, origin)| !origin.known);
        let names = lost.map(|(at, _)| schema.field(at).name().as_str());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| serde_json::json!(names).to_string())
    };
    Arc::new(rows.iter().map(missing).collect::<StringArray>())
}
