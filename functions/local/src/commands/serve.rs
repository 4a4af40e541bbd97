//! `headwater serve`: HTTP and the live runner in one process.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use engine::{
    entries::{self, Registry},
    runner::Runner,
};
use serde_json::json;
use settings::Settings;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use web::App;

use super::{Context, interrupted};
use crate::{
    failure::Failure,
    screen::say,
    server::{self, Limits},
    world,
};

/// How long open requests may take to end once the program is asked to. Event feeds never end by
/// themselves.
const GRACE: Duration = Duration::from_secs(2);
/// Between two looks at the files of the project.
const LOOK: Duration = Duration::from_secs(2);

/// Serves a project until interrupted.
pub(super) async fn serve(context: &Context, listen: SocketAddr) -> Result<(), Failure> {
    let settings = context.settings()?;
    let guarded = !settings.auth.tokens.is_empty();
    if !listen.ip().is_loopback() && !guarded {
        return Err(Failure::usage(format!(
            "`{listen}` can be reached from other machines, and no tokens are configured to tell callers apart; \
             make one with `headwater token` and name its digest under `auth.tokens`, or listen on 127.0.0.1"
        )));
    }
    let world = world::open_sound(&settings)?;
    // Else every sender would be told, and nobody here.
    let complaints = engine::sources::check(&world, &settings).await?;
    if !complaints.is_empty() {
        return Err(Failure::settings(&complaints));
    }
    let runner = Runner::new(world.clone());
    if settings.live.enabled && world.project.live().next().is_some() {
        runner.start();
    } else {
        tokio::spawn(engine::maintain::rounds(world.clone()));
    }
    let registry = Registry::new(world.clone(), settings.materialize.clone());
    tokio::spawn(entries::rounds(registry));
    let listener = bind(listen).await?;
    let url = format!("http://{}", local(&listener)?);
    if context.json {
        say(
            &json!({ "url": url, "project": settings.name, "runner": runner.is_running() })
                .to_string(),
        )?;
    } else {
        let runner = if runner.is_running() {
            "live runner on"
        } else {
            "live runner off"
        };
        say(&format!(
            "serving {} at {url} ({runner}; {})",
            settings.name,
            match guarded {
                true => "callers show a token",
                false => "this machine only, as no tokens are configured",
            }
        ))?;
    }
    let app = App {
        driven: false,
        world: world.clone(),
        runner: runner.clone(),
        settings: Arc::new(settings),
    };
    let watching = tokio::spawn(watch(context.project.clone(), runner.clone()));
    let stop = CancellationToken::new();
    let server = tokio::spawn(answer(listener, app, stop.clone()));
    interrupted().await;
    stop.cancel();
    watching.abort();
    // Whoever is cut off here has no answer yet, and sends again.
    let _ = tokio::time::timeout(GRACE, server).await;
    // A cycle that does not end is cut off: what it staged is garbage until it commits.
    let _ = tokio::time::timeout(GRACE * 5, runner.stop()).await;
    super::alerted(&world).await;
    Ok(())
}

/// Tells when files of the project change: models and settings are read once, at the start.
async fn watch(project: PathBuf, runner: Runner) {
    let files = || {
        let found = settings::model_files(&project).ok()?;
        let mut files: BTreeMap<String, String> = found.files.into_iter().collect();
        let foreign = found.foreign.into_iter();
        files.extend(foreign.map(|(file, place)| (file, format!("no text at {place:?}"))));
        if let Ok(text) = std::fs::read_to_string(project.join(settings::FILE)) {
            files.insert(settings::FILE.to_owned(), text);
        }
        Some(files)
    };
    let Some(first) = files() else { return };
    let mut told = Vec::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // A file that cannot be read now is being written; the next look finds it.
        let Some(now) = files() else { continue };
        let names: BTreeSet<&String> = first.keys().chain(now.keys()).collect();
        let changed: Vec<String> = names
            .into_iter()
            .filter(|name| first.get(*name) != now.get(*name))
            .cloned()
            .collect();
        if changed != told {
            if !changed.is_empty() {
                tracing::warn!(
                    "{} changed since the start: restart `serve` to use what is there now",
                    changed.join(", ")
                );
            }
            runner.set_changed(changed.clone());
            told = changed;
        }
    }
}

/// Takes an address.
pub(super) async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "; is another one serving there? `--listen 127.0.0.1:0` takes a free port"
            }
            _ => "",
        };
        Failure::unavailable(format!("listen on `{listen}`: {error}{hint}"))
    })
}

/// The address that was taken.
pub(super) fn local(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener
        .local_addr()
        .map_err(|error| Failure::unavailable(format!("read the address: {error}")))
}

/// Answers requests until `stop`.
pub(super) async fn answer(listener: TcpListener, app: App, stop: CancellationToken) {
    server::answer(listener, web::router(app), Limits::default(), stop).await;
}

/// What `serve` needs of a project, for others that serve too.
pub(super) fn app(settings: Settings, world: engine::World, runner: Runner) -> App {
    App {
        driven: false,
        world,
        runner,
        settings: Arc::new(settings),
    }
}
