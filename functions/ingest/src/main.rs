//! Function `ingest`: webhooks become landing batches; an answer of 202 means committed. It takes requests from the HTTP
//! API, and requests that the API put on a queue, several at once.

use engine::runner::Runner;
use lambda::{Answer, Buffered, Context, Error, Event, Function, Http, Parts, cold_start, run};

struct Ingest {
    http: Http,
    buffered: Buffered,
}

impl Function for Ingest {
    async fn handle(&self, event: Event, context: Context) -> Answer {
        match event {
            Event::Http(request) => self.http.answer(*request, context).await,
            Event::Queue(messages) => self.buffered.take(&messages).await,
            Event::Tick => Err("this function takes requests and messages".into()),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    run(async {
        let deployed = cold_start(Parts::intake).await?;
        let router = web::ingest_router(web::App {
            driven: true,
            runner: Runner::new(deployed.world.clone()),
            world: deployed.world.clone(),
            settings: deployed.settings.clone(),
        });
        Ok(Ingest {
            http: Http::new(router.clone()),
            buffered: Buffered::new(router, deployed.objects),
        })
    })
    .await
}
