//! A project on disk: the model files under `transform/`.

use std::path::Path;

use domain::{Finding, Project, Severity};
use settings::{FILE, TRANSFORM};

use crate::failure::Failure;

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
    let files =
        settings::model_files(project).map_err(|error| Failure::project(error.to_string()))?;
    // Landing tables come into being with their first row, so a model may name one before that.
    let (loaded, mut findings) = Project::load(&files.files, None);
    let foreign = files.foreign.into_iter();
    findings.extend(foreign.map(|(file, place)| Finding::not_text(file, place)));
    Ok((loaded, findings))
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
