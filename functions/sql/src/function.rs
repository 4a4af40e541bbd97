//! The two functions, told apart by what an invocation brings.

use std::{path::PathBuf, sync::Arc};

use engine::runner::Runner;
use lambda::{
    Answer, Context, Deployed, Error, Event, Function, Ground, Http, Parts, carry_out, cold_start,
};
use ports::search::Searching;
use search::{Indexes, model::StaticModel};
use settings::Embedding;

/// Where statements spill: the only folder of a function that can be written.
const SPILL: &str = "/tmp/spill";

/// Refreshes from a queue, and everything else over HTTP.
pub(crate) struct Sql {
    deployed: Deployed,
    control: Http,
}

/// Indexes in the warehouse, and the embedder that the settings name.
fn searching(ground: &Ground<'_>) -> ports::Result<Searching> {
    let settings = ground.settings;
    let embedder = match &settings.embedder {
        Embedding::Model(folder) => Arc::new(StaticModel::open(folder)?),
        _ => lambda::embedder(ground)?,
    };
    let limits = search::Settings {
        cache: usize::try_from(settings.materialize.search_cache).unwrap_or(usize::MAX),
        scratch: PathBuf::from(SPILL),
    };
    Ok(Searching {
        indexes: Arc::new(Indexes::new(ground.objects.clone(), limits)),
        embedder,
    })
}

impl Function for Sql {
    async fn handle(&self, event: Event, context: Context) -> Answer {
        match event {
            Event::Queue(messages) => carry_out(&self.deployed, &messages, &context).await,
            Event::Http(request) => self.control.answer(*request, context).await,
            Event::Tick => Err("this function takes refreshes and requests".into()),
        }
    }
}

impl Sql {
    /// The cold start.
    ///
    /// # Errors
    /// What is wrong with settings or models.
    pub(crate) async fn start() -> Result<Self, Error> {
        let deployed = cold_start(|ground| {
            let searching = searching(ground)?;
            let parts = Parts::all(ground, |tables, objects, settings| {
                let limits = query::Settings {
                    memory: settings.query.memory,
                    spill: Some(PathBuf::from(SPILL)),
                    threads: std::thread::available_parallelism().map_or(1, usize::from),
                };
                query::engine(tables, objects, limits)
            })?;
            Ok(parts.searching(searching))
        })
        .await?;
        let control = Http::new(web::router(web::App {
            driven: true,
            runner: Runner::new(deployed.world.clone()),
            world: deployed.world.clone(),
            settings: deployed.settings.clone(),
        }));
        Ok(Self { deployed, control })
    }
}
