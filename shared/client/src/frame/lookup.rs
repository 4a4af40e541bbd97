//! Look-ups in Django's words: `column`, `column__word`, `column__part__word`.
//!
//! | word | means |
//! |---|---|
//! | `exact` (or none), `iexact` | equal; with `null` the same as `isnull` |
//! | `contains`, `startswith`, `endswith`, and with an `i` before them | text within; `i` whatever the case |
//! | `in`, `range` | one of several; from the first to the second, both included |
//! | `gt`, `gte`, `lt`, `lte` | greater, less |
//! | `isnull` | whether there is no value |
//! | `regex`, `iregex` | a regular expression finds something |
//!
//! Parts of a moment stand before the word: `date`, `year`, `month`, `day`, `hour`, `minute`, `second`.
//! A row whose column is NULL meets no look-up but `isnull`; so `exclude` keeps it.

use domain::items::Column;
use ports::query::Parameter;

use crate::error::{Error, Result};

/// What a look-up compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A value.
    One(Parameter),
    /// Several, for `in` and `range`.
    Many(Vec<Parameter>),
}

macro_rules! operands {
    ($($kind:ty => $make:expr;)*) => {$(
        impl From<$kind> for Operand {
            fn from(value: $kind) -> Self {
                let make: fn($kind) -> Parameter = $make;
                Self::One(make(value))
            }
        }
        impl From<Vec<$kind>> for Operand {
            fn from(values: Vec<$kind>) -> Self {
                let make: fn($kind) -> Parameter = $make;
                Self::Many(values.into_iter().map(make).collect())
            }
        }
        impl<const N: usize> From<[$kind; N]> for Operand {
            fn from(values: [$kind; N]) -> Self {
                Vec::from(values).into()
            }
        }
        impl From<Option<$kind>> for Operand {
            fn from(value: Option<$kind>) -> Self {
                value.map_or(Self::One(Parameter::Null), Into::into)
            }
        }
    )*};
}
operands! {
    bool => Parameter::Boolean;
    i64 => Parameter::Integer;
    i32 => |value| Parameter::Integer(value.into());
    u32 => |value| Parameter::Integer(value.into());
    f64 => Parameter::Float;
    &str => |value| Parameter::Text(value.to_owned());
    String => Parameter::Text;
}

impl From<Parameter> for Operand {
    fn from(value: Parameter) -> Self {
        Self::One(value)
    }
}

impl From<Vec<Parameter>> for Operand {
    fn from(values: Vec<Parameter>) -> Self {
        Self::Many(values)
    }
}

/// Look-ups that a row has to meet all of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lookups(pub(super) Vec<(String, Operand)>);

impl Lookups {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    #[must_use]
    pub fn and(mut self, lookup: &str, operand: impl Into<Operand>) -> Self {
        self.0.push((lookup.to_owned(), operand.into()));
        self
    }
}

fn wrong<T>(why: String) -> Result<T> {
    Err(Error::Lookup(why))
}

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The column that a text names.
pub(super) fn column<'a>(columns: &'a [Column], name: &str) -> Result<&'a Column> {
    match columns.iter().find(|column| column.name == name) {
        Some(column) => Ok(column),
        None => {
            let all: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            wrong(format!(
                "there is no column `{name}`; there are {}",
                all.join(", ")
            ))
        }
    }
}

/// The column of a look-up, which may have `__` in its name, and the words behind it.
fn split<'a, 'b>(columns: &'a [Column], lookup: &'b str) -> Result<(&'a Column, Vec<&'b str>)> {
    let mut end = lookup.len();
    loop {
        let name = &lookup[..end];
        if let Some(column) = columns.iter().find(|column| column.name == name) {
            let words = lookup[end..].split("__").filter(|word| !word.is_empty());
            return Ok((column, words.collect()));
        }
        match name.rfind("__") {
            Some(at) => end = at,
            None => return column(columns, name).map(|column| (column, Vec::new())),
        }
    }
}

const PARTS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];

/// Conditions on their way into a statement.
pub(super) struct Compiler<'a> {
    pub(super) columns: &'a [Column],
    pub(super) parameters: Vec<Parameter>,
}

