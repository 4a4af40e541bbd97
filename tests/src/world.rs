//! Worlds to run in: all in memory, or SQLite and files in a temporary folder. The clock is simulated in both.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use domain::{LiveSettings, Project, Severity, TableName, Timestamp};
use engine::World;
use ports::{Objects, State};
use tempfile::TempDir;
use testkit::{MemoryQueue, MemoryState, RecordedAlerts, SeededChance, SimulatedClock};

use crate::case::ModelText;

/// A moment to start at: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// The adapters a case is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// State and objects in memory.
    Memory,
    /// SQLite and files.
    Embedded,
}

impl Adapter {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Memory, Self::Embedded];

    /// Its name in the names of tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
        }
    }
}

/// A world and the strings it hangs on.
#[derive(Debug)]
pub struct Lab {
    /// The world.
    pub world: World,
    /// Its clock.
    pub clock: Arc<SimulatedClock>,
    /// Its queue.
    pub queue: Arc<MemoryQueue>,
    /// Alerts sent in it.
    pub alerts: Arc<RecordedAlerts>,
    /// Its objects.
    pub objects: Objects,
    folder: Option<TempDir>,
}

impl Lab {
    /// A world on an adapter.
    ///
    /// # Errors
    /// When the adapter cannot be opened or a model cannot be read.
    pub fn new(adapter: Adapter, models: &[ModelText], live: LiveSettings) -> Result<Self> {
        match adapter {
            Adapter::Memory => {
                let objects: Objects = Arc::new(object_store::memory::InMemory::new());
                Self::on(
                    Arc::new(MemoryState::new()),
                    objects,
                    "memory:///",
                    None,
                    models,
                    live,
                )
            }
            Adapter::Embedded => {
                let folder = tempfile::tempdir()?;
                let warehouse = folder.path().join("warehouse");
                let state = embedded::SqliteState::open(&folder.path().join("state.db"))?;
                let objects: Objects = embedded::FileObjects::open(&warehouse)?;
                let uri = file_uri(&warehouse);
                Self::on(Arc::new(state), objects, &uri, Some(folder), models, live)
            }
        }
    }

    /// A world on a state store and objects of the caller's choice.
    ///
    /// # Errors
    /// When a model cannot be read.
    pub fn on(
        state: Arc<dyn State>,
        objects: Objects,
        uri: &str,
        folder: Option<TempDir>,
        models: &[ModelText],
        live: LiveSettings,
    ) -> Result<Self> {
        let clock = Arc::new(SimulatedClock::new(START));
        let chance = Arc::new(SeededChance::new(7));
        let queue = Arc::new(MemoryQueue::new());
        let alerts = Arc::new(RecordedAlerts::new());
        let tables = Arc::new(lake::Lake::new(
            state.clone(),
            objects.clone(),
            uri.to_owned(),
            chance.clone(),
            clock.clone(),
        ));
        let landing = lake::landing::LandingLake::new(
            state.clone(),
            objects.clone(),
            clock.clone(),
            chance.clone(),
        );
        let settings = query::Settings {
            memory: 256 << 20,
            spill: Some(std::env::temp_dir()),
            threads: 2,
        };
        let world = World {
            state,
            landing: Arc::new(landing),
            query: query::engine(tables.clone(), objects.clone(), settings)
                .map_err(|e| crate::rows::chain(&e))?,
            tables,
            queue: queue.clone(),
            clock: clock.clone(),
            chance,
            alerts: alerts.clone(),
            project: Arc::new(project(models)?),
            live: Arc::new(live),
        };
        Ok(Self {
            world,
            clock,
            queue,
            alerts,
            objects,
            folder,
        })
    }

    /// The folder of an embedded world.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// Puts other models in place of the world's.
    ///
    /// # Errors
    /// When a model cannot be read.
    pub fn set_models(&mut self, models: &[ModelText]) -> Result<()> {
        self.world.project = Arc::new(project(models)?);
        Ok(())
    }
}

/// The URI of a folder.
#[must_use]
pub fn file_uri(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

/// A project of these models.
///
/// # Errors
/// All findings of severity error.
pub fn project(models: &[ModelText]) -> Result<Project> {
    let files: Vec<_> = models.iter().map(ModelText::file).collect();
    let (project, findings) = Project::load(&files, None);
    let errors: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    if !errors.is_empty() {
        bail!("the models do not load: {errors:#?}");
    }
    Ok(project)
}

/// A table name.
///
/// # Errors
/// When it is none.
pub fn table(name: &str) -> Result<TableName> {
    name.parse().with_context(|| format!("table name `{name}`"))
}
