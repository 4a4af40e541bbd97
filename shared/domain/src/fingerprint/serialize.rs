//! Arguments of Rust's own types as values, by way of `serde`.
//!
//! | serde's word | value |
//! |---|---|
//! | integers, `bool`, floats, text, bytes | the same; `char` is text |
//! | `Some(x)` | `x`; where `x` itself is nothing, or a `Some` that had to be told apart, a record `Some` around it |
//! | sequences; tuples | lists; tuples |
//! | maps | maps, in no order |
//! | structs, variants | records by the name of the type, or `Type::Variant` |
//!
//! A set that serializes in no particular order (`HashSet`) is a list in that order: sort it, or pass a `BTreeSet`.

use std::fmt;

use serde::ser::{self, Serialize};

use super::{DEPTH_MAX, Unencodable, Value};

/// The name of the record around a `Some` that would else look like a `None`.
const SOME: &str = "Some";

/// An argument as a value.
///
/// # Errors
/// What has no encoding, by its path below `path`: what its type refuses to serialize, or nests too deep.
pub fn to_value<T: Serialize + ?Sized>(path: &str, value: &T) -> Result<Value, Unencodable> {
    let at = At {
        path: path.to_owned(),
        depth: 0,
    };
    value.serialize(at).map_err(|refused| Unencodable {
        path: refused.path.unwrap_or_else(|| path.to_owned()),
        why: refused.why,
    })
}

/// Why a value has no encoding; the path is put in by the first that knows it.
#[derive(Debug)]
struct Refused {
    path: Option<String>,
    why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: None,
            why: format!("cannot be serialized: {message}"),
        }
    }
}

/// Where a value stands.
#[derive(Clone)]
struct At {
    path: String,
    depth: usize,
}

impl At {
    /// A value below this one.
    fn below<T: Serialize + ?Sized>(&self, step: &str, value: &T) -> Result<Value, Refused> {
        let at = Self {
            path: format!("{}{step}", self.path),
            depth: self.depth + 1,
        };
        if at.depth > DEPTH_MAX {
            return Err(Refused {
                path: Some(at.path),
                why: format!("is nested deeper than {DEPTH_MAX} levels"),
            });
        }
        let path = at.path.clone();
        value.serialize(at).map_err(|refused| Refused {
            path: refused.path.or(Some(path)),
            ..refused
        })
    }

    fn record(name: &str, fields: Vec<(String, Value)>) -> Value {
        Value::Record {
            name: name.to_owned(),
            fields,
        }
    }
}

macro_rules! plain {
    ($($name:ident($kind:ty) => $make:expr;)*) => {$(
        fn $name(self, value: $kind) -> Result<Value, Refused> {
            let make: fn($kind) -> Value = $make;
            Ok(make(value))
        }
    )*};
}

impl ser::Serializer for At {
    type Ok = Value;
    type Error = Refused;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Fields;
    type SerializeTupleVariant = Fields;
    type SerializeMap = Pairs;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    plain! {
        serialize_bool(bool) => Value::from;
        serialize_i8(i8) => Value::from;
        serialize_i16(i16) => Value::from;
        serialize_i32(i32) => Value::from;
        serialize_i64(i64) => Value::from;
        serialize_i128(i128) => Value::from;
        serialize_u8(u8) => Value::from;
        serialize_u16(u16) => Value::from;
        serialize_u32(u32) => Value::from;
        serialize_u64(u64) => Value::from;
        serialize_f32(f32) => |value| Value::Float(f64::from(value));
        serialize_f64(f64) => Value::from;
        serialize_char(char) => |value| Value::Text(value.to_string());
        serialize_str(&str) => |value| Value::Text(value.to_owned());
        serialize_bytes(&[u8]) => |value| Value::Bytes(value.to_vec());
    }

    fn serialize_u128(self, value: u128) -> Result<Value, Refused> {
        value
            .to_string()
            .parse()
            .map(Value::Int)
            .map_err(ser::Error::custom)
    }

