//! The cold start of each function, as the service causes it: from the start of its process to its first question for
//! work, and to its first answer. The service is a stub on this machine, and so is everything the function could ask.

mod runtime;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{case::ModelText, folder::Folder};

use self::runtime::{Call, Runtime};
use crate::{
    Options,
    sample::{json_chain, summary},
};

/// Names the folder of the functions' programs, to measure those of another profile: `target/small` after
/// `cargo build --profile small -p ingest -p coalesce -p sweep`. A program that is not in it is not measured.
const FUNCTIONS: &str = "HEADWATER_FUNCTIONS";
/// Longest a function may take for one step.
const STEP_MAX: Duration = Duration::from_secs(10);

/// A function, and a first invocation that asks next to nothing of other services.
struct Subject {
    /// The function's name in a deployment.
    name: &'static str,
    /// Its program.
    program: &'static str,
    /// What it is invoked with.
    event: Value,
    /// Whether that is refused.
    refused: bool,
    /// Longest start that is accepted, milliseconds.
    target_ms: f64,
}

fn subjects() -> [Subject; 5] {
    let health = json!({
        "version": "2.0", "routeKey": "$default", "rawPath": "/healthz", "rawQueryString": "",
        "headers": { "host": "localhost" }, "isBase64Encoded": false,
        "requestContext": {
            "accountId": "1", "apiId": "a", "stage": "$default", "timeEpoch": 0, "domainName": "localhost",
            "http": { "method": "GET", "path": "/healthz", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1" },
        },
    });
    // A message that is no order: it is answered as one to deliver again.
    let message = json!({ "Records": [{
        "messageId": "m1", "receiptHandle": "r", "body": "{}", "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:1:refreshes.fifo",
        "attributes": { "MessageGroupId": "silver.orders" }, "messageAttributes": {},
    }] });
    let subject = |name, program, event: &Value, refused, target_ms| Subject {
        name,
        program,
        event: event.clone(),
        refused,
        target_ms,
    };
    [
        subject("ingest", "ingest", &health, false, 40.0),
        subject("coalesce", "coalesce", &health, true, 40.0),
        subject("sweep", "sweep", &health, true, 40.0),
        subject("refresh", "sql", &message, false, 80.0),
        subject("control", "sql", &health, false, 80.0),
    ]
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let runs = if options.quick { 3 } else { 10 };
    let mut models = json_chain();
    models.push(ModelText {
        name: "gold.regions".into(),
        sql: "SELECT COUNT(DISTINCT region) AS regions FROM silver.orders".into(),
        ..models[0].clone()
    });
    if let Some(third) = models.last_mut() {
        third.config = [("materialized".into(), "table".into())].into();
    }
    let task = Folder::new("", &[])?;
    for (path, text) in models.iter().map(ModelText::file) {
        task.write(&format!("project/{path}"), text)?;
    }
    task.write("project/headwater.yml", "name: cold\n")?;
    let mut results = serde_json::Map::new();
    for subject in subjects() {
        if std::env::var_os(FUNCTIONS).is_some() && program(subject.program).is_err() {
            continue;
        }
        eprintln!("  {}", subject.name);
        results.insert(
            subject.name.to_owned(),
            measure(&subject, task.path(), runs)?,
        );
    }
    Ok(Value::Object(results))
}

/// Starts a function some times, each time anew.
fn measure(subject: &Subject, task: &Path, runs: usize) -> Result<Value> {
    let program = program(subject.program)?;
    let (mut asked, mut answered, mut resting) = (Vec::new(), Vec::new(), 0);
    // The first start reads the program from the disk and is not counted.
    for run in 0..=runs {
        let once = start(subject, &program, task).with_context(|| subject.name.to_owned())?;
        if run > 0 {
            asked.push(once.asked);
            answered.push(once.answered);
            resting = resting.max(once.resting);
        }
    }
    let asked = summary(asked);
    let p50 = asked["p50"].as_f64().unwrap_or(f64::MAX);
    Ok(json!({
        "asks_for_work": asked,
        "first_answer": summary(answered),
        "target_ms": subject.target_ms,
        "within_target": p50 <= subject.target_ms,
        "rss_mb": megabytes(resting),
        "binary_mb": megabytes(std::fs::metadata(&program)?.len()),
        "stripped_mb": stripped(&program).map(megabytes),
        "programs": match std::env::var_os(FUNCTIONS) {
            Some(folder) => format!("in {}", Path::new(&folder).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())),
            None => "of profile release; those that are deployed, of profiles small and lambda, are smaller".into(),
        },
    }))
}

