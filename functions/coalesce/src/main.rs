//! Function `coalesce`: many advances become few cycles. Messages say only that something moved; what is to be done is
//! read from the state, so one look serves a whole batch of them.

use lambda::{Answer, Context, Deployed, Error, Event, Function, Parts, cold_start, run, step};

struct Coalesce(Deployed);

impl Function for Coalesce {
    async fn handle(&self, event: Event, _: Context) -> Answer {
        match event {
            Event::Queue(_) | Event::Tick => step(&self.0).await,
            Event::Http(_) => Err("this function takes messages and ticks".into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(async { Ok(Coalesce(cold_start(Parts::steps).await?)) }).await
}
