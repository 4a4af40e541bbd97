//! Functions `refresh` and `control`, the two that run SQL: one program, so that the query engine is built, linked and
//! uploaded once. What an invocation brings says which of them it is for; their roles and queues are their own.

use std::path::PathBuf;

use engine::runner::Runner;
use lambda::{Answer, Deployed, Event, Function, Http, carry_out, cold_start, run};
use lambda_runtime::{Context, Error};

/// Where statements spill: the only folder of a function that can be written.
const SPILL: &str = "/tmp/spill";

struct Sql {
    deployed: Deployed,
    control: Http,
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

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(async {
        let deployed = cold_start(|tables, objects, settings| {
            let limits = query::Settings {
                memory: settings.query.memory,
                spill: Some(PathBuf::from(SPILL)),
                threads: std::thread::available_parallelism().map_or(1, usize::from),
            };
            query::engine(tables, objects, limits)
        })
        .await?;
        let control = Http::new(web::router(web::App {
            runner: Runner::new(deployed.world.clone()),
            world: deployed.world.clone(),
            settings: deployed.settings.clone(),
        }));
        Ok(Sql { deployed, control })
    })
    .await
}
