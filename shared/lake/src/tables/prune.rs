//! Which files and row groups may hold a key of the batch, by their column bounds.

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray},
    datatypes::{
        ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type,
        Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
    },
};

/// Above this many points of a column only their ends are kept.
const POINTS_MAX: usize = 1 << 20;

/// The keys of a batch, column by column.
#[derive(Debug)]
pub(crate) struct Ranges {
    columns: Vec<Range>,
}

#[derive(Debug, Default)]
struct Range {
    has_null: bool,
    /// NaN is in no bounds.
    has_nan: bool,
    points: Points,
}

#[derive(Debug, Default)]
enum Points {
    #[default]
    None,
    /// In an order-keeping form; sorted once complete.
    Numbers(Vec<i128>),
    /// The ends of too many numbers.
    Span(i128, i128),
    Bytes(Vec<u8>, Vec<u8>),
}

/// What is known of one column of a file or row group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known<'a> {
    pub min: Option<&'a ArrayRef>,
    pub max: Option<&'a ArrayRef>,
    pub nulls: Option<u64>,
}

impl Ranges {
    /// For so many key columns.
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns: (0..columns).map(|_| Range::default()).collect(),
        }
    }

    /// Takes in the key columns of a batch.
    pub(crate) fn add(&mut self, columns: &[ArrayRef]) {
        self.columns
            .iter_mut()
            .zip(columns)
            .for_each(|(range, column)| range.add(column));
    }

    /// Ends the taking in.
    pub(crate) fn finish(&mut self) {
        for range in &mut self.columns {
            if let Points::Numbers(points) = &mut range.points {
                points.sort_unstable();
                points.dedup();
            }
        }
    }

    /// Whether rows of which this is known of key column `at` may hold one of the keys.
    pub(crate) fn may_hold(&self, at: usize, known: Known<'_>) -> bool {
        self.columns
            .get(at)
            .is_none_or(|range| range.may_hold(known))
    }
}

impl Range {
    fn add(&mut self, column: &ArrayRef) {
        self.has_null |= column.null_count() > 0;
        let numbers = numbers(column);
        match numbers {
            Some(numbers) => {
                self.has_nan |= numbers.contains(&None);
                self.points.add_numbers(numbers.into_iter().flatten());
            }
            None => {
                let values = bytes(column).unwrap_or_default().into_iter().flatten();
                values.for_each(|value| self.points.add_bytes(value));
            }
        }
    }

    fn may_hold(&self, known: Known<'_>) -> bool {
        if self.has_nan || (self.has_null && known.nulls != Some(0)) {
            return true;
        }
        let (Some(min), Some(max)) = (known.min, known.max) else {
            return true;
        };
        let ends = || Some((number(min)?, number(max)?));
        match &self.points {
            Points::None => false,
            Points::Numbers(points) => ends().is_none_or(|(min, max)| {
                points
                    .get(points.partition_point(|p| *p < min))
                    .is_some_and(|p| *p <= max)
            }),
            Points::Span(low, high) => ends().is_none_or(|(min, max)| *low <= max && *high >= min),
            Points::Bytes(low, high) => match (bytes(min), bytes(max)) {
                (Some(min), Some(max)) => {
                    min[0].is_none_or(|min| min <= high.as_slice())
                        && max[0].is_none_or(|max| max >= low.as_slice())
                }
                _ => true,
            },
        }
    }
}

impl Points {
    fn add_numbers(&mut self, numbers: impl Iterator<Item = i128>) {
        if matches!(self, Self::None | Self::Bytes(..)) {
            *self = Self::Numbers(Vec::new());
        }
        match self {
            Self::Numbers(points) => {
                points.extend(numbers);
                if points.len() > POINTS_MAX {
                    let min = points.iter().copied().min().unwrap_or(i128::MIN);
                    let max = points.iter().copied().max().unwrap_or(i128::MAX);
                    *self = Self::Span(min, max);
                }
            }
            Self::Span(min, max) => numbers.for_each(|number| {
                *min = (*min).min(number);
                *max = (*max).max(number);
            }),
            Self::None | Self::Bytes(..) => {}
        }
    }

