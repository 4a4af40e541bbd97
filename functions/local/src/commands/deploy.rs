//! `headwater deploy`: shows what a deployment creates, asks, and has `infra/deploy.py` do it.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, print_json, validate};
use crate::{
    cli::{Architecture, Deploy, Target},
    failure::Failure,
    infra::{self, Infra},
    screen::{self, number, right, say, text},
};

/// The programs of the functions, by the names of their crates, and the profile they are built in. Those without the query
/// engine are built without what it switches on in dependencies that they share.
const BUILDS: [(&str, &[&str]); 2] = [
    ("small", &["ingest", "coalesce", "sweep"]),
    ("lambda", &["sql"]),
];

/// What a deployment creates, as `infra/deploy.py --plan` tells it.
#[derive(Debug, Deserialize)]
struct Plan {
    stacks: Vec<Stack>,
    functions: Vec<Function>,
    parameters: Vec<Parameter>,
    /// What a person should know before saying yes.
    notes: Vec<String>,
    /// What would be refused.
    problems: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Stack {
    stack: String,
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    #[serde(rename = "type")]
    kind: String,
    count: u64,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// The program's file; none when it is not built.
    file: Option<String>,
    bytes: u64,
    architecture: String,
    memory: Option<u64>,
    seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Parameter {
    name: String,
    value: String,
    default: Option<String>,
}

/// What the person said.
enum Answer {
    Yes,
    No,
    /// There was nobody to ask.
    Nobody,
}

/// Deploys the project.
pub(super) async fn deploy(context: &Context, how: &Deploy) -> Result<(), Failure> {
    let checked = validate::check(context).await?;
    if checked.errors() > 0 {
        checked.show(context.json)?;
        return Err(Failure::shown());
    }
    let infra = Infra::find(how.target.infra.as_deref())?;
    let programs = programs(how, &infra)?;
    if how.build {
        build(&infra, how.arch, &programs, context.json)?;
    }
    let arguments = arguments(context, how, &programs);
    let planned = infra.run(
        "deploy.py",
        &how.target,
        &[&arguments[..], &[OsString::from("--plan")]].concat(),
        hear,
    )?;
    let plan: Plan = infra::read(&planned)?;
    if !context.json && !plan.stacks.is_empty() {
        show(&plan)?;
    }
    let answer = ask(how, plan.problems.is_empty())?;
    if !plan.problems.is_empty() {
        if context.json {
            print_json(&json!({ "deployed": false, "plan": planned }))?;
            return Err(Failure::shown());
        }
        say(match how.yes {
            true => "nothing was changed; this stands in the way:",
            false => "a dry run: nothing was changed, and nothing can be deployed yet:",
        })?;
        return Err(Failure::project(plan.problems.join("\n")));
    }
    if let Answer::Nobody | Answer::No = answer {
        if context.json {
            return print_json(&json!({ "deployed": false, "plan": planned }));
        }
        return Ok(say(match answer {
            Answer::Nobody => {
                "a dry run, for there is no terminal to ask on: nothing was changed. --yes deploys it"
            }
            _ => "nothing was changed",
        })?);
    }
    let outputs = infra.run("deploy.py", &how.target, &arguments, |line| {
        // Answers of programs stay alone on stdout.
        if context.json {
            hear(line)
        } else {
            Ok(say(line)?)
        }
    })?;
    if context.json {
        return print_json(&json!({ "deployed": true, "plan": planned, "outputs": outputs }));
    }
    let url = outputs.get("ApiUrl").and_then(Value::as_str);
    if let Some(url) = url {
        say(&format!("the API is at {url}"))?;
    }
    Ok(say(&format!(
        "look after it with: headwater doctor --name {}",
        how.target.name
    ))?)
}

fn hear(line: &str) -> Result<(), Failure> {
    let mut err = anstream::stderr().lock();
    Ok(writeln!(err, "{line}")?)
}

/// The folder of the programs: the named one, else where cargo-lambda leaves them, here or beside `infra`.
fn programs(how: &Deploy, infra: &Infra) -> Result<PathBuf, Failure> {
    if let Some(folder) = &how.programs {
        return Ok(std::path::absolute(folder)?);
    }
    let usual = Path::new("target").join("lambda");
    if usual.is_dir() && !how.build {
        return Ok(std::path::absolute(usual)?);
    }
    Ok(infra.root()?.join(usual))
}

/// Builds the programs for the C library and the processor of the functions.
fn build(infra: &Infra, arch: Architecture, folder: &Path, json: bool) -> Result<(), Failure> {
    let found = Command::new("cargo")
        .args(["lambda", "--version"])
        .stdin(Stdio::null())
        .output();
    if !found.is_ok_and(|found| found.status.success()) {
        return Err(Failure::unavailable(
            "cargo-lambda is missing: `pip install cargo-lambda` or `cargo install --locked cargo-lambda` gets it (https://www.cargo-lambda.info)",
        ));
    }
    let flag = match arch {
        Architecture::Arm64 => "--arm64",
        Architecture::X86_64 => "--x86-64",
    };
    for (profile, programs) in BUILDS {
        let packages = programs.iter().flat_map(|program| ["--package", program]);
        let status = Command::new("cargo")
            .args(["lambda", "build", "--profile", profile, flag])
            .args(packages)
            .arg("--lambda-dir")
            .arg(folder)
            .current_dir(infra.root()?)
            .stdin(Stdio::null())
            // What matters is told on stderr; stdout belongs to the answer.
            .stdout(if json {
                Stdio::null()
            } else {
                Stdio::inherit()
            })
            .status()
            .map_err(|error| Failure::unavailable(format!("start `cargo lambda`: {error}")))?;
        if !status.success() {
            return Err(Failure::unavailable(format!(
                "`cargo lambda build` of {} ended with {status}; what it said is above",
                programs.join(", ")
            )));
        }
    }
    Ok(())
}

/// Arguments of the script, for the plan and the deployment alike.
fn arguments(context: &Context, how: &Deploy, programs: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![
        "--project".into(),
        context.project.clone().into(),
        "--programs".into(),
        programs.into(),
        "--set".into(),
        format!("Architecture={}", how.arch.name()).into(),
    ];
    for setting in &how.settings {
        arguments.extend(["--set".into(), setting.into()]);
    }
    arguments
}

fn show(plan: &Plan) -> Result<(), Failure> {
    let mut stacks = screen::table(&["stack", "resource", ">how many"]);
    for stack in &plan.stacks {
        for (at, resource) in stack.resources.iter().enumerate() {
            let name = if at == 0 { stack.stack.as_str() } else { "" };
            stacks.add_row([text(name), text(&resource.kind), number(resource.count)]);
        }
    }
    let mut functions = screen::table(&[
        "function",
        "architecture",
        ">memory",
        ">timeout",
        ">program",
    ]);
    for function in &plan.functions {
        functions.add_row([
            text(&function.name),
            text(&function.architecture),
            figure(function.memory, "MB"),
            figure(function.seconds, "s"),
            match &function.file {
                // Megabytes, with one digit after the point.
                Some(_) => right(format!(
                    "{}.{} MB",
                    function.bytes / 1_000_000,
                    function.bytes / 100_000 % 10
                )),
                None => right("missing"),
            },
        ]);
    }
    say(&format!("{stacks}\n\n{functions}\n"))?;
    if !plan.parameters.is_empty() {
        let mut parameters = screen::table(&["parameter", "value", "default"]);
        for parameter in &plan.parameters {
            let default = parameter.default.as_deref().unwrap_or_default();
            parameters.add_row([text(&parameter.name), text(&parameter.value), text(default)]);
        }
        say(&format!("{parameters}\n"))?;
    }
    for note in &plan.notes {
        say(&format!("note: {note}"))?;
    }
    Ok(())
}

fn figure(figure: Option<u64>, unit: &str) -> comfy_table::Cell {
    right(figure.map_or_else(|| String::from("?"), |figure| format!("{figure} {unit}")))
}

/// Asks for a yes, if there is somebody to ask and something to say yes to.
fn ask(how: &Deploy, possible: bool) -> Result<Answer, Failure> {
    if how.yes {
        return Ok(Answer::Yes);
    }
    if !io::stdin().is_terminal() || !possible {
        return Ok(Answer::Nobody);
    }
    let Target {
        name,
        region,
        endpoint,
        ..
    } = &how.target;
    let place = endpoint.as_deref().unwrap_or("AWS");
    let region = region
        .as_ref()
        .map_or_else(String::new, |region| format!(", {region}"));
    let mut err = io::stderr().lock();
    write!(err, "deploy this as `{name}` to {place}{region}? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let said = line.trim().to_lowercase();
    Ok(if said == "y" || said == "yes" {
        Answer::Yes
    } else {
        Answer::No
    })
}
