//! Keys of rows: a cheap 64-bit hash of every row to sort out most of them, and a 128-bit digest that stands for the key.
//!
//! ## Invariants
//! * **M-1** two keys are one exactly when their digests are equal. NULL equals NULL, -0.0 equals 0.0, NaN equals NaN. A
//!   digest of one column of at most 8 bytes holds the value itself; any other is BLAKE3 over an unambiguous encoding,
//!   because keys come from strangers and a collision would lose a row.

use std::hash::{BuildHasher, Hasher};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray},
    buffer::NullBuffer,
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
        Time64MicrosecondType, TimestampMicrosecondType,
    },
};

/// 128 bits that stand for a key.
pub(crate) type Digest = [u64; 2];

const NULL_HASH: u64 = 0x9E37_79B9_7F4A_7C15;
const FIRST: u64 = 0x243F_6A88_85A3_08D3;
const SECOND: u64 = 0x1319_8A2E_0370_7345;

/// The key columns of one batch.
pub(crate) struct Keys {
    columns: Vec<Column>,
    rows: usize,
}

struct Column {
    values: Values,
    nulls: Option<NullBuffer>,
}

enum Values {
    /// Values of at most 8 bytes, equal exactly when the keys are.
    Words(Vec<u64>),
    Wide(Vec<i128>),
    Text(arrow::array::StringArray),
    Bytes(arrow::array::BinaryArray),
}

/// Whether a canonical type can be a key.
pub(crate) fn is_key(kind: &DataType) -> bool {
    !kind.is_nested()
}

impl Keys {
    /// Of canonical columns that [`is_key`] accepts.
    pub(crate) fn new(columns: &[ArrayRef], rows: usize) -> Self {
        Self {
            columns: columns.iter().map(Column::new).collect(),
            rows,
        }
    }

    /// A hash of every row's key; equal keys have equal hashes.
    pub(crate) fn hashes(&self, out: &mut Vec<u64>) {
        out.clear();
        out.resize(self.rows, FIRST);
        for column in &self.columns {
            column.hash_into(out);
        }
    }

    /// The digest of one row's key.
    pub(crate) fn digest(&self, row: usize) -> Digest {
        if let [
            Column {
                values: Values::Words(words),
                nulls,
            },
        ] = self.columns.as_slice()
        {
            return match is_null(nulls.as_ref(), row) {
                true => [0, 1],
                false => [words[row], 0],
            };
        }
        let mut hasher = blake3::Hasher::new();
        for column in &self.columns {
            column.encode(row, &mut hasher);
        }
        let bytes = *hasher.finalize().as_bytes();
        let word = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .fold(0, |word, b| word << 8 | u64::from(*b))
        };
        [word(0), word(8)]
    }
}

/// Where a digest goes in a hash table.
pub(crate) fn bucket(digest: &Digest) -> u64 {
    fold(fold(FIRST, digest[0]), digest[1])
}

fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ SECOND) * u128::from(NULL_HASH);
    (product as u64) ^ ((product >> 64) as u64)
}

fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls.is_null(row))
}

impl Column {
    fn new(array: &ArrayRef) -> Self {
        let values = match array.data_type() {
            DataType::Boolean => Values::Words(booleans(array.as_boolean())),
            DataType::Int32 => words(array.as_primitive::<Int32Type>().values(), |v| {
                i64::from(v) as u64
            }),
            DataType::Date32 => words(array.as_primitive::<Date32Type>().values(), |v| {
                i64::from(v) as u64
            }),
            DataType::Int64 => words(array.as_primitive::<Int64Type>().values(), |v| v as u64),
            DataType::Timestamp(..) => words(
                array.as_primitive::<TimestampMicrosecondType>().values(),
                |v| v as u64,
            ),
            DataType::Time64(_) => words(
                array.as_primitive::<Time64MicrosecondType>().values(),
                |v| v as u64,
            ),
            DataType::Float32 => words(array.as_primitive::<Float32Type>().values(), |v| {
                one_float(f64::from(v))
            }),
            DataType::Float64 => words(array.as_primitive::<Float64Type>().values(), one_float),
            DataType::Decimal128(..) => {
                Values::Wide(array.as_primitive::<Decimal128Type>().values().to_vec())
            }
            DataType::Utf8 => Values::Text(array.as_string().clone()),
            DataType::Binary => Values::Bytes(array.as_binary().clone()),
            other => unreachable!("M-1: {other} is no key type"),
        };
        Self {
            values,
            nulls: array.nulls().cloned(),
        }
    }

