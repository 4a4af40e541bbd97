//! NDJSON and CSV as typed rows, a chunk at a time: bytes in as they come, batches out.
//!
//! A column's type is the table's, where it has the column, or that of the first 10,000 rows that show it (see
//! `guess`). Names are kept as written, case too. A row with a value that does not fit, or that cannot be read, is
//! rejected with its line and the reason; it never stops the others. Of a JSON key that comes twice, the first counts,
//! as it does for `payload->>'key'`.

use std::collections::HashMap;

use arrow::{array::RecordBatch, datatypes::DataType};
use domain::items::Column;

use super::{
    csv::{Field, Splitter},
    events,
    guess::Guess,
    json,
    rows::{Columns, RowBuilder},
    value,
};

/// Rows of one chunk.
const CHUNK_ROWS: usize = 64 * 1024;
/// Bytes after which a chunk is closed early.
const CHUNK_BYTES: usize = 16 << 20;
/// Longest record.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Rows that types are inferred from.
const SAMPLE_ROWS: usize = 10_000;

/// How a text holds rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// One JSON object per line; blank lines are skipped.
    Ndjson,
    /// RFC 4180 with a header; an empty field, or `NA`, without quotes is NULL.
    Csv,
}

/// Rows of one stretch of the text, in order.
#[derive(Debug)]
pub struct Chunk {
    /// The rows; none when all were rejected.
    pub rows: Option<RecordBatch>,
    /// What could not be read.
    pub rejects: Vec<Reject>,
}

/// A row that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Line it begins on, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
    /// The row as it was written; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// Why nothing more can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Bad {
    /// The line, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

/// Reads a text piece by piece. Memory is bounded by a chunk and the longest record.
#[derive(Debug)]
pub struct Decoder {
    format: TextFormat,
    table: Vec<Column>,
    columns: Columns,
    /// Whether the CSV header has been read.
    headed: bool,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were split.
    split: usize,
    splitter: Splitter,
    records: Vec<Record>,
    fields: Vec<Field>,
    line: u64,
    line_start: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    start: usize,
    end: usize,
    /// Behind its last field, in `fields`.
    fields_end: usize,
    line: u64,
}

impl Decoder {
    /// A decoder for a table that has these columns already.
    #[must_use]
    pub fn new(format: TextFormat, table: &[Column]) -> Self {
        Self {
            format,
            table: table.to_vec(),
            columns: Columns::default(),
            headed: false,
            buffer: Vec::new(),
            split: 0,
            splitter: Splitter::default(),
            records: Vec::new(),
            fields: Vec::new(),
            line: 1,
            line_start: 1,
        }
    }

