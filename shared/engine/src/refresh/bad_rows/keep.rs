//! Keeping bad rows: the rows themselves in `quarantine.<model>`, their list in the model's item.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    datatypes::Int64Type,
    json::writer::{LineDelimited, WriterBuilder},
};
use domain::{
    SEQUENCE, TableName, Timestamp,
    items::{BadRow, Quarantine},
};
use futures::TryStreamExt;
use ports::{
    Error, Kind, Result,
    landing::Append,
    query::{Catalog, Statement},
    queue::Announcement,
    state::Write,
};

use super::{Out, among, held};
use crate::{
    World,
    ingest::QUARANTINE,
    load, pins,
    refresh::{
        commit::announce,
        job::{Job, Loaded, hash},
        make::Made,
    },
};

/// Keeps the rows that a build left out, before the commit that leaves them out (**Q-1**), and has their list move with it.
///
/// An attempt that is repeated with the same rows keeps them once in the table; the list names each once in any case.
///
/// # Errors
/// What the ports answer.
pub(crate) async fn keep(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    made: &mut Made,
    out: &Out,
) -> Result<()> {
    let before = held(job, loaded)?;
    let now = world.clock.now();
    let mut list = after(&before, out, made.rebuilt);
    if let Some(input) = out.input.as_ref().filter(|_| !out.found.is_empty()) {
        // A row that breaks it again has been out since it did so first.
        let known = before.rows.iter().filter(|row| row.input == *input);
        let since: BTreeMap<u64, Timestamp> = known.map(|row| (row.sequence, row.at)).collect();
        let fresh = out.found.iter().map(|(sequence, reason)| BadRow {
            input: input.clone(),
            sequence: *sequence,
            at: since.get(sequence).copied().unwrap_or(now),
            reason: reason.clone(),
        });
        let fresh: Vec<BadRow> = fresh.collect();
        if out.replay.is_none() {
            store(world, job, loaded, input, &fresh, now).await?;
            made.quarantined += fresh.len() as u64;
        }
        list.rows.extend(fresh);
        list.rows.sort_by_key(|row| row.sequence);
    }
    if list != before {
        made.held = Some(list.rows.len() as u64);
        let key = load::quarantine(&job.model.name);
        let expect = loaded.items.expect(&key);
        made.writes.push(Write::put(key, &list, expect));
    }
    Ok(())
}

/// What stays in quarantine whatever was found.
fn after(before: &Quarantine, out: &Out, rebuilt: bool) -> Quarantine {
    let mut list = before.clone();
    match &out.replay {
        // Those that broke it again are listed again, with what is wrong now.
        Some(rows) => list.rows.retain(|row| !rows.contains(&row.sequence)),
        // A build from nothing has tried them all, but for those that nobody wants. Rows of another input than is read now
        // are rows of the model no more.
        None if rebuilt => {
            list.rows.clear();
            let another = |input: &TableName| !before.drops_of(input);
            if out.input.as_ref().is_some_and(another) {
                (list.dropped, list.dropped_of) = (Vec::new(), None);
            }
        }
        None => list
            .rows
            .retain(|row| !out.found.contains_key(&row.sequence)),
    }
    list
}

/// Appends the rows to `quarantine.<model>`.
async fn store(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    input: &TableName,
    rows: &[BadRow],
    now: Timestamp,
) -> Result<()> {
    let model = &job.model.name;
    let failed = |error| Error::new(Kind::Invalid, "quarantine rows of", model).because(error);
    let payloads = payloads(world, loaded, input, rows).await?;
    let table = TableName::new(QUARANTINE, model.name())
        .map_err(|error| Error::new(Kind::Invalid, "quarantine rows of", model).because(error))?;
    let texts = |pick: &dyn Fn(&BadRow) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(pick).collect::<StringArray>())
    };
    let numbers = rows.iter().map(|row| i64::try_from(row.sequence).ok());
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            texts(&|row| Some(format!("{model}:{}", row.sequence))),
        ),
        (
            "received_at",
            Arc::new(TimestampMicrosecondArray::from_value(now.0, rows.len())),
        ),
        (
            "payload",
            texts(&|row| payloads.get(&row.sequence).cloned()),
        ),
        ("reason", texts(&|row| Some(row.reason.clone()))),
        ("model", texts(&|_| Some(model.to_string()))),
        ("input", texts(&|row| Some(row.input.to_string()))),
        ("sequence", Arc::new(numbers.collect::<Int64Array>())),
    ];
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(failed)?;
    let all = rows.iter().flat_map(|row| {
        row.sequence
            .to_le_bytes()
            .into_iter()
            .chain(row.reason.bytes())
    });
    let append = Append {
        table: table.clone(),
        rows: batch,
        origin_at: now,
        key: Some(format!("{model} bad rows {:016x}", hash(all))),
    };
    let stored = world.landing.append(append).await?;
    tracing::warn!(%model, rows = rows.len(), %table, "rows that broke the model were quarantined");
    let position = stored.position;
    announce(world, Announcement { table, position }).await;
    Ok(())
}

/// The rows of the input as JSON, by sequence.
async fn payloads(
    world: &World,
    loaded: &Loaded,
    input: &TableName,
    rows: &[BadRow],
) -> Result<BTreeMap<u64, String>> {
    let head = loaded.items.head(input)?;
    let pin = pins::pin(&world.project, input, head.as_ref(), None)?;
    let catalog = Catalog {
        tables: BTreeMap::from([(input.clone(), pin)]),
        ..Catalog::default()
    };
    let sequences = rows.iter().map(|row| row.sequence).collect();
    let sql = format!("SELECT * FROM {input} WHERE {}", among(&sequences));
    let found = world.query.run(&Statement::new(sql), &catalog).await?;
    let batches: Vec<RecordBatch> = found.stream.try_collect().await?;
    let mut payloads = BTreeMap::new();
    for batch in batches {
        let failed = |error| Error::new(Kind::Invalid, "write as JSON", input).because(error);
        let mut text = Vec::new();
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, LineDelimited>(&mut text);
        writer.write(&batch).map_err(failed)?;
        writer.finish().map_err(failed)?;
        let Some(numbers) = batch.column_by_name(SEQUENCE) else {
            continue;
        };
        let Some(numbers) = numbers.as_primitive_opt::<Int64Type>() else {
            continue;
        };
        let text = String::from_utf8_lossy(&text);
        for (number, line) in numbers.iter().zip(text.lines()) {
            let number = number.and_then(|number| u64::try_from(number).ok());
            payloads.extend(number.map(|number| (number, line.to_owned())));
        }
    }
    Ok(payloads)
}
