//! Rows of an input that break a refresh, and the refresh without them (`on_bad_row=quarantine`).
//!
//! A query says that it broke, not on which row. So its new rows are halved, by sequence, until the rows stand alone that
//! break it: the cost is that of a few small queries for each bad row. What is left out stays out, and is listed in the
//! model's `quarantine` item, which moves with the watermark in one transaction (**Q-1**, **W-2**), until it is replayed,
//! dropped, or the model is rebuilt from nothing, which tries every row again but those that were dropped.

mod find;
mod keep;

use std::collections::{BTreeMap, BTreeSet};

use domain::{Materialized, SEQUENCE, Strategy, TableName, items::Quarantine};
use ports::{
    Error, Kind, Result,
    query::Catalog,
    tables::{Pin, Staged},
};

use super::{
    asserts,
    job::{Job, Loaded, Reason},
    make::{self, Made, Stopped},
};
use crate::{World, load};

pub(crate) use keep::keep;

/// Most rows that may be in quarantine of one model: more are no exceptions, the model is wrong.
pub(crate) const ROWS_MAX: usize = 1_000;
/// Prefix of the names that inputs go by when rows are left out of them.
const WHOLE: &str = "_whole_";
/// Whether a row is read, among the columns of an input that rows are left out of.
const STAYS: &str = "_headwater_stays";
/// Most characters of a reason.
const REASON_MAX: usize = 300;

/// What a build leaves out of its input.
#[derive(Clone, Debug, Default)]
pub(crate) struct Out {
    /// The input; none for a build that has several, of whose rows none can be told to be the bad one.
    input: Option<TableName>,
    /// Sequences that are in quarantine already. A build from nothing tries them again.
    held: BTreeSet<u64>,
    /// Sequences that were dropped: no build reads them.
    dropped: BTreeSet<u64>,
    /// How many of these are listed.
    listed: usize,
    /// Rows found to be bad, and how they broke it.
    pub(crate) found: BTreeMap<u64, String>,
    /// The only rows to read, of all or of those above a sequence.
    only: Option<Only>,
    /// Whether rows come out of quarantine: the only ones to read, whatever the watermark.
    pub(crate) replay: Option<BTreeSet<u64>>,
}

/// Rows to read.
#[derive(Clone, Debug)]
enum Only {
    /// Rows up to `above`, and those from `first` through `last`.
    Span { above: u64, first: u64, last: u64 },
    /// These.
    These(BTreeSet<u64>),
}

impl Out {
    /// What a build leaves out at first.
    ///
    /// # Errors
    /// `Corrupt` when the list cannot be read.
    pub(crate) fn of(job: &Job<'_>, loaded: &Loaded) -> Result<Self> {
        let held = held(job, loaded)?;
        let input = match loaded.inputs.as_slice() {
            [only] => Some(only.table.clone()),
            _ => None,
        };
        let dropped = match &input {
            Some(input) if held.drops_of(input) => held.dropped.into_iter().collect(),
            Some(_) | None => BTreeSet::new(),
        };
        // The number of a row of another input says nothing about this one's.
        let is_of = |of: &TableName| input.as_ref().is_none_or(|input| input == of);
        let rows = held.rows.iter().filter(|row| is_of(&row.input));
        let rows = rows.map(|row| row.sequence).collect();
        Ok(Self {
            input,
            listed: held.rows.len(),
            held: rows,
            dropped,
            ..Self::default()
        })
    }

    /// The same for a build of rows that come out of quarantine.
    pub(crate) fn replaying(self, rows: BTreeSet<u64>) -> Self {
        Self {
            // Those that break it again are listed in their own places.
            listed: self.listed.saturating_sub(rows.len()),
            replay: Some(rows),
            ..self
        }
    }

    fn only(&self, only: Only) -> Self {
        Self {
            only: Some(only),
            ..self.clone()
        }
    }