    fn hash_into(&self, out: &mut [u64]) {
        let nulls = self.nulls.as_ref().filter(|nulls| nulls.null_count() > 0);
        let before = nulls.map(|_| out.to_vec());
        match &self.values {
            Values::Words(words) => {
                out.iter_mut()
                    .zip(words)
                    .for_each(|(hash, word)| *hash = fold(*hash, *word));
            }
            Values::Wide(wide) => out.iter_mut().zip(wide).for_each(|(hash, value)| {
                *hash = fold(fold(*hash, *value as u64), (*value >> 64) as u64);
            }),
            Values::Text(text) => hash_bytes(out, |row| text.value(row).as_bytes()),
            Values::Bytes(bytes) => hash_bytes(out, |row| bytes.value(row)),
        }
        // What lies under a NULL is arbitrary: a constant takes its place.
        if let Some((nulls, before)) = nulls.zip(before) {
            for row in (0..out.len()).filter(|row| nulls.is_null(*row)) {
                out[row] = fold(before[row], NULL_HASH);
            }
        }
    }

    /// Tag, then the value: fixed width, or its length before its bytes.
    fn encode(&self, row: usize, out: &mut blake3::Hasher) {
        if is_null(self.nulls.as_ref(), row) {
            out.update(&[0]);
            return;
        }
        out.update(&[1]);
        match &self.values {
            Values::Words(words) => out.update(&words[row].to_le_bytes()),
            Values::Wide(wide) => out.update(&wide[row].to_le_bytes()),
            Values::Text(text) => framed(out, text.value(row).as_bytes()),
            Values::Bytes(bytes) => framed(out, bytes.value(row)),
        };
    }
}

fn framed<'a>(out: &'a mut blake3::Hasher, bytes: &[u8]) -> &'a mut blake3::Hasher {
    out.update(&(bytes.len() as u64).to_le_bytes())
        .update(bytes)
}

fn hash_bytes<'a>(out: &mut [u64], value: impl Fn(usize) -> &'a [u8]) {
    let state = foldhash::fast::FixedState::with_seed(FIRST);
    for (row, hash) in out.iter_mut().enumerate() {
        let mut hasher = state.build_hasher();
        hasher.write(value(row));
        *hash = fold(*hash, hasher.finish());
    }
}

fn words<T: Copy>(values: &[T], word: impl Fn(T) -> u64) -> Values {
    Values::Words(values.iter().map(|v| word(*v)).collect())
}

fn booleans(array: &BooleanArray) -> Vec<u64> {
    array.values().iter().map(u64::from).collect()
}

/// One word per number: zeros are one, NaNs are one.
fn one_float(value: f64) -> u64 {
    if value.is_nan() {
        return f64::NAN.to_bits();
    }
    // Adding a positive zero turns a negative one positive and changes nothing else.
    (value + 0.0).to_bits()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn digests(columns: &[ArrayRef]) -> Vec<(u64, Digest)> {
        let keys = Keys::new(columns, columns[0].len());
        let mut hashes = Vec::new();
        keys.hashes(&mut hashes);
        hashes
            .into_iter()
            .enumerate()
            .map(|(row, hash)| (hash, keys.digest(row)))
            .collect()
    }

    #[test]
    fn nulls_zeros_and_nans_are_one_key_each() {
        let odd_nan = f64::from_bits(0xFFF8_0000_0000_0001);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(0.0),
            Some(-0.0),
            Some(f64::NAN),
            Some(odd_nan),
            None,
            None,
            Some(1.0),
        ]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["k"; 7]));
        for columns in [
            vec![floats.clone()],
            vec![floats.clone(), text.clone()],
            vec![text, floats],
        ] {
            let rows = digests(&columns);
            assert_eq!((rows[0], rows[2], rows[4]), (rows[1], rows[3], rows[5]));
            let distinct: std::collections::BTreeSet<_> = rows.iter().map(|r| r.1).collect();
            assert_eq!(distinct.len(), 4);
        }
    }

    #[test]
    fn neighbouring_columns_do_not_run_together() {
        let column =
            |values: [Option<&str>; 4]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let rows = digests(&[
            column([Some("ab"), Some("a"), Some(""), None]),
            column([Some("c"), Some("bc"), None, Some("")]),
        ]);
        let distinct: std::collections::BTreeSet<_> = rows.iter().map(|r| r.1).collect();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn what_lies_under_a_null_does_not_count() {
        let values = vec![5, 6].into();
        let nulls = Some(NullBuffer::from(vec![false, false]));
        let rows = digests(&[Arc::new(Int64Array::new(values, nulls))]);
        assert_eq!(rows[0], rows[1]);
    }
}
