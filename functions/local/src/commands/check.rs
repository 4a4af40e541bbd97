//! `headwater check`: whether everything is as fresh as promised, with an exit code for schedulers.

use domain::Severity;
use engine::{
    freshness::{self, Judged},
    status,
};
use serde_json::json;

use super::{Context, print_json};
use crate::{
    failure::Failure,
    project, remarks,
    screen::{counted, say},
    world,
};

/// Judges models and sources; fails when any is not as fresh as promised.
pub(super) async fn check(context: &Context) -> Result<(), Failure> {
    let settings = context.settings()?;
    let world = world::open_any(&settings)?;
    let judged = freshness::check(&world).await?;
    let stale = judged.iter().filter(|judged| !judged.ok).count();
    // A model that cannot be read is refreshed by nobody, however well the others do.
    let (_, findings) = project::load(&settings.project)?;
    let broken: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(project::line)
        .collect();
    let status = status::status(&world, None).await?;
    let told = remarks::of_status(&status).into_iter();
    let warnings: Vec<String> = told.filter(|line| line.starts_with("warning")).collect();
    if context.json {
        let ok = stale == 0 && broken.is_empty();
        print_json(
            &json!({ "ok": ok, "checked": judged, "errors": broken, "warnings": warnings }),
        )?;
    } else {
        for error in &broken {
            say(&format!("error  {error}"))?;
        }
        for one in &judged {
            say(&line(one))?;
        }
        for warning in &warnings {
            say(warning)?;
        }
        say(&format!(
            "{} checked, {stale} not as promised",
            counted(judged.len() as u64, "promise")
        ))?;
    }
    match stale == 0 && broken.is_empty() {
        true => Ok(()),
        false => Err(Failure::shown()),
    }
}

fn line(judged: &Judged) -> String {
    let word = if judged.ok { "ok   " } else { "stale" };
    let seconds = match judged.seconds {
        Some(seconds) => format!("{seconds:.1} s"),
        None => "never".to_owned(),
    };
    let why = judged
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!(": {why}"));
    format!(
        "{word}  {} {} ({seconds} of {:.0} s){why}",
        judged.kind, judged.subject, judged.limit_seconds
    )
}
