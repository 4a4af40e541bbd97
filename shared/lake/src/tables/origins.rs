//! Where the values of a row are from that its newest event did not have.
//!
//! Such a value stays that of an older event, or is unknown. An event that comes late tells something new when it is newer
//! than that one, and older than the row. So a row remembers, in a column that no reader of ours is shown, a JSON object by
//! column: the sequence through which events tell nothing new of it (of the event whose value it holds, or of the soft delete
//! that kept it), in an array when it has none and all through there was deleted (an empty one when nothing was).
//! Of all other columns it is the row's own.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, AsArray, StringArray},
    datatypes::Schema,
};
use hashbrown::HashMap;
use ports::{Error, Kind, Result};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use super::{
    columns::{Columns, ORIGINS, position},
    gaps::{Gaps, TableRow},
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origins(Vec<(usize, Origin)>);

impl Origins {
    /// None: all values are the row's own.
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Origin> {
        let place = self.0.binary_search_by_key(&at, |(other, _)| *other);
        place.ok().map(|place| &self.0[place].1)
    }

    pub(super) fn set(&mut self, at: usize, origin: Origin) {
        // In the order of the columns, however they came to be.
        match self.0.binary_search_by_key(&at, |(other, _)| *other) {
            Ok(place) => self.0[place].1 = origin,
            Err(place) => self.0.insert(place, (at, origin)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Origin)> {
        self.0.iter().map(|(at, origin)| (*at, origin))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(usize, Origin)> for Origins {
    fn from_iter<T: IntoIterator<Item = (usize, Origin)>>(all: T) -> Self {
        let mut origins = Self::new();
        for (at, origin) in all {
            origins.set(at, origin);
        }
        origins
    }
}

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
        (schema.field(at).name().as_str(), told)
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
            // A row without a sequence had it.
            Told::Known(since) => (true, Some(since).filter(|since| !since.is_empty())),
            Told::Lost(since) => (false, since.into_iter().next()),
        };
        let since = match since {
            Some(since) => Some(Rank::from_text(&since).ok_or_else(unread)?),
            None => None,
        };
        if let Some(at) = position(schema, &name) {
            origins.set(at, Origin { known, since });
        }
    }
    Ok(origins)
}

/// The origins of rows of the table; none of those whose values are all their own. Only files with some are read.
pub(super) async fn of_rows(
    stage: &Stage<'_>,
    gaps: &Gaps,
    rows: BTreeMap<usize, RoaringTreemap>,
) -> Result<HashMap<TableRow, Origins>> {
    let mut found = HashMap::new();
    for (file, rows) in rows {
        let of_file = of_file(stage, gaps, file, &rows).await?;
        found.extend(
            of_file
                .into_iter()
                .map(|(row, origins)| ((file, row), origins)),
        );
    }
    Ok(found)
}

/// The same of one file, by number.
pub(super) async fn of_file(
    stage: &Stage<'_>,
    gaps: &Gaps,
    file: usize,
    rows: &RoaringTreemap,
) -> Result<Vec<(u64, Origins)>> {
    let (Some(base), columns) = (&stage.base, &stage.draft.columns) else {
        return Ok(Vec::new());
    };
    let part = &base.files[file].part;
    let may_have = |at: Option<usize>| {
        let name = stage.of_base(base, at?).0?;
        let bounds = part.bounds.get(&name);
        let none = bounds.is_some_and(|bounds| bounds.nulls == Some(part.rows));
        (!none).then_some((at?, name))
    };
    let own = may_have(columns.position(ORIGINS));
    let names = may_have(gaps.names);
    if rows.is_empty() || own.is_none() && names.is_none() {
        return Ok(Vec::new());
    }
    let (objects, footers) = (&stage.lake.objects, &stage.lake.footers);
    let opened = Readable::open(objects, footers, part.clone()).await?;
    let held = |column: Option<(usize, String)>| {
        let (at, name) = column?;
        position(opened.footer().schema(), &name).map(|_| at)
    };
    let (own, names) = (held(own), held(names));
    let wanted: Vec<usize> = own.into_iter().chain(names).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let some = Columns {
        file: Arc::new(columns.file.project(&wanted).map_err(corrupt)?),
        ..columns.clone()
    };
    let mut found = Vec::new();
    let mut numbers = rows.iter();
    for batch in pick(objects, footers, part.clone(), &some, rows).await? {
        let texts = |at: Option<usize>| {
            let place = wanted.iter().position(|one| Some(*one) == at)?;
            batch.column(place).as_string_opt::<i32>()
        };
        let (own, names) = (texts(own), texts(names));
        let text = |column: Option<&'_ StringArray>, row: usize| {
            let column = column.filter(|column| column.is_valid(row))?;
            Some(column.value(row).to_owned())
        };
        for (row, number) in (0..batch.num_rows()).zip(numbers.by_ref()) {
            let origins = match (text(own, row), text(names, row)) {
                (Some(own), _) => from_text(&own, &columns.read)?,
                // A row of before there were origins says what it was left without.
                (None, Some(names)) => gaps.lost(&names),
                (None, None) => continue,
            };
            found.push((number, origins));
        }
    }
    Ok(found)
}

fn corrupt(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Kind::Corrupt, "read origins of", "values").because(why)
}
