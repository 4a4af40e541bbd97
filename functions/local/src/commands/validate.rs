//! `headwater validate`: what is wrong with settings and models, with places.

use domain::Severity;
use serde_json::{Value, json};
use settings::{Settings, StateStore};

use super::{Context, print_json};
use crate::{
    failure::Failure,
    project::{self, severity},
    screen::{counted, say},
    world,
};

/// Checks a project; fails when anything is an error.
pub(super) async fn validate(context: &Context) -> Result<(), Failure> {
    project::require(&context.project)?;
    let vars = std::env::vars_os().filter_map(super::text).collect();
    let (settings, complaints) = match Settings::load(&context.project, &vars) {
        Ok(settings) => (Some(settings), Vec::new()),
        Err(complaints) => (None, complaints),
    };
    let (loaded, mut findings) = project::load(&context.project)?;
    if let Some(settings) = settings
        && findings.iter().all(|f| f.severity != Severity::Error)
    {
        findings.extend(planned(&settings).await?);
    }
    let errors = complaints.len()
        + findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count();
    let warnings = findings.len() + complaints.len() - errors;
    if context.json {
        let settings = complaints
            .iter()
            .map(|c| json!({ "severity": "error", "code": "settings", "place": c.place, "message": c.message }));
        let models = findings.iter().map(|f| {
            json!({
                "severity": severity(f.severity), "code": f.code, "model": f.model, "message": f.message,
                "file": f.file, "line": f.line, "column": f.column,
            })
        });
        let all: Vec<Value> = settings.chain(models).collect();
        print_json(
            &json!({ "models": loaded.models.len(), "errors": errors, "warnings": warnings, "findings": all }),
        )?;
    } else {
        for complaint in &complaints {
            say(&format!(
                "{}: error: {} [settings]",
                complaint.place, complaint.message
            ))?;
        }
        for finding in &findings {
            say(&project::line(finding))?;
        }
        let counts = [
            counted(errors as u64, "error"),
            counted(warnings as u64, "warning"),
        ]
        .join(", ");
        say(&format!(
            "{}: {counts}",
            counted(loaded.models.len() as u64, "model")
        ))?;
    }
    if errors == 0 {
        Ok(())
    } else {
        Err(Failure::shown())
    }
}

/// What the query engine finds wrong with models over what has landed; nothing before anything has.
async fn planned(settings: &Settings) -> Result<Vec<domain::Finding>, Failure> {
    match &settings.state {
        StateStore::Sqlite(file) if file.exists() => {
            let world = world::open_sound(settings)?;
            Ok(engine::check::models(&world).await?)
        }
        StateStore::Sqlite(_) | StateStore::DynamoDb { .. } => Ok(Vec::new()),
    }
}
