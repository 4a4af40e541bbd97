//! A project on disk: the model files under `transform/`.

use std::{fs, io, path::Path};

use domain::{Finding, Project, Severity};
use settings::FILE;

use crate::failure::Failure;

/// The folder of model files.
pub const TRANSFORM: &str = "transform";
/// Folders below `transform/` that are still looked into; deeper ones are a loop of links.
const DEPTH_MAX: usize = 16;

/// Refuses a folder that is no project, and says how to make one.
///
/// # Errors
/// When the folder has neither settings nor models.
pub fn require(project: &Path) -> Result<(), Failure> {
    let shown = project.display();
    if !project.is_dir() {
        return Err(Failure::project(format!(
            "`{shown}` is not a folder; make a project there with `headwater init {shown}`"
        )));
    }
    if project.join(FILE).exists() || project.join(TRANSFORM).is_dir() {
        return Ok(());
    }
    Err(Failure::project(format!(
        "`{shown}` is no Headwater project: it has neither `{FILE}` nor a folder `{TRANSFORM}`; make one with `headwater init {shown}`"
    )))
}

/// Reads and checks every model.
///
/// # Errors
/// When a file cannot be read at all; what is wrong inside one is a finding.
pub fn load(project: &Path) -> Result<(Project, Vec<Finding>), Failure> {
    let mut files = Vec::new();
    let root = project.join(TRANSFORM);
    if root.is_dir() {
        collect(&root, TRANSFORM, 0, &mut files)
            .map_err(|error| Failure::project(error.to_string()))?;
    }
    files.sort();
    // Landing tables come into being with their first row, so a model may name one before that.
    Ok(Project::load(&files, None))
}

fn collect(
    folder: &Path,
    relative: &str,
    depth: usize,
    files: &mut Vec<(String, String)>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "`{relative}` is nested more than {DEPTH_MAX} folders deep"
        )));
    }
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("read `{relative}`: {error}"));
    for entry in fs::read_dir(folder).map_err(named)? {
        let entry = entry.map_err(named)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (path, relative) = (entry.path(), format!("{relative}/{name}"));
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            collect(&path, &relative, depth + 1, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("sql"))
        {
            let text = fs::read_to_string(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("read `{relative}`: {error}"))
            })?;
            files.push((relative, text));
        }
    }
    Ok(())
}

/// A finding on one line: `transform/silver/orders.sql:1:9: error: .. [unknown_config_key]`.
#[must_use]
pub fn line(finding: &Finding) -> String {
    let place = match (finding.file.as_str(), finding.line) {
        ("", _) => String::new(),
        (file, 0) => format!("{file}: "),
        (file, line) => format!("{file}:{line}:{}: ", finding.column),
    };
    format!(
        "{place}{}: {} [{}]",
        severity(finding.severity),
        finding.message,
        finding.code
    )
}

/// A severity as people and programs read it.
#[must_use]
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Reads every model and refuses a project with errors.
///
/// # Errors
/// All errors of the models, one per line.
pub fn load_sound(project: &Path) -> Result<Project, Failure> {
    let (loaded, findings) = load(project)?;
    let errors: Vec<String> = findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .map(line)
        .collect();
    if errors.is_empty() {
        Ok(loaded)
    } else {
        Err(Failure::project(errors.join("\n")))
    }
}
