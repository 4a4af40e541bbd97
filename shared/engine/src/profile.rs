//! Profiles: what the rows of live models are like, looked at now and then, off the write path.
//!
//! A table of at most [`ROWS_MAX`] rows is read once, by one statement under limits; of a larger one only the statistics of
//! its files are asked, which know no distinct values and no NULLs where rows were deleted.

mod sql;
mod statistics;

use domain::{
    Duration, TableName, Timestamp,
    items::{self, Head, Snapshot},
};
use ports::{
    Error, Kind, Result,
    query::{Catalog, Limits, RowOrder, Statement},
    state::{Expect, Write},
    tables::Pin,
};
use serde::Serialize;

use crate::{
    World,
    load::{self, Items},
    refresh::unknown,
};

/// Most rows of a table that is read for its profile.
const ROWS_MAX: u64 = 5_000_000;
/// Most columns of a profile.
const COLUMNS_MAX: usize = 100;
/// Longest that one statement may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// No further model is begun after this long in one round.
const ROUND_MAX: Duration = Duration::from_secs(20);

/// A profile, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// When the rows were looked at, RFC 3339.
    pub at: String,
    /// Rows.
    pub rows: u64,
    /// Whether only the statistics of the files were asked.
    pub from_statistics: bool,
    /// Columns.
    pub columns: Vec<Column>,
    /// Columns beyond the first hundred.
    pub left_out: u64,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Name, case kept.
    pub name: String,
    /// Type, in Arrow's words.
    #[serde(rename = "type")]
    pub kind: String,
    /// Part of the rows that is NULL; none without rows, or when nobody knows.
    pub null_fraction: Option<f64>,
    /// The least value.
    pub min: Option<String>,
    /// The greatest value.
    pub max: Option<String>,
    /// Distinct values, about.
    pub distinct: Option<u64>,
}

/// What was found of a model when it was last looked at; none when it never was.
///
/// # Errors
/// `NotFound` when there is no such model; `Unavailable` or `Corrupt` from the state store.
pub async fn stored(world: &World, model: &TableName) -> Result<Option<Profile>> {
    if !world.project.models.contains_key(model) {
        return Err(unknown(world, model));
    }
    let key = load::profile(model);
    let items = Items::load(&*world.state, [key.clone()]).await?;
    Ok(items.get(&key)?.map(shown))
}

/// Looks at a model now, and remembers what was found.
///
/// # Errors
/// `NotFound` when there is no such model, `Invalid` when it has no rows of its own yet; what the query engine answers.
pub async fn now(world: &World, model: &TableName) -> Result<Profile> {
    if !world.project.models.contains_key(model) {
        return Err(unknown(world, model));
    }
    let items = Items::load(&*world.state, [load::head(model)]).await?;
    let built = items.head(model)?.and_then(|head| {
        let snapshot = head.snapshot.clone()?;
        Some((head, snapshot))
    });
    let Some((head, snapshot)) = built else {
        let why = "it has no rows of its own: it was never built, or it is a view";
        return Err(Error::new(Kind::Invalid, "profile", model).because(why));
    };
    Ok(shown(take(world, model, &head, snapshot).await?))
}

/// Looks at live models that changed since they were last looked at, those first that were longest ago, until the time of
/// a round is over. Returns when the next round is worth while.
pub(crate) async fn round(world: &World) -> Timestamp {
    let began = world.clock.now();
    let interval = world.live.profile_interval;
    let due = match due(world, began).await {
        Ok(due) => due,
        Err(error) => {
            tracing::warn!(error = error.chain(), "no model could be profiled");
            return began + interval;
        }
    };
    let mut next = began + interval;
    for (at, model, head, snapshot) in due {
        if at > began {
            next = next.min(at);
        } else if world.clock.now().since(began) > ROUND_MAX {
            // The rest comes first in the next round.
            break;
        } else if let Err(error) = take(world, &model, &head, snapshot).await {
            tracing::warn!(%model, error = error.chain(), "it could not be profiled");
        }
    }
    next
}

/// Models whose table changed since they were looked at: from when on they may be again, and what there is to look at.
type Due = Vec<(Timestamp, TableName, Head, Snapshot)>;

async fn due(world: &World, now: Timestamp) -> Result<Due> {
    let models: Vec<_> = world.project.live().map(|model| &model.name).collect();
    let keys = models
        .iter()
        .flat_map(|model| [load::head(model), load::profile(model)]);
    let items = Items::load(&*world.state, keys).await?;
    let mut due = Due::new();
    for model in models {
        let Some(head) = items.head(model)? else {
            continue;
        };
        let before: Option<items::Profile> = items.get(&load::profile(model))?;
        let Some(snapshot) = head.snapshot.clone() else {
            continue;
        };
        let at = match before {
            Some(before) if before.commits == head.position.commits => continue,
            Some(before) => before.at + world.live.profile_interval,
            None => now.min(Timestamp::default()),
        };
        due.push((at, model.clone(), head, snapshot));
    }
    due.sort_by_key(|(at, ..)| *at);
    Ok(due)
}

/// Looks at a snapshot, and remembers what was found.
async fn take(
    world: &World,
    model: &TableName,
    head: &Head,
    snapshot: Snapshot,
) -> Result<items::Profile> {
    let pin = Pin::Model {
        table: model.clone(),
        snapshot,
    };
    let schema = world.tables.schema(&pin).await?;
    let fields = &schema.fields()[..schema.fields().len().min(COLUMNS_MAX)];
    let from_statistics = head.rows > ROWS_MAX;
    let (rows, columns) = if from_statistics {
        let scan = world.tables.scan(&pin, 0).await?;
        (head.rows, statistics::columns(fields, &scan.parts)?)
    } else {
        let statement = Statement {
            order: RowOrder::Any,
            watermarks: None,
            sql: sql::statement(model, fields),
            parameters: Vec::new(),
            limits: Limits {
                time: TIME_MAX,
                rows: Some(1),
            },
        };
        let catalog = Catalog {
            tables: [(model.clone(), pin)].into(),
            ..Catalog::default()
        };
        sql::columns(fields, world.query.run(&statement, &catalog).await?).await?
    };
    let profile = items::Profile {
        at: world.clock.now(),
        commits: head.position.commits,
        rows,
        from_statistics,
        columns,
        left_out: (schema.fields().len() - fields.len()) as u64,
    };
    // Whoever looked last has looked at the newest rows, or at no much older ones.
    let write = Write::put(load::profile(model), &profile, Expect::Any);
    world.state.transact(vec![write]).await?;
    Ok(profile)
}

fn shown(profile: items::Profile) -> Profile {
    let rows = profile.rows;
    #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
    let fraction = |nulls: u64| (rows > 0).then(|| nulls as f64 / rows as f64);
    let column = |column: items::ColumnProfile| Column {
        name: column.name,
        kind: column.kind,
        null_fraction: column.nulls.and_then(fraction),
        min: column.min,
        max: column.max,
        distinct: column.distinct,
    };
    Profile {
        at: profile.at.to_string(),
        rows,
        from_statistics: profile.from_statistics,
        columns: profile.columns.into_iter().map(column).collect(),
        left_out: profile.left_out,
    }
}

/// Longest text of a least or greatest value, in characters.
const TEXT_MAX: usize = 64;

/// A value as it is kept: long ones are cut, with a sign that they were.
fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
