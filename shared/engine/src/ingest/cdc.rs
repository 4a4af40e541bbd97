//! Change envelopes become landing rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use domain::{
    TableName, Timestamp,
    cdc::{Change, Lsn, Reading, decode, envelopes},
};
use ports::{Error, Kind};
use serde::Serialize;

use super::{
    Accepted, Format, Request, build,
    events::{self, Event, refuse},
    file, webhook,
};
use crate::{World, sources};

/// The column that orders changes.
const LSN: &str = "lsn";
/// Its type while numbers are small, of large numbers, and of moments.
const BIGINT: &str = "BIGINT";
const DECIMAL: &str = "DECIMAL(38,0)";
const VARCHAR: &str = "VARCHAR";
/// Columns of changes that the settings of a source may give to its own; the others are reserved already.
pub(crate) const COLUMNS: [&str; 3] = ["op", LSN, "unavailable"];

/// What was stored of a body of changes; the body of a 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// The rows.
    #[serde(flatten)]
    pub accepted: Accepted,
    /// Envelopes that hold nothing to store: nulls, heartbeats, messages.
    pub ignored: u64,
}

/// Why nothing of a body of changes was stored.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// An envelope is no change that can be stored: which one, which field of it, and why.
    #[error("{0}")]
    Envelope(String),
    /// As for a webhook.
    #[error(transparent)]
    Port(#[from] Error),
}

/// Commits the changes of a body to `landing.<source>` and announces them. The body is one envelope, an array of them, or
/// one of either per line (`domain::cdc` says what an envelope is); it is stored whole or not at all.
///
/// Landing columns: `op VARCHAR` (I, U, D, R, T), `lsn`, `received_at TIMESTAMP` (the envelope's, else now), `payload
/// VARCHAR` (the row's JSON text, exactly as sent; of a delete the old row; NULL of a truncate), `unavailable VARCHAR` (a
/// JSON array of the columns whose unchanged value the sender did not have, else NULL), then the source's header
/// columns, its typed columns, which are taken out of the row, and `_seq`.
///
/// **One type per table.** `lsn` is BIGINT when all numbers of the first body stored fit one, DECIMAL(38,0) when they do
/// not, VARCHAR when they are timestamps, which are kept as sent; and stays so. What the type does not hold is refused: a
/// change that cannot be put in order with those before it would stop every model of the table. Numbers sent as text are
/// numbers, and an LSN of PostgreSQL or SQL Server is the number it stands for. No body mixes numbers and timestamps.
///
/// # Errors
/// [`Refused::Envelope`] names the first bad envelope and its field; what is no JSON at all, and every limit, is refused
/// as a webhook's.
pub async fn cdc(
    world: &World,
    source: &settings::Source,
    request: Request,
) -> Result<Taken, Refused> {
    let table = webhook::check(source, &request)?;
    check_columns(source, &request)?;
    let events = events::split(&request.source, &request.body, request.format)?;
    let reading = Reading {
        lsn: source.lsn.as_deref(),
        key: &source.key,
        placeholder: Some(&world.live.unavailable_value),
    };
    let body = Body::read(&reading, request.format, &events)?;
    let mut taken = Taken {
        accepted: Accepted::nothing(&table),
        ignored: body.ignored,
    };
    if body.changes.is_empty() {
        return Ok(taken);
    }
    let received_at = world.clock.now();
    let rest = body.rest(source, &request)?;
    let mut known = lsn_kind(world, &table).await?;
    let stored = loop {
        let lsn = body.lsn(&table, known.as_deref())?;
        let rows = body.rows(lsn, received_at, &rest);
        let rows = rows.map_err(|error| refuse(&request.source, error.to_string()))?;
        match webhook::append(world, table.clone(), rows, received_at, &request).await {
            // Another first body may have been first; a column never changes its type after that.
            Err(error) if error.kind == Kind::Invalid => {
                let now = lsn_kind(world, &table).await?;
                if now == known {
                    return Err(sources::blame(world, source, &table, error).await.into());
                }
                known = now;
            }
            other => break other?,
        }
    };
    taken.accepted.landed(&stored);
    Ok(taken)
}

/// Refuses settings that give a column of changes another meaning.
fn check_columns(source: &settings::Source, request: &Request) -> Result<(), Error> {
    let typed = source.columns.iter().map(|column| &column.name);
    let own = request.headers.iter().map(|(column, _)| column);
    let clash = own
        .chain(typed)
        .find(|name| COLUMNS.iter().any(|taken| name.eq_ignore_ascii_case(taken)));
    match clash {
        // Nothing that a sender could mend.
        Some(name) => Err(Error::new(Kind::Unavailable, "read events for", &request.source).because(
            format!(
                "the source's settings name a column `{name}`, which changes have already; choose another name"
            ),
        )),
        None => Ok(()),
    }
}

/// The type of the table's `lsn`, when it has one.
async fn lsn_kind(world: &World, table: &TableName) -> Result<Option<String>, Error> {
    let columns = file::columns(world, table).await?;
    Ok(columns
        .into_iter()
        .find(|column| column.name == LSN)
        .map(|column| column.kind))
}

/// The changes of a body.
struct Body<'a> {
    /// Each with the index of its envelope.
    changes: Vec<(usize, Change<'a>)>,
    /// Line of each envelope.
    lines: Vec<usize>,
    ignored: u64,
    format: Format,
}

