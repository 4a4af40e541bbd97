//! Steps of the cycle, and refreshes, as invocations take them.

use aws::queue::refreshes::{self, Due};
use domain::Duration;
use engine::{
    cycle::{self, Step},
    entries::{Carried, Registry},
    maintain, quarantine,
    refresh::Refreshed,
    upkeep,
};
use lambda_runtime::Context;
use ports::{
    jobs::{IndexJob, RebuildJob, ReplayJob, UpkeepJob},
    refreshes::Order,
};
use serde_json::json;

use crate::{Answer, Deployed, Message, each, metrics, serve::remaining};

/// Longest a refresh may take before its cycle sends it again: the longest an invocation may run.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Longest a message can be delayed; what is due later, the schedule finds.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Left of an invocation's time when a refresh is given up: what was staged is garbage, why is written down, the message may be
/// given back ([`HIDING_MAX`]) and alerts are delivered ([`ALERTED`]).
const MARGIN: std::time::Duration = std::time::Duration::from_secs(12);
/// Least time that a refresh must have had for its model to be to blame when it is over.
const FAIR: std::time::Duration = std::time::Duration::from_secs(5 * 60);
/// Longest that it may take to write down that a refresh was given up.
const TELLING_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// The visibility timeout that a refresh under way is prolonged by, and after which one that failed comes again.
const VISIBILITY: Duration = Duration::from_secs(60);
/// After which a message comes again that nobody can read: soon in the dead-letter queue, it keeps its group from nothing.
const MALFORMED: Duration = Duration::from_secs(5);
/// Longest that the queue is waited for when a message is given back: less than what an invocation keeps for its end.
const HIDING_MAX: Duration = Duration::from_secs(2);

/// Takes one step of the cycle; when time alone makes the next one due soon, a delayed message will cause it.
///
/// # Errors
/// What the ports answer.
pub async fn step(deployed: &Deployed) -> Answer {
    let step = cycle::step(&deployed.world, &*deployed.refreshes, PATIENCE).await;
    took(deployed, step).await
}

/// Does what the schedule is for: takes the step that a lost message would have caused, and has `refresh` maintain tables and
/// sweep entries when that is due. What cannot be asked for is logged: the next tick tries again.
///
/// # Errors
/// What the ports answer about the step.
pub async fn tick(deployed: &Deployed) -> Answer {
    let (step, asked) = upkeep::tick(&deployed.world, &*deployed.refreshes, PATIENCE).await;
    match asked {
        Ok(true) => tracing::info!("asked for upkeep"),
        Ok(false) => {}
        Err(error) => tracing::warn!(
            error = error.chain(),
            "upkeep was not asked for; the next tick tries again"
        ),
    }
    took(deployed, step).await
}

/// Tells of a step, and has the next one taken.
async fn took(deployed: &Deployed, step: ports::Result<Step>) -> Answer {
    let step = step.map_err(|error| error.chain())?;
    let (said, due) = match &step {
        Step::Sent(models) => ("sent", json!(models)),
        Step::Waiting(until) => ("waiting", json!(until.to_string())),
        Step::Idle(next) => ("idle", json!(next.map(|at| at.to_string()))),
    };
    tracing::info!(step = said, %due, "took a step");
    if let Step::Idle(Some(at)) = step {
        wake(deployed, at).await?;
    }
    Ok(json!({ "step": said, "due": due }))
}

/// Has a step taken at a moment, when it is near; one that is not is left to the schedule.
async fn wake(deployed: &Deployed, at: domain::Timestamp) -> Result<(), String> {
    let delay = at.since(deployed.world.clock.now());
    if delay > DELAY_MAX {
        return Ok(());
    }
    deployed
        .advances
        .wake(delay)
        .await
        .map_err(|error| error.chain())
}

