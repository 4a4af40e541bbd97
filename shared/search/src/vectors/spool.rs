//! Vectors on their way through a file: rows in, fixed records out.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
};

use arrow::{
    array::{Array, AsArray, Float32Array, RecordBatch},
    compute::cast,
    datatypes::{DataType, Float32Type},
};
use domain::entry::Metric;
use ports::{
    Error, Kind, Result,
    search::{Progress, ROWS_MAX},
};
use tempfile::TempDir;

use super::{HEAD, LENGTH_MAX, arithmetic};
use crate::feed::{self, Feed};

/// Largest number of 16 bits whose upper eight, rounded, are no more than 127.
const LARGEST: f32 = 32_512.0;

/// A file of records: row, scale, square of the length, then 16 bits a number.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    /// Records.
    pub(super) count: u64,
    /// Numbers of a vector.
    pub(super) length: usize,
    // The file is in it.
    _folder: TempDir,
}

/// What is known of a vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) row: u32,
    /// What one stands for.
    pub(super) scale: f32,
    /// The square of its length.
    pub(super) square: f32,
}

impl Head {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            word
        };
        Self {
            row: u32::from_le_bytes(word(0)),
            scale: f32::from_le_bytes(word(4)),
            square: f32::from_le_bytes(word(8)),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.row.to_le_bytes());
        out.extend_from_slice(&self.scale.to_le_bytes());
        out.extend_from_slice(&self.square.to_le_bytes());
    }
}

/// The upper eight bits, rounded, and the lower eight of a number: `256 * upper + lower`, both signed.
pub(super) fn halves(number: i16) -> (u8, u8) {
    let upper = (i32::from(number) + 128) >> 8;
    let lower = i32::from(number) - upper * 256;
    (upper.to_le_bytes()[0], lower.to_le_bytes()[0])
}

impl Spool {
    /// Takes all rows of a feed.
    pub(super) fn fill(
        name: &str,
        metric: Metric,
        folder: TempDir,
        feed: &mut Feed,
        progress: &Progress,
    ) -> Result<Self> {
        let failed =
            |error: io::Error| Error::new(Kind::Unavailable, "build index", name).because(error);
        let path = folder.path().join("vectors");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        let (mut count, mut row, mut length) = (0_u64, 0_u64, 0_usize);
        let mut record = Vec::new();
        while let Some(batch) = feed.next() {
            let vectors = Vectors::of(name, &batch)?;
            for at in 0..batch.num_rows() {
                if let Some(vector) = vectors.at(at) {
                    check(name, vector, row, &mut length)?;
                    record.clear();
                    if encode(metric, vector, row, &mut record) {
                        out.write_all(&record).map_err(failed)?;
                        count += 1;
                    }
                }
                row += 1;
            }
            progress.add(batch.num_rows() as u64);
            if row > ROWS_MAX {
                return Err(Error::new(Kind::Invalid, "build index", name)
                    .because(format!("it has more than {ROWS_MAX} rows")));
            }
        }
        if !feed.is_complete() {
            return Err(feed::cut(name));
        }
        out.flush().map_err(failed)?;
        drop(out);
        Ok(Self {
            file,
            count,
            length,
            _folder: folder,
        })
    }

    /// Bytes of a record.
    pub(super) fn record(&self) -> usize {
        HEAD + 2 * self.length
    }

    /// Records from `first` on, as many as fit.
    pub(super) fn read(&self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, first * self.record() as u64)
    }
}

/// Writes a record; none for a vector that cannot be compared: without direction where only that counts.
fn encode(metric: Metric, vector: &[f32], row: u64, record: &mut Vec<u8>) -> bool {
    let square = arithmetic::dot(vector, vector);
    let factor = match metric {
        Metric::Cosine if square == 0.0 => return false,
        Metric::Cosine => 1.0 / square.sqrt(),
        Metric::Dot | Metric::L2 => 1.0,
    };
    let largest = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs())) * factor;
    let scale = if largest == 0.0 {
        1.0
    } else {
        largest / LARGEST
    };
    Head {
        row: u32::try_from(row).unwrap_or(u32::MAX),
        scale,
        square: square * factor * factor,
    }
    .write(record);
    for number in vector {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 32512 by the scale"
        )]
        let whole = (number * factor / scale).round() as i16;
        record.extend_from_slice(&whole.to_le_bytes());
    }
    true
}

