//! `headwater deploy` and `headwater doctor`, as far as they go without AWS: what would be created, and refusals.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tests::{folder::Folder, program};

use crate::plain::test_given;

/// Where nothing listens: whoever asked AWS anything would be told so.
const NOWHERE: &str = "http://127.0.0.1:9";
const MODEL: &str = "@config materialized=view\nSELECT 1 AS n";

/// A test.
type Check = fn() -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let all: [(&str, Check); 9] = [
        ("without_a_terminal_it_is_a_dry_run", dry_run),
        ("a_plan_for_programs", plan_as_json),
        ("what_would_be_refused_is_told_before", problems),
        ("a_project_with_errors_is_refused", project_with_errors),
        ("wrong_flags_are_usage", usage),
        ("a_doctor_who_reaches_nobody_says_so", nobody),
        (
            "whoever_makes_vectors_is_told_of_the_model_and_may_ask_it",
            embedding,
        ),
        ("whoever_reads_large_items_is_told_when_one_is_gone", gone),
        ("rows_may_be_put_into_quarantine_however_large", quarantine),
    ];
    let given = all.into_iter().map(|(name, run)| {
        test_given(
            format!("deploying::{name}"),
            "HEADWATER_PYTHON_REQUIRED",
            python,
            move |()| run(),
        )
    });
    given.collect()
}

/// The scripts are Python; the plan needs nothing beside it.
fn python() -> Result<(), String> {
    let found = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(String::from("there is no python3")),
    }
}

/// A project of one model, and programs of one processor beside it.
fn project(machine: u8) -> Result<Folder> {
    let folder = Folder::new(
        "",
        &[(String::from("transform/gold/one.sql"), MODEL.into())],
    )?;
    // As much of a Linux program's header as tells the processor.
    let mut header = [0_u8; 64];
    header[..4].copy_from_slice(b"\x7fELF");
    header[18] = machine;
    for name in ["ingest", "coalesce", "sweep", "sql"] {
        folder.write(&format!("programs/{name}/bootstrap"), header)?;
    }
    Ok(folder)
}

const ARM64: u8 = 183;
const X86_64: u8 = 62;

/// Runs a command on a folder's project and programs, with nobody to ask.
fn run(folder: &Folder, command: &str, flags: &[&str]) -> Result<Output> {
    let mut arguments: Vec<String> = vec![command.into(), "--infra".into()];
    arguments.push(infra());
    if command == "deploy" {
        arguments.push("--programs".into());
        arguments.push(folder.path().join("programs").display().to_string());
    }
    arguments.extend(flags.iter().map(ToString::to_string));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    program::run(folder.path(), &arguments)
}

/// What was said, both ways.
fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// The exit code, and that every one of the words was said.
fn ended(output: &Output, code: i32, words: &[&str]) -> Result<()> {
    let said = said(output);
    ensure!(
        output.status.code() == Some(code),
        "ended with {}, not {code}: {said}",
        output.status
    );
    for word in words {
        ensure!(said.contains(word), "nothing of `{word}` in: {said}");
    }
    Ok(())
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| said(output))
}

fn dry_run() -> Result<()> {
    let folder = project(ARM64)?;
    let flags = [
        "--name",
        "shop",
        "--endpoint",
        NOWHERE,
        "--set",
        "LogDays=90",
    ];
    ended(
        &run(&folder, "deploy", &flags)?,
        0,
        &[
            "shop-storage",
            "AWS::DynamoDB::Table",
            "shop-refresh",
            "3008 MB",
            "LogDays",
            "headwater token",
            "dry run",
            "--yes",
        ],
    )?;
    // With a yes it does ask somebody, who is not there.
    let yes = [&flags[..], &["--yes"]].concat();
    let output = run(&folder, "deploy", &yes)?;
    ensure!(output.status.code() == Some(3), "{}", said(&output));
    Ok(())
}

