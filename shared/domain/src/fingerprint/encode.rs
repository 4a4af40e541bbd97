//! The encoding: a byte of type, then lengths and contents. What has no order is sorted by its own encoding.

use super::{Call, Moment, Unencodable, Value};

/// Deepest nesting of arguments.
pub const DEPTH_MAX: usize = 128;

/// What every encoding begins with: a later one will begin otherwise.
const FORMAT: &[u8; 16] = b"headwater-call-1";
const NANOS: u32 = 1_000_000_000;
const DAY_NANOS: u64 = 86_400 * 1_000_000_000;

type Encoded = Result<(), Unencodable>;

/// Encodes a call.
pub(super) fn call(call: &Call) -> Result<Vec<u8>, Unencodable> {
    let mut to = Encoder {
        path: Vec::new(),
        out: FORMAT.to_vec(),
    };
    to.text(&call.name);
    to.sized(b'i', call.version.to_string().as_bytes());
    to.within(String::from("args"), |to| {
        to.sequence(b'l', &call.positional)
    })?;
    to.within(String::from("kwargs"), |to| to.fields(b'k', &call.named))?;
    Ok(to.out)
}

struct Encoder {
    /// Where we are, for errors.
    path: Vec<String>,
    out: Vec<u8>,
}

impl Encoder {
    fn within(&mut self, step: String, work: impl FnOnce(&mut Self) -> Encoded) -> Encoded {
        self.path.push(step);
        // The first step is `args` or `kwargs`.
        if self.path.len() > DEPTH_MAX + 1 {
            return Err(self.refused(format!("is nested deeper than {DEPTH_MAX} levels")));
        }
        work(self)?;
        self.path.pop();
        Ok(())
    }

    fn refused(&self, why: impl Into<String>) -> Unencodable {
        Unencodable {
            path: self.path.concat(),
            why: why.into(),
        }
    }

    fn length(&mut self, length: usize) {
        self.out.extend_from_slice(&(length as u64).to_be_bytes());
    }

    fn sized(&mut self, kind: u8, bytes: &[u8]) {
        self.out.push(kind);
        self.length(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    fn fixed(&mut self, kind: u8, bytes: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.sized(b's', text.as_bytes());
    }

    fn moment(&mut self, kind: u8, moment: Moment) -> Encoded {
        if moment.nanos >= NANOS {
            return Err(self.refused("has a billion nanoseconds or more beside its seconds"));
        }
        self.fixed(kind, &moment.seconds.to_be_bytes());
        self.out.extend_from_slice(&moment.nanos.to_be_bytes());
        Ok(())
    }

    fn value(&mut self, value: &Value) -> Encoded {
        match value {
            Value::Null => self.out.push(b'n'),
            Value::Bool(value) => self.fixed(b'b', &[u8::from(*value)]),
            Value::Int(value) => self.sized(b'i', value.to_string().as_bytes()),
            Value::Float(value) => self.fixed(b'f', &bits(*value).to_be_bytes()),
            Value::Decimal(value) => self.sized(b'd', value.to_string().as_bytes()),
            Value::Text(value) => self.text(value),
            Value::Bytes(value) => self.sized(b'y', value),
            Value::Date(days) => self.fixed(b'D', &days.to_be_bytes()),
            Value::Time(nanos) if *nanos < DAY_NANOS => self.fixed(b't', &nanos.to_be_bytes()),
            Value::Time(_) => return Err(self.refused("is a time of a day or more")),
            Value::DateTime(moment) => return self.moment(b'm', *moment),
            Value::Instant(moment) => return self.moment(b'z', *moment),
            Value::Duration(span) => return self.moment(b'u', *span),
            Value::Uuid(bytes) => self.fixed(b'U', bytes),
            Value::List(values) => return self.sequence(b'l', values),
            Value::Tuple(values) => return self.sequence(b'p', values),
            Value::Set(values) => return self.set(values),
            Value::Map(pairs) => return self.map(pairs),
            Value::Record { name, fields } => {
                self.out.push(b'R');
                self.text(name);
                return self.fields(b'k', fields);
            }
            Value::Query {
                dialect,
                database,
                sql,
                parameters,
            } => {
                self.out.push(b'Q');
                for text in [dialect, database, sql] {
                    self.text(text);
                }
                return self.sequence(b'l', parameters);
            }
            Value::Opaque(kind) => {
                return Err(self.refused(format!(
                    "is a `{kind}`, which has no value of its own: pass what identifies it, or give the entry a key of its own"
                )));
            }
        }
        Ok(())
    }

    fn sequence(&mut self, kind: u8, values: &[Value]) -> Encoded {
        self.out.push(kind);
        self.length(values.len());
        for (at, value) in values.iter().enumerate() {
            self.within(format!("[{at}]"), |to| to.value(value))?;
        }
        Ok(())
    }

    /// A value apart from the output, to be sorted.
    fn apart(&mut self, step: String, value: &Value) -> Result<Vec<u8>, Unencodable> {
        let before = std::mem::take(&mut self.out);
        self.within(step, |to| to.value(value))?;
        Ok(std::mem::replace(&mut self.out, before))
    }

    fn set(&mut self, values: &[Value]) -> Encoded {
        let mut members = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            members.push(self.apart(format!("[{at}]"), value)?);
        }
        members.sort_unstable();
        members.dedup();
        self.out.push(b'S');
        self.length(members.len());
        self.out.extend(members.concat());
        Ok(())
    }

    fn map(&mut self, pairs: &[(Value, Value)]) -> Encoded {
        let mut encoded = Vec::with_capacity(pairs.len());
        for (at, (key, value)) in pairs.iter().enumerate() {
            let name = match key {
                Value::Text(name) => format!(".{name}"),
                _ => format!("[key {at}]"),
            };
            let key = self.apart(format!("{name} (the key)"), key)?;
            encoded.push((key, self.apart(name.clone(), value)?, name));
        }
        self.pairs(b'M', encoded)
    }

    fn fields(&mut self, kind: u8, fields: &[(String, Value)]) -> Encoded {
        let mut encoded = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let step = format!(".{name}");
            let key = self.apart(step.clone(), &Value::Text(name.clone()))?;
            encoded.push((key, self.apart(step.clone(), value)?, step));
        }
        self.pairs(kind, encoded)
    }

    fn pairs(&mut self, kind: u8, mut pairs: Vec<(Vec<u8>, Vec<u8>, String)>) -> Encoded {
        pairs.sort_unstable();
        if let Some(two) = pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            self.path.push(two[0].2.clone());
            return Err(self.refused("is given twice"));
        }
        self.out.push(kind);
        self.length(pairs.len());
        for (key, value, _) in pairs {
            self.out.extend(key);
            self.out.extend(value);
        }
        Ok(())
    }
}

/// The bits of a number, with one NaN and one zero.
fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}
