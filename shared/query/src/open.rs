//! Opening one part of a scan: its rows, in the columns asked for, `_seq` counted where the file does not hold it.

use std::{ops::Range, sync::Arc};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array},
        compute::{CastOptions, cast_with_options},
        datatypes::{Int64Type, Schema, SchemaRef},
    },
    common::{DataFusionError, Result},
    parquet::arrow::{ProjectionMask, async_reader::ParquetRecordBatchStreamBuilder},
};
use domain::SEQUENCE;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use ports::{Error, Kind, query::ROW, tables::FilePart};

use crate::{
    footers::{Footers, damaged},
    model::{external, path},
    parts::{Slice, Window},
    rows,
};

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// What comes out of every part.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Columns asked for.
    pub(crate) output: SchemaRef,
    /// Opens files.
    pub(crate) footers: Arc<Footers>,
}

/// Rows of a batch in the window. Sequences ascend within a batch; a batch without them is read whole.
pub(crate) fn rows_within(batch: &RecordBatch, window: Window) -> Range<usize> {
    use datafusion::arrow::array::AsArray;
    let Some(sequences) = batch
        .column_by_name(SEQUENCE)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
    else {
        return 0..batch.num_rows();
    };
    let upto = |limit: u64| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        sequences
            .values()
            .partition_point(|sequence| *sequence <= limit)
    };
    let start = if window.after == 0 {
        0
    } else {
        upto(window.after)
    };
    start..upto(window.through).max(start)
}

impl Shape {
    /// The rows of one slice.
    pub(crate) async fn open(self, slice: Slice, batch_rows: usize) -> Result<Batches> {
        match slice {
            Slice::Memory(batch) => Ok(self.memory(batch, batch_rows)),
            Slice::File(file, ranges) => self.file(file, ranges, batch_rows).await,
        }
    }

    /// The column that is counted where a file does not hold it.
    fn counter(&self) -> &'static str {
        match self.output.column_with_name(ROW) {
            Some(_) => ROW,
            None => SEQUENCE,
        }
    }

    fn memory(self, batch: RecordBatch, batch_rows: usize) -> Batches {
        let rows = batch.num_rows();
        let starts = (0..rows).step_by(batch_rows.max(1));
        let batches = starts.map(move |start| {
            let slice = batch.slice(start, batch_rows.min(rows - start));
            self.assemble(&slice, None)
        });
        stream::iter(batches).boxed()
    }

    async fn file(
        self,
        file: Arc<FilePart>,
        ranges: Vec<Range<u64>>,
        batch_rows: usize,
    ) -> Result<Batches> {
        let mut sequences = Sequences::new(&file, ranges.clone());
        let counted = file.first_sequence.is_some();
        let counter = self.counter();
        let stored = |name: &str| !(counted && name == counter);
        if !self
            .output
            .fields()
            .iter()
            .any(|field| stored(field.name()))
        {
            return Ok(self.sequences_only(sequences, batch_rows));
        }
        let reader = self.footers.open(path(&file)?, file.size);
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        if rows != file.rows {
            let told = format!("{} rows were recorded, the file has {rows}", file.rows);
            return Err(external(
                Error::new(Kind::Corrupt, "read file", &file.path).because(told),
            ));
        }
        let columns = self
            .output
            .fields()
            .iter()
            .filter(|field| stored(field.name()));
        let roots: Vec<usize> = columns
            .filter_map(|field| builder.schema().index_of(field.name()).ok())
            .collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let builder = builder.with_projection(mask).with_batch_size(batch_rows);
        let builder = match ranges.as_slice() {
            [all] if *all == (0..rows) => builder,
            some => builder.with_row_selection(rows::selection(some, rows)),
        };
        let stream = builder
            .build()?
            .map_err(move |error| DataFusionError::from(damaged(&file.path, error)))
            .map(move |batch| {
                let batch = batch?;
                let sequences = counted.then(|| sequences.take(batch.num_rows()));
                self.assemble(&batch, sequences)
            });
        Ok(stream.boxed())
    }

    /// Nothing of the file is needed but its row count, which is known.
    fn sequences_only(self, mut sequences: Sequences, batch_rows: usize) -> Batches {
        let batches = std::iter::from_fn(move || {
            let next = sequences.take(batch_rows);
            let rows = next.len();
            (rows > 0).then(|| self.rows(&Schema::empty(), &[], rows, Some(next)))
        });
        stream::iter(batches).boxed()
    }

    fn assemble(&self, batch: &RecordBatch, sequences: Option<Int64Array>) -> Result<RecordBatch> {
        self.rows(
            batch.schema_ref(),
            batch.columns(),
            batch.num_rows(),
            sequences,
        )
    }

    /// Puts columns in order: by name, in the table's type, NULL where the part has no such column.
    fn rows(
        &self,
        schema: &Schema,
        columns: &[ArrayRef],
        rows: usize,
        sequences: Option<Int64Array>,
    ) -> Result<RecordBatch> {
        let sequences = sequences.map(|sequences| Arc::new(sequences) as ArrayRef);
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let counter = self.counter();
        let column = |field: &datafusion::arrow::datatypes::FieldRef| {
            let kind = field.data_type();
            match (&sequences, schema.index_of(field.name())) {
                (Some(sequences), _) if field.name() == counter => Ok(Arc::clone(sequences)),
                (_, Ok(index)) if columns[index].data_type() == kind => {
                    Ok(Arc::clone(&columns[index]))
                }
                (_, Ok(index)) => cast_with_options(&columns[index], kind, &strict),
                (_, Err(_)) => Ok(new_null_array(kind, rows)),
            }
        };
        let columns = self
            .output
            .fields()
            .iter()
            .map(column)
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.output),
            columns,
            &options,
        )?)
    }
}

/// Sequences of a file's rows, counted as batches come.
struct Sequences {
    first: u64,
    ranges: std::vec::IntoIter<Range<u64>>,
    current: Range<u64>,
}

impl Sequences {
    fn new(file: &FilePart, ranges: Vec<Range<u64>>) -> Self {
        let first = file.first_sequence.unwrap_or(0);
        Self {
            first,
            ranges: ranges.into_iter(),
            current: 0..0,
        }
    }

    /// The next `count` sequences; fewer at the end.
    fn take(&mut self, count: usize) -> Int64Array {
        let mut values = Vec::with_capacity(count);
        while values.len() < count {
            if self.current.is_empty() {
                match self.ranges.next() {
                    Some(next) => self.current = next,
                    None => break,
                }
            }
            let some = (count - values.len()) as u64;
            let end = self.current.end.min(self.current.start + some);
            let sequences = self.current.start + self.first..end + self.first;
            values.extend(sequences.map(|sequence| i64::try_from(sequence).unwrap_or(i64::MAX)));
            self.current.start = end;
        }
        Int64Array::from(values)
    }
}