    /// Takes more of the text, and returns the chunks it completes.
    ///
    /// # Errors
    /// [`Bad`] when the header or a record's bounds cannot be read; nothing more can be read then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Chunk>, Bad> {
        self.buffer.extend_from_slice(bytes);
        self.split()?;
        let mut chunks = Vec::new();
        loop {
            let end = self
                .records
                .partition_point(|record| record.end <= CHUNK_BYTES)
                .max(1);
            let full = self.records.len() >= CHUNK_ROWS || self.buffer.len() >= CHUNK_BYTES;
            if !full || self.records.is_empty() {
                return Ok(chunks);
            }
            chunks.extend(self.chunk(end.min(CHUNK_ROWS))?);
        }
    }

    /// Ends the text, whose last record may have no line end.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(&mut self) -> Result<Vec<Chunk>, Bad> {
        let mut chunks = self.push(b"")?;
        let open = self.records.last().map_or(0, |record| record.end);
        if self.buffer.len() > open {
            if self.format == TextFormat::Csv && self.splitter.is_quoted() {
                return Err(self.bad(self.line_start, "a quoted field never ends"));
            }
            chunks.extend(self.push(b"\n")?);
        }
        while !self.records.is_empty() {
            chunks.extend(self.chunk(self.records.len().min(CHUNK_ROWS))?);
        }
        Ok(chunks)
    }

    /// Columns read so far, in order; complete once the text has ended.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let columns = self.columns.list.iter();
        columns
            .filter_map(|(name, data_type)| {
                Some(Column {
                    name: name.clone(),
                    kind: ports::columns::kind(data_type)?,
                })
            })
            .collect()
    }

    fn bad(&self, line: u64, reason: impl Into<String>) -> Bad {
        Bad {
            line,
            reason: reason.into(),
        }
    }

    /// Finds the records of what has not been split yet.
    fn split(&mut self) -> Result<(), Bad> {
        let mut start = self.records.last().map_or(0, |record| record.end);
        for at in self.split..self.buffer.len() {
            let byte = self.buffer[at];
            let ends = match self.format {
                TextFormat::Ndjson => byte == b'\n',
                TextFormat::Csv => self.splitter.read(byte, at),
            };
            self.line += u64::from(byte == b'\n');
            if ends {
                self.fields.append(&mut self.splitter.open);
                let (fields_end, line) = (self.fields.len(), self.line_start);
                self.records.push(Record {
                    start,
                    end: at + 1,
                    fields_end,
                    line,
                });
                start = at + 1;
                self.line_start = self.line;
            }
        }
        self.split = self.buffer.len();
        if self.buffer.len() - start > RECORD_BYTES_MAX {
            let reason = format!("a row is longer than {RECORD_BYTES_MAX} bytes");
            return Err(self.bad(self.line_start, reason));
        }
        Ok(())
    }

    /// Decodes the first `count` records and forgets them.
    fn chunk(&mut self, count: usize) -> Result<Option<Chunk>, Bad> {
        let mut first = 0;
        if self.format == TextFormat::Csv && !self.headed {
            self.header()?;
            first = 1;
        }
        let count = count.max(first);
        let chunk = match self.format {
            TextFormat::Ndjson => self.ndjson(count),
            TextFormat::Csv => self.csv(first, count),
        };
        let (end, fields_end) = self.records[..count]
            .last()
            .map_or((0, 0), |last| (last.end, last.fields_end));
        self.buffer.drain(..end);
        self.split -= end;
        self.splitter.forget(if self.format == TextFormat::Csv {
            end
        } else {
            0
        });
        self.fields.drain(..fields_end);
        self.records.drain(..count);
        for record in &mut self.records {
            record.start -= end;
            record.end -= end;
            record.fields_end -= fields_end;
        }
        for field in &mut self.fields {
            field.start -= end;
            field.end -= end;
        }
        let chunk = chunk?;
        Ok((chunk.rows.is_some() || !chunk.rejects.is_empty()).then_some(chunk))
    }

    fn known(&self, name: &str) -> Option<DataType> {
        let column = self.table.iter().find(|column| column.name == name)?;
        ports::columns::data_type(&column.kind)
    }

    /// Reads the names of a CSV file's columns, and infers their types.
    fn header(&mut self) -> Result<(), Bad> {
        let Some(record) = self.records.first().copied() else {
            return Ok(());
        };
        let mut names: Vec<String> = Vec::new();
        for (index, field) in self.fields[..record.fields_end].iter().enumerate() {
            let text = field.text(&self.buffer);
            let text =
                text.map_err(|e| self.bad(record.line, format!("the header is no text: {e}")))?;
            let name = text.unwrap_or_default();
            let name = if index == 0 {
                name.trim_start_matches('\u{feff}')
            } else {
                &name
            };
            check_name(name, index, &names).map_err(|why| self.bad(record.line, why))?;
            names.push(name.to_owned());
        }
        let mut guesses = vec![Guess::default(); names.len()];
        let sample = self.records.len().min(SAMPLE_ROWS + 1);
        for index in 1..sample {
            for (field, guess) in self.fields_of(index).iter().zip(&mut guesses) {
                if let Ok(Some(text)) = field.text(&self.buffer) {
                    guess.see_text(&text);
                }
            }
        }
        for (name, guess) in names.iter().zip(guesses) {
            let data_type = self.known(name).unwrap_or_else(|| guess.data_type());
            self.columns.add(name, data_type);
        }
        self.headed = true;
        Ok(())
    }

    fn fields_of(&self, record: usize) -> &[Field] {
        let start = if record == 0 {
            0
        } else {
            self.records[record - 1].fields_end
        };
        &self.fields[start..self.records[record].fields_end]
    }

    fn csv(&self, first: usize, count: usize) -> Result<Chunk, Bad> {
        let mut rows = RowBuilder::new(&self.columns, count);
        for index in first..count {
            let fields = self.fields_of(index);
            if let [
                Field {
                    start,
                    end,
                    quoted: false,
                },
            ] = fields
                && self.columns.list.len() > 1
                && self.buffer[*start..*end].trim_ascii().is_empty()
            {
                continue;
            }
            let read = if fields.len() == self.columns.list.len() {
                (0..).zip(fields).try_for_each(|(column, field)| {
                    match field
                        .text(&self.buffer)
                        .map_err(|e| format!("no text: {e}"))?
                    {
                        Some(text) => rows.set(column, |to| value::of_text(text, to)),
                        None => Ok(()),
                    }
                })
            } else {
                let (found, expected) = (fields.len(), self.columns.list.len());
                Err(format!("{found} fields where the header has {expected}"))
            };
            let record = &self.records[index];
            rows.end(read, record.line, &self.buffer[record.start..record.end]);
        }
        rows.finish()
    }

    fn ndjson(&mut self, count: usize) -> Result<Chunk, Bad> {
        if self.columns.list.is_empty() {
            self.infer(count.min(SAMPLE_ROWS))?;
        }
        loop {
            match self.ndjson_rows(count) {
                Some(chunk) => return chunk,
                // A column that the sample did not show: its type is that of this chunk.
                None => self.infer(count)?,
            }
        }
    }

    /// Adds the columns that the first `count` records show and that are not known yet.
    fn infer(&mut self, count: usize) -> Result<(), Bad> {
        let mut names: Vec<String> = Vec::new();
        // With the last row that showed each.
        let mut guesses: HashMap<String, (Guess, usize)> = HashMap::new();
        for (row, record) in self.records[..count].iter().enumerate() {
            let Ok(text) = std::str::from_utf8(self.text_of(record)) else {
                continue;
            };
            let mut wrong = None;
            // A row that is no JSON is rejected when rows are built.
            let _ = json::entries(text, |key, raw| {
                if self.columns.index.contains_key(key) {
                    return;
                }
                if let Some((guess, last)) = guesses.get_mut(key) {
                    if std::mem::replace(last, row) != row {
                        guess.see_json(raw);
                    }
                    return;
                }
                wrong = wrong.take().or(check_name(key, names.len(), &[]).err());
                names.push(key.to_owned());
                let mut guess = Guess::default();
                guess.see_json(raw);
                guesses.insert(key.to_owned(), (guess, row));
            });
            if let Some(why) = wrong {
                return Err(self.bad(record.line, why));
            }
        }
        for name in names {
            let (guess, _) = guesses.remove(&name).unwrap_or_default();
            let data_type = self.known(&name).unwrap_or_else(|| guess.data_type());
            self.columns.add(&name, data_type);
        }
        Ok(())
    }

    /// The text of a record, without the mark that some editors put before the first.
    fn text_of(&self, record: &Record) -> &[u8] {
        let text = &self.buffer[record.start..record.end];
        match record.line {
            1 => events::unmarked(text),
            _ => text,
        }
    }

    /// The rows of the first records; none when a key is no column yet.
    fn ndjson_rows(&self, count: usize) -> Option<Result<Chunk, Bad>> {
        let mut rows = RowBuilder::new(&self.columns, count);
        let mut new = false;
        // The last row that had each column.
        let (mut row, mut seen) = (0_usize, vec![0_usize; self.columns.list.len()]);
        for record in &self.records[..count] {
            let bytes = self.text_of(record).trim_ascii();
            if bytes.is_empty() {
                continue;
            }
            row += 1;
            let mut next = 0;
            let mut misfit = Ok(());
            let read = std::str::from_utf8(bytes)
                .map_err(|e| format!("no text: {e}"))
                .and_then(|text| {
                    json::entries(text, |key, raw| match self.columns.find(key, next) {
                        Some(column) => {
                            next = column + 1;
                            if std::mem::replace(&mut seen[column], row) == row {
                                return;
                            }
                            let set = rows.set(column, |to| value::of_json(raw, to));
                            if misfit.is_ok() {
                                misfit = set;
                            }
                        }
                        None => new = true,
                    })
                    .map_err(|problem| format!("{} at column {}", problem.reason, problem.column))
                });
            if new {
                return None;
            }
            let read = match read {
                Ok(true) => misfit,
                Ok(false) => Err("a row is a JSON object".into()),
                Err(why) => Err(why),
            };
            rows.end(read, record.line, bytes);
        }
        Some(rows.finish())
    }
}

fn check_name(name: &str, index: usize, earlier: &[String]) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("column {} has no name", index + 1));
    }
    if [domain::SEQUENCE, domain::SEQUENCE_ALIAS]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
    {
        return Err(format!(
            "column `{name}` has the name of the sequence; give it another"
        ));
    }
    if earlier.iter().any(|other| other == name) {
        return Err(format!("column `{name}` is there twice"));
    }
    Ok(())
}