fn plan_as_json() -> Result<()> {
    let folder = project(X86_64)?;
    let flags = [
        "--json",
        "--arch",
        "x86_64",
        "--set",
        "AlarmEmail=ops@example.com",
    ];
    let output = run(&folder, "deploy", &flags)?;
    ended(&output, 0, &[])?;
    let answer = json(&output)?;
    ensure!(answer["deployed"] == false, "{answer}");
    let plan = &answer["plan"];
    let stacks = plan["stacks"].as_array().context("stacks")?;
    let names: Vec<_> = stacks.iter().filter_map(|s| s["stack"].as_str()).collect();
    let wanted = ["storage", "queues", "roles", "functions", "http", "alarms"];
    ensure!(
        names == wanted.map(|stack| format!("headwater-{stack}")),
        "{names:?}"
    );
    let count = |kind: &str| -> u64 {
        let all = stacks
            .iter()
            .filter_map(|stack| stack["resources"].as_array());
        all.flatten()
            .filter(|resource| resource["type"] == kind)
            .filter_map(|resource| resource["count"].as_u64())
            .sum()
    };
    for (kind, wanted) in [
        ("AWS::Lambda::Function", 5),
        ("AWS::Lambda::EventSourceMapping", 3),
        ("AWS::SQS::Queue", 6),
        ("AWS::CloudWatch::Alarm", 18),
        ("AWS::SNS::Subscription", 1),
        ("AWS::Budgets::Budget", 0),
    ] {
        ensure!(
            count(kind) == wanted,
            "{} of {kind}, not {wanted}",
            count(kind)
        );
    }
    let mut functions = plan["functions"].as_array().context("functions")?.iter();
    let refresh = functions.find(|function| function["name"] == "headwater-refresh");
    let refresh = refresh.context("headwater-refresh")?;
    ensure!(
        refresh["architecture"] == "x86_64"
            && refresh["memory"] == 3008
            && refresh["seconds"] == 900,
        "{refresh}"
    );
    let parameters = plan["parameters"].to_string();
    ensure!(
        parameters.contains("AlarmEmail") && parameters.contains("Architecture"),
        "{parameters}"
    );
    Ok(())
}

fn problems() -> Result<()> {
    let folder = project(X86_64)?;
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--yes"], &["built for x86_64", "arm64"]),
        (
            &["--arch", "x86_64", "--set", "LogDay=1"],
            &["no template has a parameter LogDay"],
        ),
        (
            &["--arch", "x86_64", "--set", "LogDays=2"],
            &["LogDays", "`2`"],
        ),
        (
            &["--arch", "x86_64", "--set", "RefreshMemory=99"],
            &["RefreshMemory", "512"],
        ),
        (
            &["--arch", "x86_64", "--set", "TokenDigests=DIGEST"],
            &["a dry run", "TokenDigests", "`headwater token`", "`DIGEST`"],
        ),
        (&["--arch", "x86_64", "--name", "Shop"], &["Name", "`Shop`"]),
        // A right to every model is none that can be asked for.
        (
            &["--arch", "x86_64", "--set", "EmbeddingModel=*"],
            &["EmbeddingModel", "`*`"],
        ),
        (
            &["--arch", "x86_64", "--programs", "nowhere"],
            &["no program", "ingest", "--build"],
        ),
    ];
    let infra = infra();
    for (flags, words) in cases {
        // The last of two flags would be refused by the parser, so the folder's own is left out where one is named.
        let output = if flags.contains(&"--programs") {
            let all = [&["deploy", "--infra"][..], &[infra.as_str()], flags].concat();
            program::run(folder.path(), &all)?
        } else {
            run(&folder, "deploy", flags)?
        };
        ended(&output, 1, words)?;
        let text = said(&output);
        let empty = text.contains("resource") && !text.contains("AWS::");
        ensure!(!empty, "an empty table: {text}");
    }
    let output = run(&folder, "deploy", &["--json"])?;
    ended(&output, 1, &[])?;
    let problems = json(&output)?["plan"]["problems"].to_string();
    ensure!(problems.contains("built for x86_64"), "{problems}");
    Ok(())
}

/// The lines of a template's resource, by its name: up to the next empty line.
fn resource<'a>(template: &'a str, name: &str) -> Result<&'a str> {
    let found = template.split_once(&format!("\n  {name}:\n"));
    let (_, rest) = found.with_context(|| format!("no resource {name}"))?;
    Ok(rest.split("\n\n").next().unwrap_or(rest))
}

