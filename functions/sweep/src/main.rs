//! Function `sweep`: the schedule's tick. It takes the step that a lost message would have
//! caused, and tidies up.

use lambda::{
    Answer, Context, Deployed, Error, Event, Function, Parts, cold_start, maintain, run, step,
};

struct Sweep(Deployed);

impl Function for Sweep {
    async fn handle(&self, event: Event, context: Context) -> Answer {
        match event {
            Event::Tick => {
                let stepped = step(&self.0).await;
                maintain(&self.0, &context).await;
                stepped
            }
            Event::Queue(_) | Event::Http(_) => Err("this function takes ticks".into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(async { Ok(Sweep(cold_start(Parts::upkeep).await?)) }).await
}
