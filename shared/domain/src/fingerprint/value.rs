//! Arguments as values, each of one type.

use super::{Decimal, Integer};

/// A moment or a span in seconds and nanoseconds: of a moment since 1970-01-01, of a span below zero with the seconds
/// rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds after them, below a billion.
    pub nanos: u32,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number of any size.
    Int(Integer),
    /// A floating-point number. There is one NaN and one zero.
    Float(f64),
    /// A decimal number: 1.50 is 1.5.
    Decimal(Decimal),
    /// Text, as it is: spellings of one letter by several code points differ.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i64),
    /// Nanoseconds since midnight, below a day.
    Time(u64),
    /// Date and time without a zone.
    DateTime(Moment),
    /// A moment. The zone it was written in is no part of it.
    Instant(Moment),
    /// A span of time.
    Duration(Moment),
    /// A UUID.
    Uuid([u8; 16]),
    /// Values in order.
    List(Vec<Self>),
    /// Values in order, of another type than a list.
    Tuple(Vec<Self>),
    /// Values in no order; equal ones count once.
    Set(Vec<Self>),
    /// Values by keys of any type, in no order.
    Map(Vec<(Self, Self)>),
    /// Named fields in no order, of a named type.
    Record {
        /// The type's full name.
        name: String,
        /// Its fields.
        fields: Vec<(String, Self)>,
    },
    /// A query that is still to be run.
    Query {
        /// Whose SQL it is.
        dialect: String,
        /// The alias of the database it runs in.
        database: String,
        /// The statement.
        sql: String,
        /// Its parameters.
        parameters: Vec<Self>,
    },
    /// Something without a value of its own: a connection, a closure. Its type, for the error.
    Opaque(String),
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Value {
            fn from(value: $kind) -> Self {
                Self::Int(Integer::from(i128::from(value)))
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}
