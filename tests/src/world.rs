//! Worlds to run in: all in memory, SQLite and files in a temporary folder, or AWS at an emulator. The clock is simulated
//! in all of them.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use domain::{Duration, LiveSettings, Project, Severity, TableName, Timestamp};
use engine::{World, cycle, refresh::Refreshed};
use ports::{Alerts, Chance, Clock, Objects, Queue, State};
use tempfile::TempDir;
use testkit::{
    MemoryQueue, MemoryRefreshes, MemoryState, RecordedAlerts, SeededChance, SimulatedClock,
};

use crate::{aws::Place, case::ModelText};

/// A moment to start at: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp(1_767_225_600_000_000);

/// Longest an order is waited for before it is sent again.
const PATIENCE: Duration = Duration::from_secs(900);

/// The adapters a case is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// State and objects in memory.
    Memory,
    /// SQLite and files.
    Embedded,
    /// State and objects in memory, cycles taken in steps and refreshes carried out from a queue, as the functions do.
    Stepped,
    /// State on DynamoDB and objects on S3, at the emulator; cycles taken in steps.
    Aws,
}

impl Adapter {
    /// Those that need nothing but this machine.
    pub const LOCAL: [Self; 3] = [Self::Memory, Self::Embedded, Self::Stepped];

    /// Its name in the names of tests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Stepped => "stepped",
            Self::Aws => "aws",
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
    /// Where it is, when it is on AWS.
    pub place: Option<Place>,
    /// Where orders wait when cycles are taken in steps.
    refreshes: Option<MemoryRefreshes>,
}

impl Lab {
    /// A world on any adapter, in places of its own.
    ///
    /// # Errors
    /// As [`Lab::new`], and when the emulator does not answer.
    pub async fn open(adapter: Adapter, models: &[ModelText], live: LiveSettings) -> Result<Self> {
        if adapter != Adapter::Aws {
            return Self::new(adapter, models, live);
        }
        let place = Place::open().await?;
        let (state, objects) = (Arc::new(place.state()), place.objects());
        let mut lab = Self::on(state, objects, &place.uri(), None, models, live)?;
        lab.refreshes = Some(MemoryRefreshes::new());
        lab.place = Some(place);
        Ok(lab)
    }

    /// A world on an adapter that needs nothing but this machine.
    ///
    /// # Errors
    /// When the adapter cannot be opened or a model cannot be read.
    pub fn new(adapter: Adapter, models: &[ModelText], live: LiveSettings) -> Result<Self> {
        let mut lab = match adapter {
            Adapter::Memory | Adapter::Stepped => {
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
            Adapter::Aws => bail!("worlds on AWS are opened"),
        }?;
        lab.refreshes = (adapter == Adapter::Stepped).then(MemoryRefreshes::new);
        Ok(lab)
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
        let ground = Ground {
            state,
            objects: objects.clone(),
            uri: uri.to_owned(),
            clock: clock.clone(),
            chance,
        };
        let world = ground.world(queue.clone(), alerts.clone(), models, live)?;
        Ok(Self {
            world,
            clock,
            queue,
            alerts,
            objects,
            folder,
            place: None,
            refreshes: None,
        })
    }

    /// Runs what is to be done now, in the way of the adapter.
    ///
    /// # Errors
    /// What the ports answer.
    pub async fn cycle(&self) -> Result<cycle::Report> {
        let chain = |error: ports::Error| crate::rows::chain(&error);
        let mut carried = BTreeMap::new();
        if let Some(refreshes) = &self.refreshes {
            // A runner never starts cycles closer than this; cases start them at will.
            let mut world = self.world.clone();
            world.live = Arc::new(LiveSettings {
                min_interval: Duration::ZERO,
                ..LiveSettings::clone(&self.world.live)
            });
            loop {
                while let Some(order) = refreshes.take() {
                    let how = cycle::carry_out(&world, refreshes, &order, PATIENCE).await;
                    // The second of two attempts finds nothing to do; what counts is what the first did.
                    match how.map_err(chain)?.0 {
                        Refreshed::Idle => carried.entry(order.model).or_insert(Refreshed::Idle),
                        how => carried.entry(order.model).insert_entry(how).into_mut(),
                    };
                }
                let step = cycle::step(&world, refreshes, PATIENCE).await;
                match step.map_err(chain)? {
                    cycle::Step::Sent(_) => {}
                    cycle::Step::Waiting(_) => bail!("an order was lost"),
                    cycle::Step::Idle(_) => break,
                }
            }
        }
        let mut report = cycle::run(&self.world, &cycle::Silent)
            .await
            .map_err(chain)?;
        for (model, how) in carried {
            let after = report.models.insert(model.clone(), how);
            ensure!(
                !matches!(after, Some(Refreshed::Built { .. })),
                "steps left `{model}` behind"
            );
        }
        Ok(report)
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

/// What a world stands on.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The state store.
    pub state: Arc<dyn State>,
    /// The warehouse.
    pub objects: Objects,
    /// The warehouse's address.
    pub uri: String,
    /// Time for all but state and objects.
    pub clock: Arc<dyn Clock>,
    /// Chance for all but state and objects.
    pub chance: Arc<dyn Chance>,
}

impl Ground {
    /// A world on it.
    ///
    /// # Errors
    /// When a model cannot be read.
    pub fn world(
        self,
        queue: Arc<dyn Queue>,
        alerts: Arc<dyn Alerts>,
        models: &[ModelText],
        live: LiveSettings,
    ) -> Result<World> {
        let Self {
            state,
            objects,
            uri,
            clock,
            chance,
        } = self;
        let tables = Arc::new(lake::Lake::new(
            state.clone(),
            objects.clone(),
            uri,
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
        Ok(World {
            state,
            landing: Arc::new(landing),
            entries: Arc::new(lake::EntryLake::new(objects.clone())),
            searching: searching(&objects),
            jobs: None,
            query: query::engine(tables.clone(), objects, settings)
                .map_err(|e| crate::rows::chain(&e))?,
            tables,
            queue,
            clock,
            chance,
            alerts,
            project: Arc::new(project(models)?),
            live: Arc::new(live),
        })
    }
}

/// Indexes on the world's objects, and vectors that only tests make.
fn searching(objects: &ports::Objects) -> ports::search::Searching {
    let settings = search::Settings {
        cache: 64 << 20,
        scratch: std::env::temp_dir(),
    };
    ports::search::Searching {
        indexes: Arc::new(search::Indexes::new(objects.clone(), settings)),
        embedder: Arc::new(testkit::TestsOnlyEmbedder),
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
