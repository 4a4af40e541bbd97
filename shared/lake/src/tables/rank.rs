//! Sequences of change events: what orders the events of one key.
//!
//! A sequence is compared as what it is. Whole numbers, decimals and times compare by value. Text compares as the number
//! or the moment it spells: numbers exactly, however long they are, moments in UTC. Any other text is no sequence, as NULL
//! is none; columns of any other type have no order that anybody meant, and are refused.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType,
    },
};
use domain::{TableName, time::parse_nanos};
use ports::{Error, Kind, Result};

use super::types;

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// A sequence. Two of one kind compare by value; see [`Order::alike`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A value of a column that is no text.
    Value(i128),
    /// A number in text, in bytes that order as the numbers do.
    Number(Box<[u8]>),
    /// A moment in text, in nanoseconds.
    Moment(i128),
}

impl Rank {
    /// A text that [`Rank::from_text`] reads.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Value(value) => format!("value {value}"),
            Self::Moment(moment) => format!("moment {moment}"),
            Self::Number(bytes) => {
                let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("number {}", hex.concat())
            }
        }
    }

    /// The sequence of a text.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ')?;
        Some(match kind {
            "value" => Self::Value(rest.parse().ok()?),
            "moment" => Self::Moment(rest.parse().ok()?),
            "number" => {
                let pair = |at: usize| u8::from_str_radix(rest.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..rest.len()).step_by(2).map(pair).collect();
                Self::Number(bytes?.into())
            }
            _ => return None,
        })
    }
}

/// The sequence column of a model, for reading and for messages.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    table: TableName,
    column: String,
}

impl Order {
    /// A column of a canonical type; `Invalid` when the type has no order to rely on.
    pub(crate) fn new(table: &TableName, column: &str, kind: &DataType) -> Result<Self> {
        let order = Self {
            table: table.clone(),
            column: column.to_owned(),
        };
        match kind {
            DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Decimal128(..)
            | DataType::Utf8 => Ok(order),
            other => Err(order.refuse(format!(
                "it is a {}; cast it to an integer, a decimal, a timestamp or text",
                types::word(other)
            ))),
        }
    }

    /// The sequence of a row: none for NULL, and for text that is neither a number nor a moment.
    pub(crate) fn read(&self, column: &ArrayRef, row: usize) -> Option<Rank> {
        if column.is_null(row) {
            return None;
        }
        let value = match column.data_type() {
            DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
            DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
            DataType::Date32 => column.as_primitive::<Date32Type>().value(row).into(),
            DataType::Timestamp(..) => column
                .as_primitive::<TimestampMicrosecondType>()
                .value(row)
                .into(),
            DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value(row),
            DataType::Utf8 => return of_text(column.as_string::<i32>().value(row)),
            other => unreachable!("{other} was refused"),
        };
        Some(Rank::Value(value))
    }

    /// The beginning of a row's text that [`Order::read`] makes nothing of; none for NULL and blank text.
    pub(crate) fn unread(&self, column: &ArrayRef, row: usize) -> Option<String> {
        let texts = column
            .as_string_opt::<i32>()
            .filter(|texts| texts.is_valid(row))?;
        let text = texts.value(row).trim();
        (!text.is_empty() && of_text(text).is_none()).then(|| text.chars().take(SHOWN).collect())
    }

    /// The error of a column none of whose events has a sequence, one of them being this text.
    pub(crate) fn wrong(&self, shown: &str) -> Error {
        self.refuse(format!(
            "no event has a sequence: `{shown}` is neither a number nor a timestamp such as 2026-11-29T16:44:49Z; convert it \
             in the query, or name another column"
        ))
    }

    /// `Invalid` unless two sequences are of one kind.
    pub(crate) fn alike(&self, one: &Rank, other: &Rank) -> Result<()> {
        if std::mem::discriminant(one) == std::mem::discriminant(other) {
            return Ok(());
        }
        Err(self.refuse(format!(
            "it holds {} and {}, which have no common order",
            word(one),
            word(other)
        )))
    }

    fn refuse(&self, why: String) -> Error {
        let column = format!("{}.{}", self.table, self.column);
        Error::new(Kind::Invalid, "order change events by", column).because(why)
    }
}

fn word(rank: &Rank) -> &'static str {
    match rank {
        Rank::Value(_) => "values",
        Rank::Number(_) => "numbers",
        Rank::Moment(_) => "timestamps",
    }
}

fn of_text(text: &str) -> Option<Rank> {
    let text = text.trim();
    let rank = number(text).map(Rank::Number);
    rank.or_else(|| parse_nanos(text).map(Rank::Moment))
}

