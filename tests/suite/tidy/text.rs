//! Length, names and leftovers.

use anyhow::Result;

use super::{files, report};

/// Most lines of a source file.
const LINES_MAX: usize = 500;
/// Most lines of a `main.rs` of a function.
const MAIN_LINES_MAX: usize = 40;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "manager", "misc",
];

pub(super) fn files_are_short() -> Result<()> {
    let sources = files()?.into_iter().filter(|file| is_source(&file.path));
    let long = sources.filter_map(|file| {
        let lines = file.text.as_deref().unwrap_or_default().lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines, at most {LINES_MAX}", file.path))
    });
    report(&long.collect::<Vec<_>>())
}

pub(super) fn mains_are_introductions() -> Result<()> {
    let mains = files()?
        .into_iter()
        .filter(|file| file.path.starts_with("functions/") && file.path.ends_with("/main.rs"));
    let long = mains.filter_map(|file| {
        let lines = file.text.as_deref().unwrap_or_default().lines().count();
        (lines > MAIN_LINES_MAX)
            .then(|| format!("{}: {lines} lines, at most {MAIN_LINES_MAX}", file.path))
    });
    report(&long.collect::<Vec<_>>())
}

fn is_source(path: &str) -> bool {
    [".rs", ".py", ".sh", ".js", ".css", ".html"]
        .iter()
        .any(|end| path.ends_with(end))
        || path.ends_with(".ci/run")
}

pub(super) fn names_say_what_is_inside() -> Result<()> {
    let mut complaints = Vec::new();
    for file in files()? {
        for part in file.path.split('/') {
            if EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part)) {
                complaints.push(format!(
                    "{}: `{part}` says nothing about what is inside",
                    file.path
                ));
            }
        }
        let text = file.text.as_deref().unwrap_or_default();
        for name in EMPTY_NAMES.iter().filter(|_| file.path.ends_with(".rs")) {
            for item in ["mod", "fn", "struct"] {
                let declared = format!("{item} {name}");
                let found = text.lines().any(|line| {
                    let rest = line
                        .trim_start()
                        .trim_start_matches("pub ")
                        .trim_start_matches("pub(crate) ");
                    rest.strip_prefix(&declared)
                        .is_some_and(|end| end.starts_with([';', ' ', '(', '{', '<']))
                });
                if found {
                    complaints.push(format!(
                        "{}: `{declared}` says nothing about what is inside",
                        file.path
                    ));
                }
            }
        }
    }
    report(&complaints)
}

/// Folders of people and workplaces. Split, or this file would be its own first finding.
const PLACES: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/tmp/", "hw"),
];

pub(super) fn nothing_names_this_machine() -> Result<()> {
    let mut complaints = Vec::new();
    for file in files()?
        .into_iter()
        .filter(|file| !file.path.ends_with("Cargo.lock"))
    {
        for (at, line) in file.text.as_deref().unwrap_or_default().lines().enumerate() {
            for place in PLACES.iter().filter(|place| line.contains(**place)) {
                // `owner/work/..` of an address is no folder of this machine.
                let before = line
                    .split(place)
                    .next()
                    .and_then(|before| before.chars().last());
                if !before.is_some_and(|c| c.is_alphanumeric() || c == '.' || c == '-') {
                    complaints.push(format!("{}:{}: `{place}`", file.path, at + 1));
                }
            }
        }
    }
    report(&complaints)
}

pub(super) fn nothing_is_left_to_do() -> Result<()> {
    let marks = [
        concat!("unimpl", "emented!("),
        concat!("to", "do!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
    ];
    let excused = concat!("allow(clippy::", "unwrap_used");
    let mut complaints = Vec::new();
    for file in files()?.into_iter().filter(|file| is_source(&file.path)) {
        for (at, line) in file.text.as_deref().unwrap_or_default().lines().enumerate() {
            for mark in marks
                .iter()
                .chain([&excused])
                .filter(|mark| line.contains(**mark))
            {
                complaints.push(format!("{}:{}: `{mark}`", file.path, at + 1));
            }
        }
    }
    report(&complaints)
}

/// Macros that panic when their stream is closed: a program goes on without anybody who reads it.
const PRINTS: [&str; 4] = [
    concat!("print", "ln!("),
    concat!("eprint", "ln!("),
    concat!("pri", "nt!("),
    concat!("epri", "nt!("),
];

pub(super) fn nothing_prints() -> Result<()> {
    let mut complaints = Vec::new();
    for file in files()?.into_iter().filter(|file| is_shipped(&file.path)) {
        let text = file.text.as_deref().unwrap_or_default();
        // Unit tests stand at the end of a file.
        let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (at, line) in shipped.lines().enumerate() {
            if let Some(print) = PRINTS.iter().find(|print| line.contains(**print)) {
                complaints.push(format!(
                    "{}:{}: `{print}..)` panics when nobody reads it; write and ignore, or answer with the error",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    report(&complaints)
}

/// Whether a file is of a program or function that is installed somewhere.
fn is_shipped(path: &str) -> bool {
    let test = path.ends_with("tests.rs") || path.contains("/tests/");
    path.ends_with(".rs")
        && (path.starts_with("shared/") || path.starts_with("functions/"))
        && !path.starts_with("shared/testkit/")
        && !test
}