fn embedding() -> Result<()> {
    let read = |file: &str| std::fs::read_to_string(tests::root().join("infra").join(file));
    let (functions, roles) = (read("functions.yaml")?, read("roles.yaml")?);
    // `refresh` builds indexes and `control` searches them; the others are linked with no search.
    for (name, embeds) in [
        ("Ingest", false),
        ("Coalesce", false),
        ("Sweep", false),
        ("Refresh", true),
        ("Control", true),
    ] {
        let is_told = resource(&functions, name)?.contains("HEADWATER_EMBEDDER_URL: !If [Embeds");
        let role = resource(&roles, &format!("{name}Role"))?;
        let may = role.contains("foundation-model/${EmbeddingModel}");
        ensure!(
            (is_told, may) == (embeds, embeds),
            "{name}: told {is_told}, may {may}"
        );
    }
    Ok(())
}

/// An item that was replaced since it was read has its object swept: it is read again, if S3 says that the object is gone.
/// It says so to roles that may list the bucket when they ask for an object, and such a request has no prefix.
fn gone() -> Result<()> {
    let roles = std::fs::read_to_string(tests::root().join("infra/roles.yaml"))?;
    for name in ["Ingest", "Coalesce", "Sweep", "Refresh", "Control"] {
        let role = resource(&roles, &format!("{name}Role"))?;
        let condition = "Condition: {StringLikeIfExists: {\"s3:prefix\": [";
        let of_list = role.split("Action: \"s3:ListBucket\"").nth(1);
        let of_list = of_list.and_then(|rest| rest.split("- Sid:").next());
        let listed = of_list.and_then(|rest| rest.split(condition).nth(1));
        let listed = listed.with_context(|| format!("{name} may list nothing"))?;
        let listed = listed.split(']').next().unwrap_or_default();
        ensure!(listed.contains("\"state/*\""), "{name} may list {listed}");
    }
    Ok(())
}

/// A landing table of quarantine is one like others, and has objects once its rows are not small: 300 KB were refused.
fn quarantine() -> Result<()> {
    let roles = std::fs::read_to_string(tests::root().join("infra/roles.yaml"))?;
    // What others put under `landing/../incoming` is of sources alone.
    let of_sources = ["CommitIncoming", "RemoveIncoming"];
    let mut seen = 0;
    for name in ["Ingest", "Refresh", "Control"] {
        let role = resource(&roles, &format!("{name}Role"))?;
        for statement in role.split("- Sid: ").skip(1) {
            let sid = statement.lines().next().unwrap_or_default();
            if statement.contains("landing/*") && !of_sources.contains(&sid) {
                ensure!(statement.contains("quarantine/*"), "{name}: {sid}");
                seen += 1;
            }
        }
    }
    ensure!(seen == 6, "{seen} statements");
    Ok(())
}

fn infra() -> String {
    tests::root().join("infra").display().to_string()
}

fn project_with_errors() -> Result<()> {
    let folder = project(ARM64)?;
    folder.write(
        "transform/gold/two.sql",
        "@config materialised=view\nSELECT 1 AS n",
    )?;
    let flags = ["--yes", "--endpoint", NOWHERE];
    ended(
        &run(&folder, "deploy", &flags)?,
        1,
        &["two.sql:1", "materialised", "1 error"],
    )?;
    let output = run(
        &folder,
        "deploy",
        &["--yes", "--endpoint", NOWHERE, "--json"],
    )?;
    ended(&output, 1, &[])?;
    let answer = json(&output)?;
    ensure!(answer["errors"] == 1, "{answer}");
    folder.write("transform/gold/two.sql", MODEL)?;
    folder.write("headwater.yml", "lvie:\n  enabled: true\n")?;
    ended(&run(&folder, "deploy", &flags)?, 1, &["lvie"])
}

fn usage() -> Result<()> {
    let folder = project(ARM64)?;
    for flags in [
        &["--set", "LogDays"][..],
        &["--set", "Architecture=arm64"],
        &["--arch", "mips"],
    ] {
        ended(&run(&folder, "deploy", flags)?, 2, &["--"])?;
    }
    let output = program::run(folder.path(), &["deploy", "--infra", "nowhere"])?;
    ended(&output, 2, &["nowhere", "deploy.py"])
}

fn nobody() -> Result<()> {
    let folder = project(ARM64)?;
    // Without boto3 it is that which is missing; with it, whoever should listen there.
    let flags = ["--json", "--region", "eu-north-1", "--endpoint", NOWHERE];
    let output = run(&folder, "doctor", &flags)?;
    ended(&output, 3, &["error"])?;
    ensure!(json(&output)?["code"] == 3, "{}", said(&output));
    Ok(())
}
