//! CSV, split into records and fields: RFC 4180, with `\n` or `\r\n` at the end of a record.

use std::borrow::Cow;

/// Where a field is in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) start: usize,
    pub(super) end: usize,
    /// It was in quotes, which are left out of the range.
    pub(super) quoted: bool,
}

/// Where the reader of a buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first byte of a field.
    #[default]
    Start,
    Plain,
    Quoted,
    /// Behind a quote inside quotes: the end, or the first half of a quote that is meant.
    Closing,
}

/// Splits a growing buffer into records.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    state: State,
    /// First byte of the field being read.
    start: usize,
    quoted: bool,
    /// Fields of the record being read.
    pub(super) open: Vec<Field>,
}

impl Splitter {
    /// Reads one byte, which is at `at`; true when it ends a record, whose fields are in `open` then.
    #[inline]
    pub(super) fn read(&mut self, byte: u8, at: usize) -> bool {
        match (self.state, byte) {
            (State::Quoted, b'"') => self.state = State::Closing,
            (State::Quoted, _) => {}
            (State::Closing, b'"') => self.state = State::Quoted,
            (_, b',') => self.close(at),
            (_, b'\n') => {
                self.close(at);
                return true;
            }
            (State::Start, b'"') => {
                self.state = State::Quoted;
                self.quoted = true;
            }
            (State::Start, _) => self.state = State::Plain,
            // What follows a closing quote belongs to the field: `"a"b` is kept, quotes and all.
            (State::Closing, byte) if byte != b'\r' => {
                self.state = State::Plain;
                self.quoted = false;
            }
            (State::Plain | State::Closing, _) => {}
        }
        false
    }

    /// Ends the field being read, before the byte at `at`.
    pub(super) fn close(&mut self, at: usize) {
        self.open.push(Field {
            start: self.start,
            end: at,
            quoted: self.quoted,
        });
        self.start = at + 1;
        self.quoted = false;
        self.state = State::Start;
    }

    /// Whether the buffer ends inside quotes.
    pub(super) fn is_quoted(&self) -> bool {
        self.state == State::Quoted
    }

    /// Forgets the first `bytes` of the buffer, which ended with a record.
    pub(super) fn forget(&mut self, bytes: usize) {
        self.start -= bytes;
        for field in &mut self.open {
            field.start -= bytes;
            field.end -= bytes;
        }
    }
}

impl Field {
    /// The field's text: none for NULL, which is an empty field or `NA` without quotes.
    ///
    /// # Errors
    /// When it is no UTF-8.
    pub(super) fn text(self, buffer: &[u8]) -> Result<Option<Cow<'_, str>>, std::str::Utf8Error> {
        let mut bytes = &buffer[self.start..self.end];
        if let [rest @ .., b'\r'] = bytes {
            bytes = rest;
        }
        if !self.quoted {
            let text = std::str::from_utf8(bytes)?;
            return Ok((!text.is_empty() && text != "NA").then_some(Cow::Borrowed(text)));
        }
        let inner = bytes.strip_prefix(b"\"").unwrap_or(bytes);
        let text = std::str::from_utf8(inner.strip_suffix(b"\"").unwrap_or(inner))?;
        let quotes = text.contains('"');
        Ok(Some(if quotes {
            Cow::Owned(text.replace("\"\"", "\""))
        } else {
            Cow::Borrowed(text)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&[Option<&str>]]) {
        let bytes = text.as_bytes();
        let mut splitter = Splitter::default();
        let mut records = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            if splitter.read(*byte, at) {
                let fields = std::mem::take(&mut splitter.open);
                let texts = fields.iter().map(|field| field.text(bytes).expect("UTF-8"));
                records.push(
                    texts
                        .map(|text| text.map(Cow::into_owned))
                        .collect::<Vec<_>>(),
                );
            }
        }
        let found: Vec<Vec<_>> = records
            .iter()
            .map(|r| r.iter().map(Option::as_deref).collect())
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn fields_end_where_rfc_4180_says() {
        check(
            "a,b\r\n1,2\n",
            &[&[Some("a"), Some("b")], &[Some("1"), Some("2")]],
        );
        check(
            "\"a,\"\"b\"\"\nc\",d\n",
            &[&[Some("a,\"b\"\nc"), Some("d")]],
        );
        check("\"x\"\r\n", &[&[Some("x")]]);
        check("5\" pipe,\"a\"b\n", &[&[Some("5\" pipe"), Some("\"a\"b")]]);
    }

    #[test]
    fn empty_and_na_are_null_unless_quoted() {
        check(
            ",NA,\"\",\"NA\",nan\n",
            &[&[None, None, Some(""), Some("NA"), Some("nan")]],
        );
    }
}