    fn serialize_none(self) -> Result<Value, Refused> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Refused> {
        let inner = self.below("", value)?;
        Ok(match &inner {
            Value::Null => Self::record(SOME, vec![(String::from("0"), inner)]),
            Value::Record { name, .. } if name == SOME => {
                Self::record(SOME, vec![(String::from("0"), inner)])
            }
            _ => inner,
        })
    }

    fn serialize_unit(self) -> Result<Value, Refused> {
        Ok(Value::Tuple(Vec::new()))
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Value, Refused> {
        Ok(Self::record(name, Vec::new()))
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Value, Refused> {
        Ok(Self::record(&format!("{name}::{variant}"), Vec::new()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, Refused> {
        let inner = self.below(".0", value)?;
        Ok(Self::record(name, vec![(String::from("0"), inner)]))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Refused> {
        let inner = self.below(".0", value)?;
        let name = format!("{name}::{variant}");
        Ok(Self::record(&name, vec![(String::from("0"), inner)]))
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Items, Refused> {
        Ok(Items::new(self, Value::List))
    }

    fn serialize_tuple(self, _length: usize) -> Result<Items, Refused> {
        Ok(Items::new(self, Value::Tuple))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Fields, Refused> {
        Ok(Fields::new(self, name.to_owned()))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Fields, Refused> {
        Ok(Fields::new(self, format!("{name}::{variant}")))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Pairs, Refused> {
        Ok(Pairs {
            at: self,
            key: None,
            pairs: Vec::new(),
        })
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Fields, Refused> {
        Ok(Fields::new(self, name.to_owned()))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Fields, Refused> {
        Ok(Fields::new(self, format!("{name}::{variant}")))
    }
}

/// Values in order.
struct Items {
    at: At,
    values: Vec<Value>,
    make: fn(Vec<Value>) -> Value,
}

impl Items {
    fn new(at: At, make: fn(Vec<Value>) -> Value) -> Self {
        Self {
            at,
            values: Vec::new(),
            make,
        }
    }

    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        let step = format!("[{}]", self.values.len());
        self.values.push(self.at.below(&step, value)?);
        Ok(())
    }
}

impl ser::SerializeSeq for Items {
    type Ok = Value;
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.add(value)
    }

    fn end(self) -> Result<Value, Refused> {
        Ok((self.make)(self.values))
    }
}

impl ser::SerializeTuple for Items {
    type Ok = Value;
    type Error = Refused;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.add(value)
    }

    fn end(self) -> Result<Value, Refused> {
        Ok((self.make)(self.values))
    }
}

/// Fields of a record.
struct Fields {
    at: At,
    name: String,
    fields: Vec<(String, Value)>,
}

impl Fields {
    fn new(at: At, name: String) -> Self {
        Self {
            at,
            name,
            fields: Vec::new(),
        }
    }

    fn add<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Refused> {
        let value = self.at.below(&format!(".{name}"), value)?;
        self.fields.push((name.to_owned(), value));
        Ok(())
    }

    fn next<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.add(&self.fields.len().to_string(), value)
    }

    fn record(self) -> Value {
        At::record(&self.name, self.fields)
    }
}

macro_rules! fields {
    ($($kind:ident: $method:ident by name),* ; $($tuple:ident: $add:ident in order),*) => {
        $(impl ser::$kind for Fields {
            type Ok = Value;
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Refused> {
                self.add(key, value)
            }

            fn end(self) -> Result<Value, Refused> {
                Ok(self.record())
            }
        })*
        $(impl ser::$tuple for Fields {
            type Ok = Value;
            type Error = Refused;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                self.next(value)
            }

            fn end(self) -> Result<Value, Refused> {
                Ok(self.record())
            }
        })*
    };
}
fields! {
    SerializeStruct: serialize_field by name, SerializeStructVariant: serialize_field by name;
    SerializeTupleStruct: serialize_field in order, SerializeTupleVariant: serialize_field in order
}

/// Keys and values.
struct Pairs {
    at: At,
    key: Option<Value>,
    pairs: Vec<(Value, Value)>,
}

impl ser::SerializeMap for Pairs {
    type Ok = Value;
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        let step = format!("[key {}]", self.pairs.len());
        self.key = Some(self.at.below(&step, key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        let Some(key) = self.key.take() else {
            return Err(ser::Error::custom("a value came before its key"));
        };
        let step = match &key {
            Value::Text(name) => format!(".{name}"),
            _ => format!("[key {}]", self.pairs.len()),
        };
        let value = self.at.below(&step, value)?;
        self.pairs.push((key, value));
        Ok(())
    }

    fn end(self) -> Result<Value, Refused> {
        Ok(Value::Map(self.pairs))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::fingerprint::Call;

    #[derive(serde::Serialize)]
    struct Span {
        from: i64,
        to: Option<i64>,
    }

    #[derive(serde::Serialize)]
    struct Until(i64);

    #[derive(serde::Serialize)]
    enum Which {
        All,
        One(i64),
        Between { low: i64, high: i64 },
    }

    /// Refuses to be serialized, as a lock that is poisoned does.
    struct Stubborn;

    impl Serialize for Stubborn {
        fn serialize<S: ser::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(ser::Error::custom("it does not want to"))
        }
    }

    fn print<T: Serialize>(value: T) -> String {
        let value = to_value("kwargs.x", &value).expect("a value");
        let call = Call::new("f", 0).with_named("x", value);
        call.fingerprint().expect("a fingerprint").to_string()
    }

    #[test]
    fn values_that_differ_have_other_fingerprints() {
        let all = [
            print(1_i64),
            print("1"),
            print(1.0),
            print(true),
            print(()),
            print(None::<i64>),
            print(Some(None::<i64>)),
            print(Some(Some(None::<i64>))),
            print(vec![1_i64]),
            print((1_i64,)),
            print(Until(1)),
            print(Which::All),
            print(Which::One(1)),
            print(Which::Between { low: 1, high: 2 }),
            print(Which::Between { low: 2, high: 1 }),
            print(Span { from: 1, to: None }),
            print(Span {
                from: 1,
                to: Some(1),
            }),
            print(BTreeMap::from([(1_i64, "a")])),
            print(BTreeMap::from([("1", "a")])),
            print(u128::MAX),
            print(Vec::<i64>::new()),
        ];
        let mut distinct = all.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn equal_values_agree_whatever_holds_them() {
        assert_eq!(print(1_u8), print(1_i64));
        assert_eq!(print(Some(1_i64)), print(1_i64));
        assert_eq!(print(Some(Some(1_i64))), print(1_i64));
        assert_eq!(print('x'), print("x"));
        assert_eq!(print(0.0_f64), print(-0.0_f32));
        let pairs = [("a", 1_i64), ("b", 2), ("c", 3)];
        let (map, sorted) = (HashMap::from(pairs), BTreeMap::from(pairs));
        assert_eq!(print(map), print(sorted));
    }

    #[test]
    fn errors_say_where() {
        let deep = BTreeMap::from([("spans", vec![Some(Stubborn)])]);
        let error = to_value("kwargs.x", &deep).expect_err("refused");
        assert_eq!(error.path, "kwargs.x.spans[0]");
        assert!(error.why.contains("it does not want to"), "{error}");
        let error = to_value("kwargs.x", &Stubborn).expect_err("refused");
        assert_eq!(error.path, "kwargs.x");
    }

    #[test]
    fn what_never_ends_is_refused() {
        struct Nested(usize);
        impl Serialize for Nested {
            fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq([Self(self.0 + 1)])
            }
        }
        let error = to_value("kwargs.x", &Nested(0)).expect_err("refused");
        assert!(error.why.contains("nested deeper"), "{error}");
    }
}
