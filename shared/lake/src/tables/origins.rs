//! Where the values of a row are from that its newest event did not have.
//!
//! Such a value stays that of an older event, or is unknown. An event that comes late tells something new when it is newer
//! than that one, and older than the row. So a row remembers, in a column that no reader of ours is shown, a JSON object by
//! column: the sequence of the event whose value it holds, or, of a column without one, an array of the sequence through
//! which nothing is to be taken, as it was deleted (empty when nothing was). Of all other columns it is the row's own.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, AsArray},
    datatypes::Schema,
};
use hashbrown::HashMap;
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use super::{
    columns::{Columns, ORIGINS, position},
    gaps::TableRow,
    rank::Rank,
    read::Readable,
    rewrite::pick,
    stage::Stage,
};

/// Where one value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// Whether there is a value.
    pub known: bool,
    /// Sequence of its event, or of what there was deleted through; none when all events are news.
    pub since: Option<Rank>,
}

impl Origin {
    /// The value of an event.
    pub(super) fn of(rank: Rank) -> Self {
        Self {
            known: true,
            since: Some(rank),
        }
    }

    /// No value, nor any that is not newer than this.
    pub(super) fn lost(since: Option<&Rank>) -> Self {
        Self {
            known: false,
            since: since.cloned(),
        }
    }
}

/// Where the values of a row are from, by position of the column; those that are not here are the row's own.
pub(super) type Origins = BTreeMap<usize, Origin>;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Told {
    Known(String),
    Lost(Vec<String>),
}

/// The text that a row keeps; none when all values are its own.
pub(super) fn to_text(origins: &Origins, schema: &Schema) -> Option<String> {
    let told = origins.iter().map(|(at, origin)| {
        let since = origin.since.as_ref().map(Rank::to_text);
        let told = match origin.known {
            true => Told::Known(since.unwrap_or_default()),
            false => Told::Lost(since.into_iter().collect()),
        };
        (schema.field(*at).name().as_str(), told)
    });
    let told: BTreeMap<&str, Told> = told.collect();
    let text = || serde_json::to_string(&told).expect("texts by text are JSON");
    (!told.is_empty()).then(text)
}

/// The origins of a text, of columns that are there still; `Corrupt` when it is not one of ours.
pub(super) fn from_text(text: &str, schema: &Schema) -> Result<Origins> {
    let unread = || corrupt(format!("`{text}` tells none"));
    let told: BTreeMap<String, Told> = serde_json::from_str(text).map_err(|_| unread())?;
    let mut origins = Origins::new();
    for (name, told) in told {
        let (known, since) = match told {
            Told::Known(since) => (true, Some(since)),
            Told::Lost(since) => (false, since.into_iter().next()),
        };
        let since = match since {
            Some(since) => Some(Rank::from_text(&since).ok_or_else(unread)?),
            None => None,
        };
        if let Some(at) = position(schema, &name) {
            origins.insert(at, Origin { known, since });
        }
    }
    Ok(origins)
}

/// The origins of rows of the table; none of those whose values are all their own. Only files with some are read.
pub(super) async fn of_rows(
    stage: &Stage<'_>,
    rows: BTreeMap<usize, RoaringTreemap>,
) -> Result<HashMap<TableRow, Origins>> {
    let mut found = HashMap::new();
    let (Some(base), Some(at)) = (&stage.base, stage.draft.columns.position(ORIGINS)) else {
        return Ok(found);
    };
    let Some(name) = stage.of_base(base, at).0 else {
        return Ok(found);
    };
    let columns = &stage.draft.columns;
    let column = Columns {
        file: std::sync::Arc::new(columns.file.project(&[at]).map_err(corrupt)?),
        ..columns.clone()
    };
    for (file, rows) in rows {
        let part = &base.files[file].part;
        let none = |bounds: &ports::tables::Bounds| bounds.nulls == Some(part.rows);
        if rows.is_empty() || part.bounds.get(&name).is_some_and(none) {
            continue;
        }
        let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
        let opened = Readable::open(objects, footers, part.clone()).await?;
        if position(opened.footer().schema(), &name).is_none() {
            continue;
        }
        let batches = pick(objects, footers, part.clone(), &column, &rows).await?;
        let texts = batches.iter().flat_map(|batch| {
            let texts = batch.column(0).as_string::<i32>();
            (0..texts.len()).map(|row| texts.is_valid(row).then(|| texts.value(row)))
        });
        for (row, text) in rows.iter().zip(texts) {
            let Some(text) = text else { continue };
            found.insert((file, row), from_text(text, &columns.read)?);
        }
    }
    Ok(found)
}

fn corrupt(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Kind::Corrupt, "read origins of", "values").because(why)
}