fn check(name: &str, vector: &[f32], row: u64, length: &mut usize) -> Result<()> {
    let invalid = |why: String| Err(Error::new(Kind::Invalid, "build index", name).because(why));
    if *length == 0 {
        *length = vector.len();
    }
    if vector.len() != *length {
        let (has, others) = (vector.len(), *length);
        return invalid(format!(
            "the vector of row {row} has {has} numbers, those before it {others}"
        ));
    }
    if vector.is_empty() || vector.len() > LENGTH_MAX {
        return invalid(format!("a vector has 1 to {LENGTH_MAX} numbers"));
    }
    let square = arithmetic::dot(vector, vector);
    if !square.is_finite() {
        return invalid(format!(
            "the vector of row {row} has a number that is none, or is too large"
        ));
    }
    Ok(())
}

/// A column of vectors.
struct Vectors {
    lists: arrow::array::ArrayRef,
    numbers: Float32Array,
}

impl Vectors {
    fn of(name: &str, batch: &RecordBatch) -> Result<Self> {
        let column = batch.column(0);
        let invalid = |why: String| Error::new(Kind::Invalid, "build index", name).because(why);
        let numbers = match column.data_type() {
            DataType::FixedSizeList(_, _) => column.as_fixed_size_list().values().clone(),
            DataType::List(_) => column.as_list::<i32>().values().clone(),
            DataType::LargeList(_) => column.as_list::<i64>().values().clone(),
            other => {
                return Err(invalid(format!("a column of {other} holds no vectors")));
            }
        };
        if !matches!(
            numbers.data_type(),
            DataType::Float16 | DataType::Float32 | DataType::Float64
        ) {
            let kind = numbers.data_type();
            return Err(invalid(format!(
                "its lists are of {kind}, not of floating-point numbers"
            )));
        }
        let cast =
            cast(&numbers, &DataType::Float32).map_err(|error| invalid(error.to_string()))?;
        let numbers = cast.as_primitive::<Float32Type>().clone();
        if numbers.null_count() > 0 && !fills_only_nulls(column, &numbers) {
            return Err(invalid(String::from(
                "a vector has a NULL among its numbers",
            )));
        }
        Ok(Self {
            lists: column.clone(),
            numbers,
        })
    }

    /// The vector of a row; none when it is NULL.
    fn at(&self, row: usize) -> Option<&[f32]> {
        if self.lists.is_null(row) {
            return None;
        }
        let range = bounds(&self.lists, row);
        Some(&self.numbers.values()[range])
    }
}

fn bounds(lists: &arrow::array::ArrayRef, row: usize) -> std::ops::Range<usize> {
    let index = |place: i64| usize::try_from(place).unwrap_or(usize::MAX);
    match lists.data_type() {
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            let start = usize::try_from(lists.as_fixed_size_list().value_offset(row)).unwrap_or(0);
            start..start + size
        }
        DataType::List(_) => {
            let offsets = lists.as_list::<i32>().value_offsets();
            index(offsets[row].into())..index(offsets[row + 1].into())
        }
        _ => {
            let offsets = lists.as_list::<i64>().value_offsets();
            index(offsets[row])..index(offsets[row + 1])
        }
    }
}

/// Whether all NULL numbers are of lists that are NULL themselves.
fn fills_only_nulls(lists: &arrow::array::ArrayRef, numbers: &Float32Array) -> bool {
    (0..lists.len())
        .all(|row| lists.is_null(row) || bounds(lists, row).all(|at| numbers.is_valid(at)))
}