impl Compiler<'_> {
    fn bind(&mut self, value: Parameter) -> Result<String> {
        if matches!(value, Parameter::Float(number) if !number.is_finite()) {
            return wrong(String::from(
                "NaN and the infinities cannot be compared with: use `isnull` or SQL",
            ));
        }
        self.parameters.push(value);
        Ok(format!("${}", self.parameters.len()))
    }

    /// The condition of one look-up.
    pub(super) fn condition(&mut self, lookup: &str, operand: &Operand) -> Result<String> {
        let (column, words) = split(self.columns, lookup)?;
        let (mut words, mut of, mut kind) =
            (words.as_slice(), quoted(&column.name), column.kind.as_str());
        if let [part, rest @ ..] = words {
            if *part == "date" {
                (of, kind, words) = (format!("CAST({of} AS DATE)"), "DATE", rest);
            } else if PARTS.contains(part) {
                (of, kind, words) = (format!("extract({part} FROM {of})"), "DOUBLE", rest);
            }
        }
        let word = match words {
            [] => "exact",
            [word] => word,
            _ => {
                return wrong(format!(
                    "`{lookup}` has more than one word behind its column"
                ));
            }
        };
        let is_text = kind.starts_with("VARCHAR");
        // Text look-ups work on the text of any value, as Django's do.
        let text = match is_text {
            true => of.clone(),
            false => format!("CAST({of} AS VARCHAR)"),
        };
        match operand {
            Operand::Many(values) => self.several(lookup, word, &of, values),
            Operand::One(value) => self.single(lookup, word, (&of, &text), value),
        }
    }

    fn several(
        &mut self,
        lookup: &str,
        word: &str,
        of: &str,
        values: &[Parameter],
    ) -> Result<String> {
        match (word, values) {
            // As in Django, NULL is in no list.
            ("in", values) => {
                let known = values.iter().filter(|value| **value != Parameter::Null);
                let bound = known
                    .map(|value| self.bind(value.clone()))
                    .collect::<Result<Vec<_>>>()?;
                match bound.is_empty() {
                    true => Ok(String::from("FALSE")),
                    false => Ok(format!("{of} IN ({})", bound.join(", "))),
                }
            }
            ("range", [from, to]) => {
                let (from, to) = (self.bind(from.clone())?, self.bind(to.clone())?);
                Ok(format!("{of} BETWEEN {from} AND {to}"))
            }
            ("range", _) => wrong(format!("`{lookup}` takes two values, not {}", values.len())),
            _ => wrong(format!(
                "`{lookup}` takes one value; `in` and `range` take several"
            )),
        }
    }

    fn single(
        &mut self,
        lookup: &str,
        word: &str,
        (of, text): (&str, &str),
        value: &Parameter,
    ) -> Result<String> {
        if word == "isnull" {
            return match value {
                Parameter::Boolean(true) => Ok(format!("{of} IS NULL")),
                Parameter::Boolean(false) => Ok(format!("{of} IS NOT NULL")),
                _ => wrong(format!("`{lookup}` takes true or false")),
            };
        }
        if *value == Parameter::Null {
            return match word {
                "exact" | "iexact" => Ok(format!("{of} IS NULL")),
                _ => wrong(format!("`{lookup}` cannot be NULL: use `isnull`")),
            };
        }
        let compared = match word {
            "exact" => Some("="),
            "gt" => Some(">"),
            "gte" => Some(">="),
            "lt" => Some("<"),
            "lte" => Some("<="),
            _ => None,
        };
        if let Some(sign) = compared {
            let value = self.bind(value.clone())?;
            return Ok(format!("{of} {sign} {value}"));
        }
        let plain = ["iexact", "contains", "startswith", "endswith", "regex"];
        if ["in", "range"].contains(&word) {
            return wrong(format!("`{lookup}` takes several values"));
        }
        let base = match plain.contains(&word) {
            true => word,
            false => word.strip_prefix('i').unwrap_or_default(),
        };
        if !plain.contains(&base) || (base == "iexact" && word != base) {
            return wrong(format!(
                "`{lookup}` ends in `{word}`, which is no look-up; there are exact, iexact, contains, icontains, startswith, \
                 istartswith, endswith, iendswith, in, range, gt, gte, lt, lte, isnull, regex, iregex"
            ));
        }
        let value = match value {
            Parameter::Text(text) => text.clone(),
            other => other.to_json(),
        };
        let value = self.bind(Parameter::Text(value))?;
        let (text, value) = match word.starts_with('i') && base != "regex" {
            true => (format!("lower({text})"), format!("lower({value})")),
            false => (text.to_owned(), value),
        };
        Ok(match base {
            "iexact" => format!("{text} = {value}"),
            "contains" => format!("strpos({text}, {value}) > 0"),
            "startswith" => format!("starts_with({text}, {value})"),
            "endswith" => format!("ends_with({text}, {value})"),
            _ => match word.starts_with('i') {
                true => format!("{text} ~* {value}"),
                false => format!("{text} ~ {value}"),
            },
        })
    }
}
