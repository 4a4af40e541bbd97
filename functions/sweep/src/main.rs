//! Function `sweep`: the schedule's tick. It takes the step that a lost message would have caused, and has `refresh` maintain
//! tables and sweep entries when that is due: it is linked with neither.

use lambda::{Answer, Context, Deployed, Error, Event, Function, Parts, cold_start, run, tick};

struct Sweep(Deployed);

impl Function for Sweep {
    async fn handle(&self, event: Event, _: Context) -> Answer {
        match event {
            Event::Tick => tick(&self.0).await,
            Event::Queue(_) | Event::Http(_) => Err("this function takes ticks".into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(async { Ok(Sweep(cold_start(Parts::steps).await?)) }).await
}
