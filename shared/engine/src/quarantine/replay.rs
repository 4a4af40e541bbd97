//! Putting rows in quarantine through their model again.

use std::collections::BTreeSet;

use domain::{Model, SEQUENCE, TableName, items::Quarantine};
use ports::{Error, Kind, Result, tables::Pin};
use serde::Serialize;

use super::{Row, chosen, find, take_back};
use crate::{
    World, load,
    refresh::{
        self, Refreshed,
        bad_rows::{self, Out},
        commit::{self, Times},
        job::{Job, Loaded, Reason},
        make::Stopped,
    },
};

/// Attempts on a model that is refreshed meanwhile: a refresh that is quicker than the replay wins each time.
const ATTEMPTS_MAX: u32 = 16;

/// What a replay did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The model.
    pub model: TableName,
    /// Rows that are in quarantine no more.
    pub replayed: u64,
    /// Rows of the model that were added.
    pub added: u64,
    /// Whether all of the model was built anew, as its rows do not stand for themselves.
    pub rebuilt: bool,
    /// Rows that still break it.
    pub left: Vec<Row>,
    /// Rows that were named and stay dropped, as there is no room for them yet: another replay takes them back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<u64>,
}

/// Puts rows in quarantine through their model again. Without `ids` all of them; `ids` may name dropped ones too, of which as
/// many are taken back as there is room for. Rows that pass go in as the model's strategy says, those that a newer row of their
/// key has overtaken go nowhere (**M-2**), and both leave the quarantine in the same transaction. Where rows do not stand for
/// themselves (delete+insert, groups, joins), all of the model is built anew.
///
/// # Errors
/// `NotFound` for a row that is not there; `TooLarge` when there is room for none; `Invalid` when the model fails for another reason; what the ports answer.
pub async fn replay(world: &World, model: &TableName, ids: Option<&[u64]>) -> Result<Replayed> {
    let model = find(world, model)?;
    let stay = take_back(world, model, ids.unwrap_or_default()).await?;
    let ids = without(ids, &stay);
    let done = put_in(world, model, ids.as_deref()).await?;
    Ok(Replayed {
        dropped: stay,
        ..done
    })
}

/// Those of the rows that do not stay dropped.
pub(super) fn without(ids: Option<&[u64]>, stay: &[u64]) -> Option<Vec<u64>> {
    let stay: BTreeSet<&u64> = stay.iter().collect();
    let left = |ids: &[u64]| {
        let left = ids.iter().filter(|id| !stay.contains(id));
        left.copied().collect()
    };
    ids.map(left)
}

/// As [`replay`], of rows that are in quarantine: no dropped one is taken back.
pub(super) async fn put_in(world: &World, model: &Model, ids: Option<&[u64]>) -> Result<Replayed> {
    for _ in 0..ATTEMPTS_MAX {
        let job = Job::new(&world.project, model, None, Reason::Batch);
        let loaded = Loaded::read(world, &job).await?;
        let list = bad_rows::held(&job, &loaded)?;
        let rows = chosen(&model.name, &list, ids)?;
        if rows.is_empty() {
            return report(world, model, &list, (0, false)).await;
        }
        let outdated = loaded.is_outdated() || loaded.is_reshaped(model) || !loaded.is_built();
        let alone = bad_rows::replays_rows(&job, sequenced(world, &loaded, model).await?);
        if outdated || !alone {
            return rebuild(world, model, &list).await;
        }
        if let Some(added) = attempt(world, &job, loaded, rows).await? {
            return report(world, model, &list, (added, false)).await;
        }
    }
    Err(
        Error::new(Kind::Conflict, "replay rows of", &model.name).because(format!(
            "it was refreshed meanwhile, {ATTEMPTS_MAX} times; pause it for as long: `headwater live pause {}`",
            model.name
        )),
    )
}

/// Whether the table has the rows' sequences.
async fn sequenced(world: &World, loaded: &Loaded, model: &Model) -> Result<bool> {
    let Some(snapshot) = loaded.head.as_ref().and_then(|head| head.snapshot.clone()) else {
        return Ok(false);
    };
    let table = model.name.clone();
    let schema = world.tables.schema(&Pin::Model { table, snapshot }).await?;
    Ok(schema.column_with_name(SEQUENCE).is_some())
}

/// One attempt; the rows added, or none when somebody else was first.
async fn attempt(
    world: &World,
    job: &Job<'_>,
    mut loaded: Loaded,
    rows: BTreeSet<u64>,
) -> Result<Option<u64>> {
    let began = world.clock.now();
    // Nothing is consumed by it: what is new in the inputs is left to the next refresh.
    for input in &mut loaded.inputs {
        input.to = input.consumed;
        input.snapshot.clone_from(&input.from);
    }
    let out = Out::of(job, &loaded)?.replaying(rows);
    let failed = |why: String| {
        Err(Error::new(Kind::Invalid, "replay rows of", &job.model.name).because(why))
    };
    let (mut made, out) = match bad_rows::make(world, job, &loaded, out).await {
        Ok(made) => made,
        Err(Stopped::Conflict) => return Ok(None),
        Err(Stopped::World(error)) => return Err(error),
        // Whatever kind it is of, it is the model's: it ends so another time too.
        Err(Stopped::Failed(error)) => return failed(error.chain()),
        Err(Stopped::Assertion(message) | Stopped::BadRows { message, .. }) => {
            return failed(message);
        }
    };
    bad_rows::keep(world, job, &loaded, &mut made, &out).await?;
    let times = Times {
        began,
        origin: None,
    };
    match commit::commit(world, job, &loaded, made, times).await? {
        Refreshed::Built { added, .. } => Ok(Some(added)),
        Refreshed::Conflict => Ok(None),
        other => failed(format!("it ended as {}", other.word())),
    }
}

async fn rebuild(world: &World, model: &Model, before: &Quarantine) -> Result<Replayed> {
    match refresh::build(world, model, None, Reason::Full).await? {
        Refreshed::Built { added, .. } => report(world, model, before, (added, true)).await,
        Refreshed::Idle => report(world, model, before, (0, true)).await,
        Refreshed::Conflict => Err(Error::new(Kind::Conflict, "rebuild", &model.name)
            .because("somebody else commits it; try again")),
        Refreshed::Error { message }
        | Refreshed::AssertionFailed { message }
        | Refreshed::Held { reason: message } => {
            Err(Error::new(Kind::Invalid, "rebuild", &model.name).because(message))
        }
    }
}

async fn report(
    world: &World,
    model: &Model,
    before: &Quarantine,
    (added, rebuilt): (u64, bool),
) -> Result<Replayed> {
    let key = load::quarantine(&model.name);
    let now: Quarantine = match world.state.get(&key).await? {
        Some(item) => item.decode()?,
        None => Quarantine::default(),
    };
    let still = |sequence: u64| now.rows.iter().any(|row| row.sequence == sequence);
    let gone = before.rows.iter().filter(|row| !still(row.sequence));
    Ok(Replayed {
        model: model.name.clone(),
        replayed: gone.count() as u64,
        added,
        rebuilt,
        left: now.rows.iter().map(Row::from).collect(),
        dropped: Vec::new(),
    })
}
