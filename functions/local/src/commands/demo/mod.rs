//! `headwater demo`: orders stream through landing, bronze, silver and gold, over real HTTP, while
//! one watches.

mod check;
mod freshness;
mod orders;
mod poster;
mod view;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use domain::TableName;
use engine::{
    World,
    runner::Runner,
    status::{self, Status},
};
use settings::{FILE, Settings};
use tokio_util::sync::CancellationToken;

use super::{Context, init, interrupted, serve};
use crate::{
    cli,
    failure::Failure,
    project,
    screen::{Canvas, is_terminal, say},
    world,
};
use freshness::Freshness;
use poster::Poster;

/// Settings of a project made for the demonstration: models may follow sooner than by default, as a
/// steady stream never has the quiet moment that would close a batch early.
const DEMO_YML: &str =
    "name: demo\nlive:\n  min_interval: 200ms\n  debounce: 50ms\n  max_latency: 200ms\n";
/// Between two drawings on a terminal.
const FRAME: Duration = Duration::from_millis(250);
/// Between two lines elsewhere.
const LINE: Duration = Duration::from_secs(2);
/// Longest wait for the models after the last event.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// What runs during a demonstration.
struct Stage {
    world: World,
    runner: Runner,
    freshness: Freshness,
    url: String,
    gold: TableName,
    silver: TableName,
}

/// Runs the demonstration.
pub(super) async fn demo(
    context: &Context,
    chosen: Option<PathBuf>,
    how: cli::Demo,
) -> Result<(), Failure> {
    let folder = Folder::make(chosen)?;
    let settings = Context {
        project: folder.path.clone(),
        json: context.json,
    }
    .settings()?;
    let (stage, stop) = open(settings).await?;
    let mut poster = Poster::new(&stage.url, how);
    let progress = poster.progress();
    let mut canvas = Canvas::default();
    let started = Instant::now();
    let played = async {
        tokio::select! {
            ended = poster.run(&stage.freshness) => ended?,
            ended = show(context, &stage, &progress, &mut canvas, started) => ended?,
            () = interrupted() => {}
        }
        settle(&stage).await
    };
    let settled = tokio::select! {
        ended = played => ended,
        ended = stage.freshness.follow(&stage.world, &stage.runner, &stage.gold, &stage.silver) => ended,
    };
    stop.cancel();
    stage.runner.stop().await;
    settled?;
    // The last picture takes the place of the one before.
    canvas.draw("")?;
    conclude(context, &stage, &progress, started, folder).await
}

async fn open(settings: Settings) -> Result<(Stage, CancellationToken), Failure> {
    let world = world::open_sound(&settings)?;
    let [gold, silver] = ["gold.revenue", "silver.orders"].map(super::named);
    let (gold, silver) = (gold?, silver?);
    if !world.project.models.contains_key(&gold) || !world.project.models.contains_key(&silver) {
        return Err(Failure::project(
            "the demo needs the models of `headwater init`; leave --project out for a temporary project",
        ));
    }
    let runner = Runner::new(world.clone());
    runner.start();
    let listener = serve::bind(([127, 0, 0, 1], 0).into()).await?;
    let url = format!("http://{}", serve::local(&listener)?);
    let stop = CancellationToken::new();
    let app = serve::app(settings, world.clone(), runner.clone());
    tokio::spawn(serve::answer(listener, app, stop.clone()));
    Ok((
        Stage {
            world,
            runner,
            freshness: Freshness::default(),
            url,
            gold,
            silver,
        },
        stop,
    ))
}

/// Draws until cancelled.
async fn show(
    context: &Context,
    stage: &Stage,
    progress: &poster::Progress,
    canvas: &mut Canvas,
    started: Instant,
) -> Result<(), Failure> {
    let is_drawn = is_terminal() && !context.json;
    if !context.json && !is_drawn {
        say(&format!("status page  {}", stage.url))?;
    }
    loop {
        tokio::time::sleep(if is_drawn { FRAME } else { LINE }).await;
        let status = status(stage).await?;
        if is_drawn {
            canvas.draw(&view::block(
                stage,
                &status,
                progress,
                &check::gold(&stage.world).await?,
                started,
            ))?;
        } else if !context.json {
            say(&view::line(stage, &status, progress, started))?;
        }
    }
}

async fn status(stage: &Stage) -> Result<Status, Failure> {
    Ok(status::status(&stage.world, Some(stage.runner.status())).await?)
}

/// Waits until gold holds every event.
async fn settle(stage: &Stage) -> Result<(), Failure> {
    let caught_up = async {
        loop {
            let status = status(stage).await?;
            for model in &status.models {
                if let Some(error) = &model.last_error {
                    let name = &model.model;
                    return Err(Failure::project(format!(
                        "a live model failed: {name}: {error}"
                    )));
                }
            }
            let is_live = status.models.iter().all(|model| model.status == "live");
            if is_live && stage.freshness.pending() == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SETTLE_MAX, caught_up)
        .await
        .unwrap_or_else(|_| {
            let seconds = SETTLE_MAX.as_secs();
            Err(Failure::project(format!(
                "the live models did not catch up within {seconds} s"
            )))
        })
}

/// Compares gold with its query from scratch and says how it went.
async fn conclude(
    context: &Context,
    stage: &Stage,
    progress: &poster::Progress,
    started: Instant,
    folder: Folder,
) -> Result<(), Failure> {
    let status = status(stage).await?;
    let (gold, scratch) = (
        check::gold(&stage.world).await?,
        check::scratch(&stage.world).await?,
    );
    let is_equal = gold == scratch;
    if context.json {
        super::print_json(&view::summary(
            stage, &status, progress, &gold, is_equal, started,
        ))?;
    } else {
        say(&view::end(stage, &status, progress, &gold, is_equal))?;
        if !folder.is_temporary {
            say(&format!("the project is in {}", folder.path.display()))?;
        }
    }
    if is_equal {
        return Ok(());
    }
    Err(Failure::project(format!(
        "gold is not the query run from scratch: {gold:?} instead of {scratch:?}"
    )))
}

/// The project's folder; a temporary one goes when the demonstration is over.
struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    fn make(chosen: Option<PathBuf>) -> Result<Self, Failure> {
        let is_temporary = chosen.is_none();
        let path = chosen.unwrap_or_else(|| {
            std::env::temp_dir().join(format!(
                "headwater-demo-{}-{:08x}",
                std::process::id(),
                rand::random::<u32>()
            ))
        });
        let folder = Self { path, is_temporary };
        if project::require(&folder.path).is_err() {
            init::write(&folder.path)?;
            write_settings(&folder.path)?;
        }
        Ok(folder)
    }
}

fn write_settings(project: &Path) -> Result<(), Failure> {
    let file = project.join(FILE);
    fs::write(&file, DEMO_YML)
        .map_err(|error| Failure::unavailable(format!("write `{}`: {error}", file.display())))
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            // What stays behind is in the system's folder for such things.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