/// Carries out the refreshes and jobs of a batch, and says which messages are to be delivered again.
///
/// # Errors
/// When the answer cannot be written.
pub async fn carry_out(deployed: &Deployed, messages: &[Message], context: &Context) -> Answer {
    let outcomes = each(messages, |message: Message| {
        let (deployed, context) = (deployed.clone(), context.clone());
        Box::pin(async move { one(&deployed, &message, &context).await })
    })
    .await;
    deployed.world.alerts.flush(ALERTED).await;
    Ok(serde_json::to_value(outcomes)?)
}

/// Longest an invocation waits for its alerts to be delivered: what runs after its answer runs when the next one comes.
const ALERTED: Duration = Duration::from_secs(5);

/// Puts what a refresh did into the metrics of its model.
fn measure(order: &Order, how: &Refreshed) {
    let model = order.model.to_string();
    #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
    let number = |count: u64| count as f64;
    let failed = matches!(
        how,
        Refreshed::Error { .. } | Refreshed::AssertionFailed { .. }
    );
    let mut metrics = vec![("failures", "Count", f64::from(u8::from(failed)))];
    if let Refreshed::Built {
        added,
        deleted,
        lag_ms,
        duration_ms,
        ..
    } = how
    {
        metrics.extend([
            ("added", "Count", number(*added)),
            ("deleted", "Count", number(*deleted)),
            ("lag", "Milliseconds", number(*lag_ms)),
            ("refresh", "Milliseconds", number(*duration_ms)),
        ]);
    }
    metrics::emit(("model", &model), &metrics);
}

/// A message that is to be delivered again.
struct Again {
    why: String,
    /// When: the queue hides it for as long as an invocation may run, which is far too long for what failed at once.
    after: Duration,
}

impl From<String> for Again {
    fn from(why: String) -> Self {
        let after = VISIBILITY;
        Self { why, after }
    }
}

/// Carries out what a message asks for; one that failed comes again soon.
async fn one(deployed: &Deployed, message: &Message, context: &Context) -> Result<(), String> {
    let (again, held) = match refreshes::decode(&message.body) {
        Ok(due) => {
            let receipt = message.receipt.clone();
            let held = deployed.refreshes.extend(receipt, VISIBILITY);
            match take(deployed, due, message, context).await {
                Ok(()) => return Ok(()),
                Err(again) => (again, Some(held)),
            }
        }
        Err(error) => {
            let (why, after) = (error.chain(), MALFORMED);
            (Again { why, after }, None)
        }
    };
    let hiding = async {
        if let Some(held) = held {
            held.end().await;
        }
        deployed
            .refreshes
            .hide(&message.receipt, again.after)
            .await
            .map_err(|error| error.chain())
    };
    let hidden = tokio::time::timeout(HIDING_MAX, hiding).await;
    if let Err(error) = hidden.unwrap_or_else(|_| Err("the queue does not answer".to_owned())) {
        tracing::warn!(
            error,
            "the message comes again at another time than it should"
        );
    }
    Err(again.why)
}

async fn take(
    deployed: &Deployed,
    due: Due,
    message: &Message,
    context: &Context,
) -> Result<(), Again> {
    let left = remaining(context).saturating_sub(MARGIN);
    match due {
        Due::Refresh(order) => Ok(refresh(deployed, &order, message, left).await?),
        Due::Index(job) => index(deployed, &job, left).await,
        Due::Rebuild(job) => Ok(rebuild(deployed, &job, left).await?),
        Due::Replay(job) => Ok(replay(deployed, &job, left).await?),
        Due::Upkeep(job) => {
            upkeep(deployed, &job, left).await;
            Ok(())
        }
    }
}