    fn add_bytes(&mut self, value: &[u8]) {
        match self {
            Self::Bytes(min, _) if value < min.as_slice() => *min = value.to_vec(),
            Self::Bytes(_, max) if value > max.as_slice() => *max = value.to_vec(),
            Self::Bytes(..) => {}
            Self::None | Self::Numbers(_) | Self::Span(..) => {
                *self = Self::Bytes(value.to_vec(), value.to_vec());
            }
        }
    }
}

fn number(one: &ArrayRef) -> Option<i128> {
    numbers(one)?.first().copied().flatten()
}

/// Values that are not NULL in a form that keeps their order, none for NaN; none for text and bytes.
fn numbers(column: &ArrayRef) -> Option<Vec<Option<i128>>> {
    fn map<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        number: impl Fn(T::Native) -> Option<i128>,
    ) -> Vec<Option<i128>> {
        let values: &PrimitiveArray<T> = column.as_primitive();
        values.iter().flatten().map(number).collect()
    }
    Some(match column.data_type() {
        DataType::Boolean => column
            .as_boolean()
            .iter()
            .flatten()
            .map(|v| Some(i128::from(v)))
            .collect(),
        DataType::Int32 => map::<Int32Type>(column, |v| Some(v.into())),
        DataType::Date32 => map::<Date32Type>(column, |v| Some(v.into())),
        DataType::Int64 => map::<Int64Type>(column, |v| Some(v.into())),
        DataType::Timestamp(..) => map::<TimestampMicrosecondType>(column, |v| Some(v.into())),
        DataType::Time64(_) => map::<Time64MicrosecondType>(column, |v| Some(v.into())),
        DataType::Decimal128(..) => map::<Decimal128Type>(column, Some),
        DataType::Float32 => map::<Float32Type>(column, |v| float(v.into())),
        DataType::Float64 => map::<Float64Type>(column, float),
        _ => return None,
    })
}

fn float(value: f64) -> Option<i128> {
    // The bits of a float count upwards from zero; a negative one counts downwards. Both zeros are 0.
    let bits = i128::from(value.abs().to_bits());
    (!value.is_nan()).then_some(if value.is_sign_negative() {
        -bits
    } else {
        bits
    })
}

fn bytes(column: &ArrayRef) -> Option<Vec<Option<&[u8]>>> {
    Some(match column.data_type() {
        DataType::Utf8 => column
            .as_string::<i32>()
            .iter()
            .map(|v| v.map(str::as_bytes))
            .collect(),
        DataType::Binary => column.as_binary::<i32>().iter().collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn check(keys: ArrayRef, min: ArrayRef, max: ArrayRef, nulls: u64, expected: bool) {
        let mut ranges = Ranges::new(1);
        ranges.add(&[keys]);
        ranges.finish();
        let known = Known {
            min: Some(&min),
            max: Some(&max),
            nulls: Some(nulls),
        };
        assert_eq!(
            ranges.may_hold(0, known),
            expected,
            "{ranges:?} in {min:?} to {max:?}"
        );
    }

    #[test]
    fn numbers_prune_by_gaps() {
        let one = |v: i64| Arc::new(Int64Array::from(vec![v])) as ArrayRef;
        let keys = || Arc::new(Int64Array::from(vec![Some(-5), Some(100)])) as ArrayRef;
        check(keys(), one(-4), one(99), 0, false);
        check(keys(), one(-5), one(-5), 0, true);
        check(keys(), one(100), one(900), 9, true);
        let with_null = Arc::new(Int64Array::from(vec![Some(-5), None])) as ArrayRef;
        check(with_null.clone(), one(5), one(9), 1, true);
        check(with_null, one(5), one(9), 0, false);
    }

    #[test]
    fn nan_prunes_nothing_and_zeros_are_one() {
        let one = |v: f64| Arc::new(Float64Array::from(vec![v])) as ArrayRef;
        check(one(f64::NAN), one(5.0), one(6.0), 0, true);
        check(one(0.0), one(-1.0), one(-0.0), 0, true);
        check(one(-2.0), one(-1.0), one(3.0), 0, false);
    }

    #[test]
    fn text_prunes_by_its_ends() {
        let one = |v: &str| Arc::new(StringArray::from(vec![v])) as ArrayRef;
        let keys = || Arc::new(StringArray::from(vec!["m", "q"])) as ArrayRef;
        check(keys(), one("a"), one("lz"), 0, false);
        check(keys(), one("n"), one("o"), 0, true);
    }
}
