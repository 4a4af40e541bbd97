//! `headwater validate`: what is wrong with settings and models, with places.

use domain::{Finding, Project, Severity, TableName};
use engine::check::Planned;
use serde_json::{Value, json};
use settings::{Complaint, Settings, StateStore};

use super::{Context, print_json};
use crate::{
    failure::Failure,
    project::{self, severity},
    screen::{counted, say},
    world,
};

/// Checks a project; fails when anything is an error.
pub(super) async fn validate(context: &Context) -> Result<(), Failure> {
    let checked = check(context).await?;
    checked.show(context.json)?;
    if checked.errors() == 0 {
        Ok(())
    } else {
        Err(Failure::shown())
    }
}

/// What is wrong with a project.
pub(super) struct Checked {
    models: usize,
    complaints: Vec<Complaint>,
    findings: Vec<Finding>,
    unplanned: Vec<TableName>,
}

/// Reads settings and models.
pub(super) async fn check(context: &Context) -> Result<Checked, Failure> {
    project::require(&context.project)?;
    let vars = std::env::vars_os().filter_map(super::text).collect();
    let (settings, mut complaints) = match Settings::load(&context.project, &vars) {
        Ok(settings) => (Some(settings), Vec::new()),
        Err(complaints) => (None, complaints),
    };
    let (loaded, mut findings) = project::load(&context.project)?;
    let mut unplanned = loaded.order.clone();
    if let Some(settings) = &settings {
        findings.extend(domain::plan::short_targets(&loaded, &settings.live));
    }
    if let Some(settings) = &settings {
        let sound = findings.iter().all(|f| f.severity != Severity::Error);
        match landed(settings, &loaded, sound).await {
            Ok((more, planned)) => {
                complaints.extend(more);
                findings.extend(planned.findings);
                unplanned = planned.unplanned;
            }
            Err(failure) if sound => return Err(failure),
            // There is enough to say without it.
            Err(_) => {}
        }
    }
    Ok(Checked {
        models: loaded.models.len(),
        complaints,
        findings,
        unplanned,
    })
}

impl Checked {
    /// How many errors there are.
    pub(super) fn errors(&self) -> usize {
        let errors = self
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        self.complaints.len() + errors.count()
    }

    /// Tells everything that was found.
    pub(super) fn show(&self, json: bool) -> Result<(), Failure> {
        let errors = self.errors();
        let warnings = self.findings.len() + self.complaints.len() - errors;
        if json {
            let settings = self
                .complaints
                .iter()
                .map(|c| json!({ "severity": "error", "code": "settings", "place": c.place, "message": c.message }));
            let models = self.findings.iter().map(|f| {
                json!({
                    "severity": severity(f.severity), "code": f.code, "model": f.model, "message": f.message,
                    "file": f.file, "line": f.line, "column": f.column,
                })
            });
            let all: Vec<Value> = settings.chain(models).collect();
            return print_json(
                &json!({ "models": self.models, "errors": errors, "warnings": warnings, "findings": all,
                    "unplanned": self.unplanned }),
            );
        }
        for complaint in &self.complaints {
            say(&format!(
                "{}: error: {} [settings]",
                complaint.place, complaint.message
            ))?;
        }
        for finding in &self.findings {
            say(&project::line(finding))?;
        }
        let counts = [
            counted(errors as u64, "error"),
            counted(warnings as u64, "warning"),
        ]
        .join(", ");
        say(&format!(
            "{}: {counts}",
            counted(self.models as u64, "model")
        ))?;
        // With an error there is something else to do first.
        if errors == 0 && !self.unplanned.is_empty() {
            say(&format!(
                "whether columns are there is not known yet of {}: what it reads has not landed",
                counted(self.unplanned.len() as u64, "model")
            ))?;
        }
        Ok(())
    }
}

/// What is wrong over what has landed, with the settings of sources and, when they are `sound` by themselves, with models;
/// nothing before anything has.
async fn landed(
    settings: &Settings,
    project: &Project,
    sound: bool,
) -> Result<(Vec<Complaint>, Planned), Failure> {
    let nothing = || Planned {
        unplanned: project.order.clone(),
        ..Planned::default()
    };
    match &settings.state {
        StateStore::Sqlite(file) if file.exists() => {
            let world = world::open(settings, project.clone())?;
            let complaints = engine::sources::check(&world, settings).await?;
            let planned = match sound {
                true => engine::check::models(&world).await?,
                false => nothing(),
            };
            Ok((complaints, planned))
        }
        StateStore::Sqlite(_) | StateStore::DynamoDb { .. } => Ok((Vec::new(), nothing())),
    }
}