async fn refresh(
    deployed: &Deployed,
    order: &Order,
    message: &Message,
    left: std::time::Duration,
) -> Result<(), String> {
    let span = tracing::info_span!("refresh", model = %order.model, cycle = order.cycle,
        traceparent = message.attributes.get("traceparent"));
    let refresh = cycle::carry_out(&deployed.world, &*deployed.refreshes, order, PATIENCE);
    let refresh = tracing::Instrument::instrument(refresh, span);
    let ended = match tokio::time::timeout(left, refresh).await {
        Ok(ended) => ended,
        // One that began late may have all the time it needs another time.
        Err(_) if left < FAIR => return Err("the invocation's time is over".to_owned()),
        Err(_) => {
            let why = format!(
                "its refresh takes longer than a function may run, {} s were left: give the model less to do at once, or its \
                 function more memory, which is more of a processor",
                left.as_secs()
            );
            let (world, refreshes) = (&deployed.world, &*deployed.refreshes);
            let given_up = cycle::give_up(world, refreshes, order, &why, PATIENCE);
            let given_up = tokio::time::timeout(TELLING_MAX, given_up).await;
            given_up.map_err(|_| "the invocation's time is over".to_owned())?
        }
    };
    let (how, next) = ended.map_err(|error| error.chain())?;
    measure(order, &how);
    let told = serde_json::to_value(&how).map_err(|error| error.to_string())?;
    tracing::info!(model = %order.model, cycle = order.cycle, %told, "refreshed");
    match next {
        Step::Idle(Some(at)) => wake(deployed, at).await,
        Step::Idle(None) | Step::Sent(_) | Step::Waiting(_) => Ok(()),
    }
}

/// Builds an index of an entry. One that takes longer than the invocation has failed, and its item says so. Where another
/// delivery is at it this one comes again when that one would be dead: the queue counts deliveries, and five must do.
async fn index(
    deployed: &Deployed,
    job: &IndexJob,
    left: std::time::Duration,
) -> Result<(), Again> {
    let registry = registry(deployed);
    let carried = registry
        .carry_out_job(job, left)
        .await
        .map_err(|error| error.chain())?;
    if let Carried::Busy(until) = carried {
        return Err(Again {
            why: format!(
                "another delivery of job `{}` is at it until {until}",
                job.job
            ),
            after: until.since(deployed.world.clock.now()),
        });
    }
    tracing::info!(entry = %job.entry, index = job.index, job = job.job, ?carried, "an index");
    Ok(())
}

/// Computes an entry anew. What its statement breaks of is logged, and its readers are served what was there.
async fn rebuild(
    deployed: &Deployed,
    job: &RebuildJob,
    left: std::time::Duration,
) -> Result<(), String> {
    let carried = registry(deployed)
        .carry_out_rebuild(job, left)
        .await
        .map_err(|error| error.chain())?;
    tracing::info!(entry = %job.entry, token = job.token, ?carried, "an entry computed anew");
    Ok(())
}

/// Puts rows in quarantine through their model again. The item of the replay says how it ended.
async fn replay(
    deployed: &Deployed,
    job: &ReplayJob,
    left: std::time::Duration,
) -> Result<(), String> {
    let outcome = quarantine::carry_out(&deployed.world, job, left)
        .await
        .map_err(|error| error.chain())?;
    tracing::info!(model = %job.model, job = job.job, ?outcome, "rows in quarantine replayed");
    Ok(())
}

/// Maintains tables and sweeps entries. What fails is logged, and its message does not come again: the next tick asks anew.
async fn upkeep(deployed: &Deployed, job: &UpkeepJob, left: std::time::Duration) {
    match upkeep::carry_out(&registry(deployed), job, left).await {
        Ok(None) => tracing::info!("there was upkeep since this was asked for"),
        Ok(Some(done)) => {
            if let Some(round) = &done.round {
                maintain::tell(round);
            }
            let errors = done.swept.iter().flat_map(|swept| &swept.errors);
            errors.for_each(|error| tracing::warn!(error, "an entry could not be swept"));
            for why in &done.left {
                tracing::warn!(why, "upkeep did not end; the next tick asks for it again");
            }
        }
        Err(error) => tracing::warn!(
            error = error.chain(),
            "upkeep failed; a later tick asks for it again"
        ),
    }
}

fn registry(deployed: &Deployed) -> Registry {
    let settings = deployed.settings.materialize.clone();
    Registry::new(deployed.world.clone(), settings)
}
