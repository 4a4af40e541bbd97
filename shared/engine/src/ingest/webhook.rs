//! Webhook bodies become landing rows.

use std::{fmt::Write, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray},
    datatypes::DataType,
};
use domain::{TableName, Timestamp};
use ports::{Error, Kind, Result, columns, landing::Append};

use super::{
    Accepted, Request, announce,
    build::{self, Builder},
    events::{self, Event, refuse},
    json, quarantine,
    value::{self, Value},
};
use crate::{World, sources};

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Commits the events of a webhook body to `landing.<source>` and announces them.
///
/// Landing columns: `id VARCHAR, received_at TIMESTAMP, payload VARCHAR` (the event's JSON text, exactly as sent), then the
/// source's header columns and typed columns, then `_seq`. The events of one body have one id, followed by their number
/// when there are several, so that ids are in order.
///
/// Typed columns are taken out of the event's top level by the table on `ingest::value`: `BIGINT` takes `42`, `42.0`,
/// `1e3`, `"42"` and `" 7"`, and neither `5.7`, `true` nor `""`. An event with a value that does not fit goes to
/// `quarantine.<source>` (`id, received_at, payload, reason`, and the header columns) and never fails the others.
///
/// # Errors
/// `Invalid` names the line and column of bad JSON, the depth limit, or the source; `TooLarge` the limit; `Unavailable`
/// the settings that the landing table does not fit. One bad line refuses the body: nothing of it is stored.
pub async fn webhook(
    world: &World,
    source: &settings::Source,
    request: Request,
) -> Result<Accepted> {
    let name = request.source.as_str();
    let table = check(source, &request)?;
    let events = events::split(name, &request.body, request.format)?;
    let received_at = world.clock.now();
    let ids = Ids {
        base: world.chance.id(received_at),
        several: events.len() > 1,
    };
    let sorted = sort(source, name, &events)?;
    let about = About {
        request: &request,
        received_at,
        ids: &ids,
    };
    let mut accepted = Accepted::nothing(&table);
    // First, so that a failure between the two never leaves events out that were answered for.
    if !sorted.misfits.is_empty() {
        let rows = about.quarantined(&events, &sorted.misfits)?;
        let stored = append(world, quarantine(&table)?, rows, received_at, &request).await?;
        accepted.quarantined = stored.last - stored.first + 1;
        accepted.duplicate = stored.duplicate;
    }
    if sorted.misfits.len() < events.len() {
        let rows = about.landing(&events, sorted)?;
        let stored = match append(world, table.clone(), rows, received_at, &request).await {
            Ok(stored) => stored,
            Err(error) => return Err(sources::blame(world, source, &table, error).await),
        };
        accepted.landed(&stored);
    }
    Ok(accepted)
}

/// The landing table of a request that is within the limits.
pub(super) fn check(source: &settings::Source, request: &Request) -> Result<TableName> {
    let name = request.source.as_str();
    let table = TableName::landing(name)
        .map_err(|error| Error::new(Kind::Invalid, "find source", name).because(error))?;
    let (found, limit) = (request.body.len(), source.body_max);
    if found > limit {
        return Err(
            Error::new(Kind::TooLarge, "read events for", &request.source).because(format!(
                "the body has {found} bytes, and {limit} are allowed"
            )),
        );
    }
    if let Some(key) = &request.key
        && !(1..=KEY_BYTES_MAX).contains(&key.len())
    {
        let why = format!(
            "an idempotency key has 1 to {KEY_BYTES_MAX} bytes, this {}",
            key.len()
        );
        return Err(refuse(&request.source, why));
    }
    Ok(table)
}

/// Commits rows of a request under its key, and announces them.
pub(super) async fn append(
    world: &World,
    table: TableName,
    rows: RecordBatch,
    origin_at: Timestamp,
    request: &Request,
) -> Result<ports::landing::Appended> {
    let append = Append {
        table: table.clone(),
        rows,
        origin_at,
        key: request.key.clone(),
    };
    let stored = world.landing.append(append).await?;
    // Requests that share a commit share its announcement: whose rows are the last sends it.
    if stored.duplicate || stored.last == stored.position.sequence {
        announce(world, &table, stored.position).await;
    }
    Ok(stored)
}

/// Ids of the events: one fresh id, and the number of the event behind it when there are several.
struct Ids {
    base: String,
    several: bool,
}

impl Ids {
    fn column(&self, indexes: &[usize]) -> ArrayRef {
        let mut ids = StringBuilder::with_capacity(indexes.len(), indexes.len() * 48);
        let mut id = self.base.clone();
        for index in indexes {
            if self.several {
                id.truncate(self.base.len());
                // Writing to a `String` cannot fail.
                let _ = write!(id, "-{index:08}");
            }
            ids.append_value(&id);
        }
        Arc::new(ids.finish())
    }
}

/// Events, told apart.
pub(super) struct Sorted {
    /// Typed columns of the events that fit.
    pub(super) typed: Vec<(String, ArrayRef)>,
    /// Index and reason of those that do not.
    pub(super) misfits: Vec<(usize, String)>,
}