impl<'a> Body<'a> {
    fn read(reading: &Reading<'_>, format: Format, events: &[Event<'a>]) -> Result<Self, Refused> {
        let mut texts = Vec::with_capacity(events.len());
        let mut lines = Vec::with_capacity(events.len());
        for event in events {
            let found =
                envelopes(event.text).map_err(|refusal| Refused::Envelope(refusal.to_string()))?;
            lines.resize(lines.len() + found.len(), event.line);
            texts.extend(found);
        }
        let mut body = Self {
            changes: Vec::with_capacity(texts.len()),
            lines,
            ignored: 0,
            format,
        };
        for (index, text) in texts.into_iter().enumerate() {
            let changes = decode(text, reading)
                .map_err(|refusal| body.refuse(index, &refusal.to_string()))?;
            if changes.is_empty() {
                body.ignored += 1;
            }
            for change in changes {
                if let Some((_, first)) = body.changes.first()
                    && !first.lsn.is_like(&change.lsn)
                {
                    let (first, this) = (&first.lsn, &change.lsn);
                    let why = format!(
                        "its `lsn` is {this}, and {first} came before it: a number and a timestamp cannot be put in order"
                    );
                    return Err(body.refuse(index, &why));
                }
                body.changes.push((index, change));
            }
        }
        Ok(body)
    }

    fn refuse(&self, index: usize, why: &str) -> Refused {
        let count = self.lines.len();
        let line = match self.format {
            Format::Json => String::new(),
            Format::Ndjson => format!(" (line {})", self.lines[index]),
        };
        Refused::Envelope(format!(
            "nothing was stored: envelope {} of {count}{line}: {why}",
            index + 1
        ))
    }

    /// The `lsn` of each change, in the type the table has or will have: BIGINT or DECIMAL(38,0) for numbers, VARCHAR for
    /// moments.
    fn lsn(&self, table: &TableName, known: Option<&str>) -> Result<ArrayRef, Refused> {
        let lsns = || self.changes.iter().map(|(_, change)| &change.lsn);
        let (small, numbers) = (lsns().map(Lsn::bigint), lsns().map(Lsn::number));
        // All are of one kind: the first tells.
        let moments = numbers.clone().next().flatten().is_none();
        let misfit = small.clone().position(|number| number.is_none());
        match (known, moments, misfit) {
            (None | Some(BIGINT), false, None) => Ok(Arc::new(Int64Array::from_iter(small))),
            (None | Some(DECIMAL), false, _) => {
                let decimals = Decimal128Array::from_iter(numbers);
                let decimals = decimals.with_precision_and_scale(38, 0).map_err(|error| {
                    self.refuse(self.changes[0].0, &format!("its `lsn`: {error}"))
                })?;
                Ok(Arc::new(decimals))
            }
            (None | Some(VARCHAR), true, _) => {
                let texts = lsns().map(ToString::to_string);
                Ok(Arc::new(StringArray::from_iter_values(texts)))
            }
            (Some(BIGINT), false, Some(at)) => Err(self.unlike(table, at, "BIGINT numbers")),
            (Some(BIGINT | DECIMAL), true, _) => {
                Err(self.unlike(table, 0, "numbers and no timestamps"))
            }
            (Some(VARCHAR), false, _) => Err(self.unlike(table, 0, "timestamps and no numbers")),
            (Some(other), ..) => {
                let why =
                    format!("{table} has a column `{LSN}` of type {other} that is not of changes");
                Err(self.refuse(self.changes[0].0, &why))
            }
        }
    }

    /// A change that cannot be put in order beside those that the table has.
    fn unlike(&self, table: &TableName, at: usize, kept: &str) -> Refused {
        let (index, change) = &self.changes[at];
        let why = format!(
            "its `lsn` is {}, and {table} keeps {kept}, as its first changes had",
            change.lsn
        );
        self.refuse(*index, &why)
    }

    /// The columns that the source's settings ask for.
    fn rest(
        &self,
        source: &settings::Source,
        request: &Request,
    ) -> Result<Vec<(String, ArrayRef)>, Refused> {
        let mut columns: Vec<_> = webhook::headers(request, self.changes.len()).collect();
        let rows: Vec<Event<'_>> = self
            .changes
            .iter()
            .map(|(index, change)| Event {
                // A truncate has no row, and so no value for any column.
                text: change.payload.unwrap_or("{}"),
                line: self.lines[*index],
            })
            .collect();
        let sorted = webhook::sort(source, &request.source, &rows)?;
        if let Some((at, why)) = sorted.misfits.first() {
            return Err(self.refuse(self.changes[*at].0, why));
        }
        columns.extend(sorted.typed);
        Ok(columns)
    }

    fn rows(
        &self,
        lsn: ArrayRef,
        received_at: Timestamp,
        rest: &[(String, ArrayRef)],
    ) -> Result<RecordBatch, arrow::error::ArrowError> {
        let changes = || self.changes.iter().map(|(_, change)| change);
        let op = StringArray::from_iter_values(changes().map(|change| change.op.letter()));
        let times = changes().map(|change| change.received_at.unwrap_or(received_at).0);
        let payload: StringArray = changes().map(|change| change.payload).collect();
        let unavailable: StringArray = changes().map(|c| names(&c.unavailable)).collect();
        let mut columns: Vec<(String, ArrayRef)> = vec![
            ("op".into(), Arc::new(op)),
            (LSN.into(), lsn),
            (
                "received_at".into(),
                Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
            ),
            ("payload".into(), Arc::new(payload)),
            ("unavailable".into(), Arc::new(unavailable)),
        ];
        columns.extend_from_slice(rest);
        build::batch(columns, self.changes.len())
    }
}

/// A JSON array of names; none when there are none.
fn names(names: &[String]) -> Option<String> {
    let quoted = || {
        names
            .iter()
            .map(|name| serde_json::Value::from(name.as_str()).to_string())
    };
    (!names.is_empty()).then(|| format!("[{}]", quoted().collect::<Vec<_>>().join(",")))
}
