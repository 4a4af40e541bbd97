//! The ports of a program of one machine: SQLite, local files, a queue in the process.

use std::{path::Path, sync::Arc};

use domain::Project;
use embedded::{
    ChannelAlerts, FileObjects, HttpEmbedder, HttpPost, MemoryObjects, SqliteState, SystemChance,
    SystemClock, WakingQueue,
};
use engine::World;
use lake::{EntryLake, Lake, landing::LandingLake};
use ports::{Embedder, Error, Kind, Objects, Result, State, search::Searching};
use search::{Indexes, model::StaticModel};
use settings::{Embedding, Queues, Settings, StateStore, Warehouse};

use crate::{failure::Failure, project};

/// Opens the state store and the warehouse that `settings` name, creating what is not there, around
/// a project.
///
/// # Errors
/// `Corrupt` when the state file is not one; `Unavailable` when the disk refuses.
pub fn open(settings: &Settings, project: Project) -> Result<World> {
    let clock = Arc::new(SystemClock);
    let chance = Arc::new(SystemChance);
    let StateStore::Sqlite(file) = &settings.state else {
        return Err(elsewhere("state"));
    };
    if settings.queue != Queues::Process {
        return Err(elsewhere("queue"));
    }
    match &settings.warehouse {
        Warehouse::Folder(folder) => know(file, folder)?,
        Warehouse::Memory => begins(file)?,
        Warehouse::S3 { .. } => {}
    }
    let state: Arc<dyn State> = Arc::new(SqliteState::open(file)?);
    let (objects, uri) = objects(&settings.warehouse)?;
    let tables = Arc::new(Lake::new(
        state.clone(),
        objects.clone(),
        uri,
        chance.clone(),
        clock.clone(),
    ));
    let landing = LandingLake::new(
        state.clone(),
        objects.clone(),
        clock.clone(),
        chance.clone(),
    );
    let limits = query::Settings {
        memory: settings.query.memory,
        spill: Some(spill(file)),
        threads: std::thread::available_parallelism().map_or(2, usize::from),
    };
    Ok(World {
        state,
        landing: Arc::new(landing),
        entries: Arc::new(EntryLake::new(objects.clone()).copying_to(spill(file))),
        searching: searching(settings, file, &objects, clock.clone())?,
        jobs: None,
        query: query::engine(tables.clone(), objects, limits)?,
        tables,
        queue: Arc::new(WakingQueue::default()),
        clock: clock.clone(),
        chance,
        alerts: Arc::new(alerts(settings, clock.clone())),
        project: Arc::new(project),
        live: Arc::new(settings.live.clone()),
    })
}

/// Indexes in the warehouse, and the embedder that the settings name.
fn searching(
    settings: &Settings,
    state: &Path,
    objects: &Objects,
    clock: Arc<SystemClock>,
) -> Result<Searching> {
    let embedder: Arc<dyn Embedder> = match &settings.embedder {
        Embedding::None => Searching::default().embedder,
        Embedding::Http { url, model, key } => {
            let key = key.as_ref().map(|key| key.0.clone());
            Arc::new(HttpEmbedder::new(url, model, key, HttpPost::new(), clock))
        }
        Embedding::Model(folder) => Arc::new(StaticModel::open(folder)?),
        Embedding::Bedrock(_) => return Err(elsewhere("embedder.url")),
    };
    let cache = usize::try_from(settings.materialize.search_cache).unwrap_or(usize::MAX);
    let scratch = spill(state);
    let settings = search::Settings { cache, scratch };
    Ok(Searching {
        indexes: Arc::new(Indexes::new(objects.clone(), settings)),
        embedder,
    })
}

/// Opens a project's world; a project with errors is refused.
///
/// # Errors
/// Every error of the settings or of the models; what the ports answer.
pub fn open_sound(settings: &Settings) -> Result<World, Failure> {
    let project = project::load_sound(&settings.project)?;
    Ok(open(settings, project)?)
}

/// Opens a project's world for reads and controls, which sound models allow whatever the others
/// are.
///
/// # Errors
/// When a file cannot be read; what the ports answer.
pub fn open_any(settings: &Settings) -> Result<World, Failure> {
    let (project, _) = project::load(&settings.project)?;
    Ok(open(settings, project)?)
}

/// The channels that `settings` name.
fn alerts(settings: &Settings, clock: Arc<SystemClock>) -> ChannelAlerts {
    embedded::channels(
        settings.alerts.log,
        &settings.name,
        settings.alerts.webhook.as_ref().map(|url| url.0.clone()),
        settings.alerts.slack.as_ref().map(|url| url.0.clone()),
        clock,
    )
}

fn objects(warehouse: &Warehouse) -> Result<(Objects, String)> {
    match warehouse {
        Warehouse::Folder(folder) => {
            let objects = FileObjects::open(folder)?;
            Ok((Arc::new(objects), uri(folder)))
        }
        Warehouse::Memory => Ok((
            Arc::new(MemoryObjects::default()),
            String::from("memory://"),
        )),
        Warehouse::S3 { .. } => Err(elsewhere("warehouse")),
    }
}

/// Refuses to begin with an empty state over a warehouse that has tables: they would be lost to everybody.
fn know(state: &Path, warehouse: &Path) -> Result<()> {
    let is_empty = std::fs::metadata(state).map_or(true, |about| about.len() == 0);
    let has_tables = ["tables", "landing"].iter().any(|folder| {
        std::fs::read_dir(warehouse.join(folder)).is_ok_and(|mut d| d.next().is_some())
    });
    if !has_tables {
        return Ok(());
    }
    let what = match is_empty {
        true => "it is missing or empty",
        // What is committed is in the log first: a copy of the file alone may know nothing.
        false if SqliteState::has_lost_its_log(state) => {
            "it knows no table, as its log (the file beside it that ends in `-wal`) is gone"
        }
        false => return Ok(()),
    };
    Err(Error::new(Kind::Corrupt, "open state", state.display()).because(format!(
        "{what}, while {} holds tables that only it knows; restore it, or move both away to begin with nothing",
        warehouse.display()
    )))
}

/// Refuses a state that outlived the warehouse it tells of: that one was in the memory of another process.
fn begins(state: &Path) -> Result<()> {
    if std::fs::metadata(state).map_or(true, |about| about.len() == 0) {
        return Ok(());
    }
    let why = "it tells of tables that were in the memory of another process, as `warehouse` is memory://; remove it to begin \
               with nothing, or let `warehouse` be a folder";
    Err(Error::new(Kind::Corrupt, "open state", state.display()).because(why))
}

/// The error of settings that only a deployment can follow.
fn elsewhere(setting: &str) -> Error {
    Error::new(Kind::Invalid, "open", setting).because(
        "this program runs on one machine; what the setting names is for the functions of a deployment",
    )
}

fn uri(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

/// Where statements that need more memory than they may use put the rest: on the disk of the state
/// file, since the system's temporary folder is often memory itself.
fn spill(state: &Path) -> std::path::PathBuf {
    state
        .parent()
        .map_or_else(std::env::temp_dir, |folder| folder.join("spill"))
}
