//! The cold start: settings, the project and clients, once per environment.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use aws::{
    clients::Clients,
    objects::S3Objects,
    queue::{SqsQueue, refreshes::SqsRefreshes},
    signing::Signer,
    state::{DynamoState, Tables},
};
use domain::{Finding, Project, Severity};
use embedded::{SystemChance, SystemClock};
use engine::World;
use lambda_runtime::Error;
use ports::{Objects, State};
use settings::{Queues, Settings, StateStore, Warehouse};

use crate::parts::{Ground, MakeParts, Parts};

/// Where Lambda unpacks a function; the project lies in a folder beside the program.
const ROOT: &str = "LAMBDA_TASK_ROOT";
/// The folder of the project, when it is another one.
const PROJECT: &str = "HEADWATER_PROJECT";

/// How the gateway authorises callers of this function: `AWS_IAM`, `JWT` or `NONE`.
const GATEWAY: &str = "HEADWATER_GATEWAY_AUTH";

/// What a function of a deployment has.
#[derive(Clone, Debug)]
pub struct Deployed {
    /// The ports, and the project they serve.
    pub world: World,
    /// The queue of refreshes.
    pub refreshes: Arc<SqsRefreshes>,
    /// The queue of announcements, with what only SQS can do.
    pub advances: Arc<SqsQueue>,
    /// The warehouse.
    pub objects: Objects,
    /// The settings.
    pub settings: Arc<Settings>,
}

/// Reads settings and models and makes the clients. Nothing is asked of a service yet.
///
/// # Errors
/// Every complaint about settings and models at once; settings that name something other than AWS.
pub async fn cold_start(make: MakeParts) -> Result<Deployed, Error> {
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    let folder = variables
        .get(PROJECT)
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variables.get(ROOT)?).join("project")))
        .unwrap_or_else(|| PathBuf::from("."));
    let settings = Settings::load(&folder, &variables).map_err(|complaints| {
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        lines.join("; ")
    })?;
    // There is no open mode: anybody can find the address of a deployment.
    if settings.auth.tokens.is_empty() && variables.get(GATEWAY).is_some_and(|auth| auth == "NONE")
    {
        return Err(
            "the gateway lets everybody in: name `auth.tokens`; `headwater token` makes one".into(),
        );
    }
    let project = project(&folder)?;
    let Warehouse::S3 { bucket, prefix } = &settings.warehouse else {
        return Err("`warehouse` of a deployment is `s3://bucket/prefix`".into());
    };
    let StateStore::DynamoDb { table, catalog } = &settings.state else {
        return Err("`state` of a deployment is `dynamodb://state-table/catalog-table`".into());
    };
    let Queues::Sqs {
        advances,
        refreshes,
    } = &settings.queue
    else {
        return Err("a deployment has `queue.advances` and `queue.refreshes`".into());
    };
    let clients = Clients::from_env().await;
    let (clock, chance) = (Arc::new(SystemClock), Arc::new(SystemChance));
    let s3 = Arc::new(S3Objects::new(
        clients.s3.clone(),
        bucket,
        object_store::path::Path::parse(prefix)?,
        clock.clone(),
        chance.clone(),
    ));
    let objects: Objects = s3.clone();
    let state = DynamoState::new(
        clients.dynamodb.clone(),
        Tables {
            state: table.clone(),
            catalog: Some(catalog.clone()),
        },
        Some(objects.clone()),
        clock.clone(),
        chance.clone(),
    );
    let forgotten = settings.live.maintenance.idempotency;
    let state: Arc<dyn State> = Arc::new(state.forgetting(forgotten));
    let uri = match prefix.is_empty() {
        true => format!("s3://{bucket}"),
        false => format!("s3://{bucket}/{prefix}"),
    };
    let ground = Ground {
        state: state.clone(),
        objects: objects.clone(),
        uri,
        clock: clock.clone(),
        chance: chance.clone(),
        links: s3,
        settings: &settings,
        signer: Signer::new(clients.config.clone(), clock.clone()),
    };
    let Parts {
        landing,
        tables,
        entries,
        query,
        searching,
    } = make(&ground)?;
    let queue = |url: &String| {
        (
            clients.sqs.clone(),
            url.clone(),
            clock.clone(),
            chance.clone(),
        )
    };
    let (client, url, time, luck) = queue(advances);
    let advances = Arc::new(SqsQueue::new(client, url, time, luck));
    let (client, url, time, luck) = queue(refreshes);
    let refreshes = Arc::new(SqsRefreshes::new(client, url, time, luck));
    let channel = |url: &Option<settings::Secret>| url.as_ref().map(|url| url.0.clone());
    let (log, name) = (settings.alerts.log, &settings.name);
    let (webhook, slack) = (
        channel(&settings.alerts.webhook),
        channel(&settings.alerts.slack),
    );
    let alerts = embedded::channels(log, name, webhook, slack, clock.clone());
    let world = World {
        query,
        state,
        landing,
        entries,
        searching,
        // A function that has answered stands still: what it would do behind its answer, `refresh` does.
        jobs: Some(refreshes.clone()),
        tables,
        queue: advances.clone(),
        clock,
        chance,
        alerts: Arc::new(alerts),
        project: Arc::new(project),
        live: Arc::new(settings.live.clone()),
    };
    Ok(Deployed {
        world,
        refreshes,
        advances,
        objects,
        settings: Arc::new(settings),
    })
}

/// The project's models; a deployment with errors in them does not start.
fn project(folder: &std::path::Path) -> Result<Project, Error> {
    let files = settings::model_files(folder)?;
    let (project, mut findings) = Project::load(&files.files, None);
    let foreign = files.foreign.into_iter();
    findings.extend(foreign.map(|(file, place)| Finding::not_text(file, place)));
    let errors: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message))
        .collect();
    match errors.is_empty() {
        true => Ok(project),
        false => Err(errors.join("; ").into()),
    }
}