    /// Leaves the rows out of what a statement reads; `anew` reads the others again that are in quarantine. The input goes by
    /// another name then, and a view by its own. Conditions of the statement may be asked of a row together with those that leave
    /// it out, or before them, so that such a row holds nothing but NULL: nothing breaks on that. The watermark of the input is
    /// that of its other name.
    pub(super) async fn restrict(
        &self,
        world: &World,
        catalog: &mut Catalog,
        watermarks: &mut Option<BTreeMap<TableName, Option<u64>>>,
        anew: bool,
    ) -> Result<()> {
        let conditions = self.conditions(anew);
        let Some(input) = self.input.as_ref().filter(|_| !conditions.is_empty()) else {
            return Ok(());
        };
        let Some(pin) = catalog.tables.remove(input) else {
            return Ok(());
        };
        let part = |part: &str| format!("{WHOLE}{part}");
        let whole =
            TableName::new(&part(input.schema()), &part(input.name())).map_err(|error| {
                Error::new(Kind::Invalid, "leave rows out of", input).because(error)
            })?;
        let known = matches!(pin, Pin::Landing { .. });
        let conditions = conditions.join(" AND ");
        // Every row of a landing table has a sequence; a model's may be NULL, and is then no bad row.
        let condition = match known || self.replay.is_some() {
            true => conditions,
            false => format!("{SEQUENCE} IS NULL OR ({conditions})"),
        };
        let schema = world.tables.schema(&pin).await?;
        let columns = schema.fields().iter().map(|field| {
            let name = format!("\"{}\"", field.name().replace('"', "\"\""));
            match field.name() == SEQUENCE {
                true => name,
                false => format!("CASE WHEN {STAYS} THEN {name} END AS {name}"),
            }
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let rows = format!("SELECT *, ({condition}) AS {STAYS} FROM {whole}");
        let view = format!("SELECT {columns} FROM ({rows}) AS _rows WHERE {STAYS}");
        if let Some(watermarks) = watermarks
            && let Some(watermark) = watermarks.remove(input)
        {
            watermarks.insert(whole.clone(), watermark);
        }
        catalog.tables.insert(whole, pin);
        catalog.views.insert(input.clone(), view);
        Ok(())
    }

    fn conditions(&self, anew: bool) -> Vec<String> {
        let mut conditions = Vec::new();
        let mut out: BTreeSet<u64> = self.found.keys().copied().collect();
        if self.replay.is_none() {
            out.extend(&self.dropped);
        }
        if !anew && self.replay.is_none() {
            out.extend(&self.held);
        }
        match (&self.only, &self.replay) {
            (Some(Only::Span { above, first, last }), _) if *above == 0 => {
                conditions.push(format!("{SEQUENCE} BETWEEN {first} AND {last}"));
            }
            (Some(Only::Span { above, first, last }), _) => conditions.push(format!(
                "({SEQUENCE} <= {above} OR {SEQUENCE} BETWEEN {first} AND {last})"
            )),
            (Some(Only::These(rows)), _) | (None, Some(rows)) => {
                conditions.push(among(rows));
            }
            (None, None) => {}
        }
        if !out.is_empty() {
            conditions.push(format!("NOT {}", among(&out)));
        }
        conditions
    }
}

/// A condition on the sequence.
fn among(rows: &BTreeSet<u64>) -> String {
    match rows.is_empty() {
        true => String::from("FALSE"),
        false => {
            let rows: Vec<String> = rows.iter().map(u64::to_string).collect();
            format!("({SEQUENCE} IN ({}))", rows.join(", "))
        }
    }
}

/// What is in quarantine of a model.
///
/// # Errors
/// `Corrupt` when the list cannot be read.
pub(crate) fn held(job: &Job<'_>, loaded: &Loaded) -> Result<Quarantine> {
    let key = load::quarantine(&job.model.name);
    Ok(loaded.items.get(&key)?.unwrap_or_default())
}

/// Builds without the rows that break it, when the model says so. `once` is one attempt.
pub(crate) async fn make(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    mut out: Out,
) -> Result<(Made, Out), Stopped> {
    loop {
        match make::once(world, job, loaded, &out).await {
            Ok(made) => return Ok((made, out)),
            Err(stopped) if job.model.config.quarantine => {
                out = more(world, job, loaded, out, stopped).await?;
            }
            Err(Stopped::BadRows { message, .. }) => return Err(Stopped::Assertion(message)),
            Err(Stopped::Failed(error)) if is_of_a_row(job, &error) => {
                let hint = " (with `on_bad_row=quarantine` in its @config such rows stay out, and the rest goes in)";
                return Err(Stopped::Failed(and(error, hint)));
            }
            Err(stopped) => return Err(stopped),
        }
    }
}

/// Finds out which rows stopped a build; the stop itself when that cannot be told.
async fn more(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    mut out: Out,
    stopped: Stopped,
) -> Result<Out, Stopped> {
    let (rows, stopped) = match stopped {
        Stopped::BadRows { rows, message } => (Ok(rows), Stopped::Assertion(message)),
        Stopped::Failed(error) if error.kind == Kind::Invalid => {
            let rows = find::find(world, job, loaded, &out).await;
            (rows.map_err(Stopped::from)?, Stopped::Failed(error))
        }
        other => return Err(other),
    };
    let before = out.found.len();
    let why = match rows {
        Ok(rows) => {
            out.found.extend(rows);
            match out.found.len() {
                now if now == before => String::from("no row breaks it alone"),
                now if now + out.listed > ROWS_MAX => too_many(out.listed),
                _ => return Ok(out),
            }
        }
        Err(why) => why,
    };
    let because = |told: String| format!("{told} (nothing was quarantined: {why})");
    Err(match stopped {
        Stopped::Assertion(message) => Stopped::Assertion(because(message)),
        Stopped::Failed(error) => Stopped::Failed(and(error, &because(String::new()))),
        other => other,
    })
}

/// The error with more to say.
fn and(error: Error, more: &str) -> Error {
    let told = std::error::Error::source(&error).map(ports::error::chain);
    let told = told.unwrap_or_default();
    let Error {
        kind,
        action,
        subject,
        ..
    } = error;
    Error::new(kind, action, subject).because(format!("{told}{more}"))
}

/// Whether a value of a row broke a build that could do without the row.
fn is_of_a_row(job: &Job<'_>, error: &Error) -> bool {
    let model = job.model;
    error.kind == Kind::Invalid
        && model.config.materialized == Materialized::Incremental
        && job.inputs.len() == 1
        && error.chain().contains("Cannot cast")
}

/// Why rows are not quarantined beside those that are `listed`.
fn too_many(listed: usize) -> String {
    match listed {
        0 => format!("more than {ROWS_MAX} rows break it, so it is the model that is wrong"),
        _ => format!(
            "{listed} rows are in its quarantine, which holds {ROWS_MAX}: replay them once the model is right, or drop them"
        ),
    }
}

/// How an error reads as the reason of one row.
fn reason(error: &Error) -> String {
    let text = match std::error::Error::source(error) {
        Some(source) => ports::error::chain(source),
        None => error.chain(),
    };
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// The rows of the input whose rows in the table break an assertion about single rows; none when they cannot be told.
///
/// # Errors
/// What the query engine answers.
pub(super) async fn breaking(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    out: &Out,
    staged: &Staged,
) -> Result<Option<BTreeMap<u64, String>>> {
    let model = job.model;
    let told_apart = out.input.is_some()
        && is_row_by_row(job)
        && staged.schema.column_with_name(SEQUENCE).is_some();
    if !model.config.quarantine || !told_apart {
        return Ok(None);
    }
    // Rows that were there before are not of this build; one from nothing has all of them new.
    let above = match (job.reason, &out.replay, loaded.inputs.as_slice()) {
        (Reason::Full, _, _) | (_, Some(_), _) => 0,
        _ if make::is_anew(job, loaded) => 0,
        (_, None, [only]) => only.consumed.sequence,
        (_, None, _) => return Ok(None),
    };
    let mut bad = BTreeMap::new();
    for (expression, predicate) in asserts::row_checks(model)? {
        let sql = format!(
            "SELECT {SEQUENCE} FROM {} WHERE ({predicate}) AND {SEQUENCE} > {above} ORDER BY {SEQUENCE} LIMIT {}",
            model.name,
            ROWS_MAX + 1
        );
        for sequence in asserts::numbers_of_rows(world, &model.name, staged, &sql).await? {
            let replayed = out
                .replay
                .as_ref()
                .is_none_or(|rows| rows.contains(&sequence));
            if replayed {
                let reason = format!("it breaks `{expression}`");
                bad.entry(sequence).or_insert(reason);
            }
        }
    }
    Ok((!bad.is_empty()).then_some(bad))
}

/// Whether every row of a model comes from one row of its one input, which it reads itself and not through a view.
fn is_row_by_row(job: &Job<'_>) -> bool {
    let model = job.model;
    job.inputs.len() == 1 && model.reads == job.inputs && domain::sql::is_row_by_row(&model.sql)
}

/// Whether rows of a model can come out of quarantine without building all of it anew: each row stands for itself.
pub(crate) fn replays_rows(job: &Job<'_>, sequenced: bool) -> bool {
    let config = &job.model.config;
    let alone = is_row_by_row(job);
    match config.strategy {
        Strategy::Append => alone,
        // Change events bring their own order; other rows are told from newer ones by their sequence.
        Strategy::Merge => {
            alone && (config.cdc.is_some() || config.unique_key.is_empty() || sequenced)
        }
        Strategy::DeleteInsert | Strategy::Auto => false,
    }
}

/// The text of a merge that leaves out what is older than the table's row of its key (**M-2**).
pub(super) fn unless_newer(text: &str, table: &TableName, key: &[String]) -> String {
    let same = key
        .iter()
        .map(|k| format!("(_q.{k} IS NOT DISTINCT FROM _t.{k})"));
    let same: Vec<String> = same.collect();
    format!(
        "SELECT _q.* FROM ({text}\n) AS _q LEFT ANTI JOIN {table} AS _t ON {} AND _t.{SEQUENCE} > _q.{SEQUENCE}",
        same.join(" AND ")
    )
}