/// What one start took.
struct Once {
    /// Until the function asked for work.
    asked: Duration,
    /// Until it answered its first invocation.
    answered: Duration,
    /// Its memory when it asked for the second, bytes.
    resting: u64,
}

fn start(subject: &Subject, program: &Path, task: &Path) -> Result<Once> {
    let runtime = Runtime::start(subject.event.clone())?;
    let mut command = Command::new(program);
    command.env_clear().envs(environment(&runtime, task));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let mut child = Started(command.spawn()?);
    let asked = runtime.wait(STEP_MAX, |call| matches!(call, Call::Next))?;
    let (at, answer) = match runtime.wait(STEP_MAX, |call| !matches!(call, Call::Next))? {
        (at, Call::Answered(answer)) => (at, answer),
        (at, Call::Failed(error)) if subject.refused => (at, error),
        (_, call) => anyhow::bail!("{call:?}"),
    };
    ensure!(!answer.is_empty(), "an empty answer");
    runtime.wait(STEP_MAX, |call| matches!(call, Call::Next))?;
    let resting = memory(child.0.id()).unwrap_or(0);
    ensure!(child.0.try_wait()?.is_none(), "it ended by itself");
    Ok(Once {
        asked: asked.0 - began,
        answered: at - began,
        resting,
    })
}

/// What the service and the stacks put into a function's environment, and nothing else.
fn environment(runtime: &Runtime, task: &Path) -> Vec<(&'static str, String)> {
    let stub = &runtime.address;
    vec![
        ("AWS_LAMBDA_RUNTIME_API", stub.clone()),
        ("AWS_LAMBDA_FUNCTION_NAME", "headwater-cold".into()),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512".into()),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST".into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_DEFAULT_REGION", "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID", "stub".into()),
        ("AWS_SECRET_ACCESS_KEY", "stub".into()),
        ("AWS_SESSION_TOKEN", "stub".into()),
        ("AWS_ENDPOINT_URL", format!("http://{stub}")),
        ("LAMBDA_TASK_ROOT", task.display().to_string()),
        ("HEADWATER_WAREHOUSE", "s3://warehouse".into()),
        ("HEADWATER_STATE", "dynamodb://state/catalog".into()),
        (
            "HEADWATER_QUEUE_ADVANCES",
            format!("http://{stub}/1/advances"),
        ),
        (
            "HEADWATER_QUEUE_REFRESHES",
            format!("http://{stub}/1/refreshes.fifo"),
        ),
        (
            "RUST_LOG",
            "info,aws_config=warn,aws_smithy_runtime=warn,hyper=warn".into(),
        ),
    ]
}

/// A child that ends with its value.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // Already gone is as good as gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program in the folder that is named, else built beside this one.
fn program(name: &str) -> Result<PathBuf> {
    let path = match std::env::var_os(FUNCTIONS) {
        Some(folder) => Path::new(&folder).join(name),
        None => std::env::current_exe()?.with_file_name(name),
    };
    ensure!(
        path.is_file(),
        "`{}` is not built: cargo build --release --bin {name}",
        path.display()
    );
    Ok(path)
}

/// Memory of a process that is in memory now, where the system tells.
fn memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes = line.trim().trim_end_matches("kB").trim();
    Some(kilobytes.parse::<u64>().ok()? * 1024)
}

/// Size of a copy without symbols, where there is `strip`.
fn stripped(program: &Path) -> Option<u64> {
    let folder = Folder::new("", &[]).ok()?;
    let copy = folder.path().join("stripped");
    let done = Command::new("strip")
        .arg("-o")
        .arg(&copy)
        .arg(program)
        .status();
    done.ok().filter(std::process::ExitStatus::success)?;
    Some(std::fs::metadata(copy).ok()?.len())
}

/// Millions of bytes with one decimal.
fn megabytes(bytes: u64) -> f64 {
    u32::try_from(bytes / 100_000).map_or(f64::MAX, f64::from) / 10.0
}
