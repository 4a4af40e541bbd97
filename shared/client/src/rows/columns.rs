//! The columns of a type, found by letting it read a row that has something of everything.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor,
    value::StrDeserializer,
};

/// Deepest structs in structs that are looked into.
const DEPTH_MAX: usize = 16;

/// Columns by name; a type only where it was told.
pub(super) type Columns = Vec<(String, Option<DataType>)>;

/// The columns of a type; none when it is no struct.
pub(super) fn of<T: DeserializeOwned>() -> Option<Columns> {
    let seen = Seen::default();
    // Whatever comes of reading it: what it asked for has been seen by then.
    let _ = T::deserialize(Probe {
        seen: seen.clone(),
        depth: 0,
    });
    match seen.take() {
        Some(Kind::Struct(columns)) => Some(
            columns
                .into_iter()
                .map(|(name, kind)| (name, kind.take().and_then(Kind::data_type)))
                .collect(),
        ),
        _ => None,
    }
}

/// What a value was asked to be.
#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Option<Kind>>>);

impl Seen {
    fn put(&self, kind: Kind) {
        *self.0.borrow_mut() = Some(kind);
    }

    fn take(&self) -> Option<Kind> {
        self.0.borrow_mut().take()
    }
}

enum Kind {
    Plain(DataType),
    List(Seen),
    Struct(Vec<(String, Seen)>),
}

impl Kind {
    fn data_type(self) -> Option<DataType> {
        Some(match self {
            Self::Plain(kind) => kind,
            Self::List(item) => DataType::List(Arc::new(Field::new(
                "item",
                item.take()?.data_type()?,
                true,
            ))),
            Self::Struct(columns) => {
                let field = |(name, seen): (String, Seen)| {
                    Some(Arc::new(Field::new(name, seen.take()?.data_type()?, true)))
                };
                DataType::Struct(columns.into_iter().map(field).collect::<Option<Fields>>()?)
            }
        })
    }
}

/// A value of every type.
struct Probe {
    seen: Seen,
    depth: usize,
}

/// Nothing can be told from here on.
fn unknown() -> de::value::Error {
    de::Error::custom("a type that does not tell its columns")
}

macro_rules! plain {
    ($($name:ident => $kind:expr, $visit:ident($value:expr);)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.seen.put(Kind::Plain($kind));
            visitor.$visit($value)
        }
    )*};
}

macro_rules! untold {
    ($($name:ident($($argument:ty),*);)*) => {$(
        fn $name<V: Visitor<'de>>(self, $(_: $argument,)* _visitor: V) -> Result<V::Value, Self::Error> {
            Err(unknown())
        }
    )*};
}

impl<'de> Deserializer<'de> for Probe {
    type Error = de::value::Error;

    plain! {
        deserialize_bool => DataType::Boolean, visit_bool(false);
        deserialize_i8 => DataType::Int8, visit_i8(0);
        deserialize_i16 => DataType::Int16, visit_i16(0);
        deserialize_i32 => DataType::Int32, visit_i32(0);
        deserialize_i64 => DataType::Int64, visit_i64(0);
        deserialize_u8 => DataType::UInt8, visit_u8(0);
        deserialize_u16 => DataType::UInt16, visit_u16(0);
        deserialize_u32 => DataType::UInt32, visit_u32(0);
        deserialize_u64 => DataType::UInt64, visit_u64(0);
        deserialize_f32 => DataType::Float32, visit_f32(0.0);
        deserialize_f64 => DataType::Float64, visit_f64(0.0);
        deserialize_char => DataType::Utf8, visit_char('x');
        deserialize_str => DataType::Utf8, visit_str("");
        deserialize_string => DataType::Utf8, visit_str("");
    }

    untold! {
        deserialize_any();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_unit();
        deserialize_unit_struct(&'static str);
        deserialize_map();
        deserialize_identifier();
        deserialize_ignored_any();
        deserialize_tuple(usize);
        deserialize_tuple_struct(&'static str, usize);
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    /// Variants without contents are written as text.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let first = variants.first().ok_or_else(unknown)?;
        let variant = visitor.visit_enum(StrDeserializer::new(first))?;
        self.seen.put(Kind::Plain(DataType::Utf8));
        Ok(variant)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let item = Seen::default();
        self.seen.put(Kind::List(item.clone()));
        visitor.visit_seq(Once(Some(self.below(item)?)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let columns: Vec<(String, Seen)> = fields
            .iter()
            .map(|name| ((*name).to_owned(), Seen::default()))
            .collect();
        let each = columns
            .iter()
            .map(|(name, seen)| Ok((name.clone(), self.below(seen.clone())?)))
            .collect::<Result<Vec<_>, Self::Error>>()?;
        self.seen.put(Kind::Struct(columns));
        visitor.visit_map(Each {
            left: each.into_iter(),
            value: None,
        })
    }
}

impl Probe {
    fn below(&self, seen: Seen) -> Result<Self, de::value::Error> {
        match self.depth < DEPTH_MAX {
            true => Ok(Self {
                seen,
                depth: self.depth + 1,
            }),
            false => Err(unknown()),
        }
    }
}

/// One item.
struct Once(Option<Probe>);

impl<'de> SeqAccess<'de> for Once {
    type Error = de::value::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Self::Error> {
        self.0
            .take()
            .map(|probe| seed.deserialize(probe))
            .transpose()
    }
}

/// Every field.
struct Each {
    left: std::vec::IntoIter<(String, Probe)>,
    value: Option<Probe>,
}

impl<'de> MapAccess<'de> for Each {
    type Error = de::value::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Self::Error> {
        let Some((name, probe)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some(probe);
        let name: StrDeserializer<'_, Self::Error> = StrDeserializer::new(&name);
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, Self::Error> {
        let probe = self.value.take().ok_or_else(unknown)?;
        seed.deserialize(probe)
    }
}
