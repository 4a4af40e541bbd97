//! Documents say what the program does: commands, settings, the two lines of the README that everything starts with.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context, Result, ensure};
use tests::program;

use super::{File, files, report};

/// Most lines of the README.
const README_LINES_MAX: usize = 200;

fn documents() -> Result<Vec<File>> {
    Ok(files()?
        .into_iter()
        .filter(|file| file.path.ends_with(".md"))
        .collect())
}

fn readme() -> Result<String> {
    std::fs::read_to_string(tests::root().join("README.md")).context("README.md")
}

/// Lines of console blocks that start with `$ `, continued lines joined.
fn console_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let line = line.trim();
        if open {
            if let Some(last) = lines.last_mut() {
                last.push(' ');
                last.push_str(line.trim_end_matches('\\'));
            }
        } else if let Some(command) = line.strip_prefix("$ ") {
            lines.push(command.trim_end_matches('\\').to_owned());
        } else {
            continue;
        }
        open = line.ends_with('\\');
    }
    lines
}

pub(super) fn readme_has_both_commands() -> Result<()> {
    let readme = readme()?;
    let lines = readme.lines().count();
    ensure!(
        lines <= README_LINES_MAX,
        "{lines} lines, at most {README_LINES_MAX}"
    );
    let commands = console_lines(&readme);
    let setup: Vec<_> = commands
        .iter()
        .filter(|line| line.starts_with("cargo "))
        .collect();
    ensure!(
        setup
            .iter()
            .any(|line| line.starts_with("cargo run --release -- demo")),
        "no demo in {setup:?}"
    );
    let script = std::fs::read_to_string(tests::root().join(".ci/run")).context(".ci/run")?;
    let tested = setup
        .iter()
        .filter(|line| line.contains("nextest") || line.starts_with("cargo test"))
        .count();
    ensure!(tested == 1, "{tested} test commands in {setup:?}");
    ensure!(
        script.contains("README.md"),
        ".ci/run does not take the test command from the README"
    );
    Ok(())
}

/// Every `headwater ..` of the documents is a command of the program, and its flags are flags of that command.
pub(super) fn commands_exist() -> Result<()> {
    let mut complaints = Vec::new();
    for document in documents()? {
        for line in console_lines(document.text.as_deref().unwrap_or_default()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let arguments = match words.as_slice() {
                ["headwater", rest @ ..] | ["cargo", "run", "--release", "--", rest @ ..] => rest,
                _ => continue,
            };
            if let Err(error) = known(arguments) {
                complaints.push(format!("{}: `{line}`: {error:#}", document.path));
            }
        }
    }
    report(&complaints)
}

fn known(arguments: &[&str]) -> Result<()> {
    let piped = arguments
        .iter()
        .position(|word| ["|", ">", "<", "&&", "#"].contains(word))
        .unwrap_or(arguments.len());
    let mut words = arguments[..piped].iter().peekable();
    let mut path: Vec<&str> = Vec::new();
    let mut flags = Vec::new();
    let mut help = help(&path)?;
    while let Some(word) = words.next() {
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or(flag);
            ensure!(
                help.contains(&format!("--{flag}")),
                "`--{flag}` is no flag of `{}`",
                path.join(" ")
            );
            flags.push(flag);
            if flag == "project" {
                words.next();
            }
        } else if subcommands(&help).contains(*word) {
            path.push(word);
            help = self::help(&path)?;
        } else {
            ensure!(!path.is_empty(), "`{word}` is no command");
        }
    }
    Ok(())
}

fn help(path: &[&str]) -> Result<String> {
    let output = Command::new(program::binary()?)
        .args(path)
        .arg("--help")
        .output()?;
    ensure!(output.status.success(), "`{} --help` fails", path.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// First words of the indented lines under `Commands:`.
fn subcommands(help: &str) -> BTreeSet<String> {
    let under = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1);
    let lines = under.take_while(|line| line.starts_with(' ') || line.is_empty());
    lines
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Every key that `settings` reads is named in the README or a document beside the code.
pub(super) fn every_setting_is_documented() -> Result<()> {
    let folder = tests::root().join("shared/settings/src");
    let source = std::fs::read_to_string(folder.join("load.rs"))?
        + &std::fs::read_to_string(folder.join("sources.rs"))?;
    let mut keys = BTreeSet::new();
    for opening in ["section, \"", "top, \"", "span(\"", "take(\""] {
        for found in source.split(opening).skip(1) {
            keys.extend(found.split('"').next().map(str::to_owned));
        }
    }
    ensure!(keys.len() >= 15, "only {} keys found: {keys:?}", keys.len());
    let documents: String = documents()?
        .into_iter()
        .filter_map(|file| file.text)
        .collect();
    let missing = keys.iter().filter(|key| {
        !documents.contains(&format!("`{key}`")) && !documents.contains(&format!(".{key}`"))
    });
    report(
        &missing
            .map(|key| format!("setting `{key}` is in no document"))
            .collect::<Vec<_>>(),
    )
}