/// A decimal number of any length: its sign, the count of its whole digits, its digits. A negative one has all but the
/// sign turned over, and an end that is above every digit, so that more digits make it smaller.
fn number(text: &str) -> Option<Box<[u8]>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let negative = negative && whole.len() + fraction.len() > 0;
    let mut bytes = vec![u8::from(!negative)];
    bytes.extend((whole.len() as u64).to_be_bytes());
    bytes.extend(whole.bytes().chain(fraction.bytes()));
    if negative {
        bytes.iter_mut().skip(1).for_each(|byte| *byte = !*byte);
        bytes.push(u8::MAX);
    }
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Float64Array, StringArray, TimestampMicrosecondArray};

    use super::*;

    fn order(kind: &DataType) -> Result<Order> {
        Order::new(&"bronze.orders".parse().expect("a name"), "lsn", kind)
    }

    fn text(value: &str) -> Option<Rank> {
        let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
        order(&DataType::Utf8).expect("text").read(&column, 0)
    }

    #[test]
    fn numbers_in_text_are_exact_however_long() {
        let ascending = [
            "-100000000000000000000000000000000000000000001",
            "-100000000000000000000000000000000000000000000.5",
            "-100000000000000000000000000000000000000000000",
            "-12.57",
            "-12.5",
            "-12",
            "-0.001",
            "-0",
            "0.001",
            "9",
            "10",
            "010.5",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "340282366920938463463374607431768211456",
            "340282366920938463463374607431768211457",
        ];
        let ranks: Vec<Rank> = ascending
            .iter()
            .map(|value| text(value).expect("is one"))
            .collect();
        for at in 1..ranks.len() {
            assert!(ranks[at - 1] < ranks[at], "{}", ascending[at]);
        }
        for (one, other) in [("0", "-0.0"), ("7", " +007.00 "), (".5", "0.5")] {
            assert_eq!(text(one).expect("is one"), text(other).expect("is one"));
        }
    }

    #[test]
    fn a_sequence_is_what_its_text_says() {
        for value in ["7", "-12.57", "340282366920938463463374607431768211457"] {
            let rank = text(value).expect("is one");
            assert_eq!(Rank::from_text(&rank.to_text()), Some(rank));
        }
        for rank in [Rank::Value(i128::MIN), Rank::Moment(-5)] {
            assert_eq!(Rank::from_text(&rank.to_text()), Some(rank));
        }
        assert_eq!(Rank::from_text("number 0g"), None);
        assert_eq!(Rank::from_text("7"), None);
    }

    #[test]
    fn moments_in_text_compare_as_moments() {
        let ascending = [
            "1969-12-31T23:59:59.5Z",
            "2024-03-01T10:00:00+02:00",
            "2024-03-01T08:00:00.000000001Z",
            "2024-03-01 08:00:01",
            "2024-03-01T08:00:02",
            "2024-03-02",
            " 2024-03-02T00:00:00.000000001 ",
        ];
        let ranks: Vec<Rank> = ascending
            .iter()
            .map(|value| text(value).expect("is one"))
            .collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }

    #[test]
    fn what_has_no_order_is_refused_by_name() {
        let error = order(&DataType::Float64).expect_err("has no order").chain();
        assert!(
            error.contains("bronze.orders.lsn") && error.contains("DOUBLE"),
            "{error}"
        );
        let order = order(&DataType::Utf8).expect("text");
        let (one, other) = (text("5"), text("2024-03-01T08:00:00Z"));
        let error = order.alike(&one.expect("is one"), &other.expect("is one"));
        let error = error.expect_err("mixed").chain();
        assert!(error.contains("numbers and timestamps"), "{error}");
    }

    #[test]
    fn what_is_no_number_and_no_moment_is_no_sequence() {
        let order = order(&DataType::Utf8).expect("text");
        let column = |value: Option<&str>| -> ArrayRef { Arc::new(StringArray::from(vec![value])) };
        for value in ["0/16B3748", "1e3", ".", "abc", "2024-13-01", " - "] {
            assert_eq!(text(value), None, "{value}");
            let shown = order.unread(&column(Some(value)), 0);
            assert_eq!(shown.as_deref(), Some(value.trim()));
        }
        for value in [None, Some(""), Some("  "), Some("7")] {
            assert_eq!(order.unread(&column(value), 0), None, "{value:?}");
        }
        for value in ["", "  "] {
            assert_eq!(text(value), None, "{value:?}");
        }
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![None]));
        assert_eq!(order.read(&floats, 0), None);
        let told = order.wrong("abc").chain();
        assert!(
            told.contains("bronze.orders.lsn") && told.contains("`abc`"),
            "{told}"
        );
    }

    #[test]
    fn other_columns_compare_by_value() {
        let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![15, 20]));
        let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-1, 0]));
        for column in [decimals, moments] {
            let order = order(column.data_type()).expect("ordered");
            assert!(order.read(&column, 0) < order.read(&column, 1));
        }
    }
}