/// Takes the typed columns out of each event.
pub(super) fn sort(source: &settings::Source, name: &str, events: &[Event<'_>]) -> Result<Sorted> {
    let mut typed: Vec<(&str, DataType, Builder)> = Vec::with_capacity(source.columns.len());
    for column in &source.columns {
        let data_type = columns::data_type(&column.kind).ok_or_else(|| {
            refuse(
                name,
                format!(
                    "column `{}` has no known type: `{}`",
                    column.name, column.kind
                ),
            )
        })?;
        let builder = Builder::new(&data_type, events.len());
        typed.push((&column.name, data_type, builder));
    }
    let mut misfits = Vec::new();
    let mut row = vec![Value::Null; typed.len()];
    let mut found = vec![false; typed.len()];
    for (index, event) in events.iter().enumerate() {
        if let Some(at) = json::lone_surrogate(event.text) {
            // Such an event reads NULL in every field.
            let why = format!("half of a surrogate pair, which no text can hold, at byte {at}");
            misfits.push((index, why));
            continue;
        }
        if typed.is_empty() {
            continue;
        }
        row.fill(Value::Null);
        found.fill(false);
        let mut misfit = None;
        let read = json::entries(event.text, |key, raw| {
            let Some(at) = typed.iter().position(|(name, ..)| *name == key) else {
                return;
            };
            // Of a key that is there twice the first counts, as it does for `payload->>'key'`.
            if std::mem::replace(&mut found[at], true) {
                return;
            }
            match value::of_json(raw, &typed[at].1) {
                Ok(value) => row[at] = value,
                Err(why) => misfit = misfit.take().or(Some(format!("column `{key}`: {why}"))),
            }
        });
        match (read, misfit) {
            // Anything but an object has none of the columns.
            (Ok(_), None) => {
                for ((.., builder), value) in typed.iter_mut().zip(&mut row) {
                    builder.append(std::mem::replace(value, Value::Null));
                }
            }
            (Ok(_), Some(why)) => misfits.push((index, why)),
            (Err(problem), _) => misfits.push((index, problem.to_string())),
        }
    }
    let typed = typed
        .into_iter()
        .map(|(name, _, builder)| (name.to_owned(), builder.finish()));
    Ok(Sorted {
        typed: typed.collect(),
        misfits,
    })
}

/// What the events of one body share.
struct About<'a> {
    request: &'a Request,
    received_at: Timestamp,
    ids: &'a Ids,
}

impl About<'_> {
    /// Rows of the landing table: the events that fit.
    fn landing(&self, events: &[Event<'_>], sorted: Sorted) -> Result<RecordBatch> {
        let mut misfits = sorted.misfits.iter().map(|(index, _)| *index).peekable();
        let fits: Vec<usize> = (0..events.len())
            .filter(|index| misfits.next_if_eq(index).is_none())
            .collect();
        let mut columns = self.columns(events, &fits);
        columns.extend(headers(self.request, fits.len()));
        columns.extend(sorted.typed);
        self.batch(columns, fits.len())
    }

    /// Rows of the quarantine: the others, and why.
    fn quarantined(
        &self,
        events: &[Event<'_>],
        misfits: &[(usize, String)],
    ) -> Result<RecordBatch> {
        let indexes: Vec<usize> = misfits.iter().map(|(index, _)| *index).collect();
        let reasons = misfits
            .iter()
            .map(|(index, why)| format!("line {}: {why}", events[*index].line));
        let reasons: ArrayRef = Arc::new(StringArray::from_iter_values(reasons));
        let mut columns = self.columns(events, &indexes);
        columns.push(("reason".into(), reasons));
        columns.extend(headers(self.request, indexes.len()));
        self.batch(columns, indexes.len())
    }

    fn columns(&self, events: &[Event<'_>], indexes: &[usize]) -> Vec<(String, ArrayRef)> {
        let bytes = indexes.iter().map(|index| events[*index].text.len()).sum();
        let mut payload = StringBuilder::with_capacity(indexes.len(), bytes);
        indexes
            .iter()
            .for_each(|index| payload.append_value(events[*index].text));
        let times = TimestampMicrosecondArray::from_value(self.received_at.0, indexes.len());
        vec![
            ("id".into(), self.ids.column(indexes)),
            ("received_at".into(), Arc::new(times)),
            ("payload".into(), Arc::new(payload.finish())),
        ]
    }

    fn batch(&self, columns: Vec<(String, ArrayRef)>, rows: usize) -> Result<RecordBatch> {
        build::batch(columns, rows).map_err(|e| refuse(&self.request.source, e.to_string()))
    }
}

/// The header columns of a request, the same in each row.
pub(super) fn headers(
    request: &Request,
    rows: usize,
) -> impl Iterator<Item = (String, ArrayRef)> + '_ {
    request.headers.iter().map(move |(column, value)| {
        let values: StringArray = std::iter::repeat_n(value.as_deref(), rows).collect();
        (column.clone(), Arc::new(values) as ArrayRef)
    })
}
