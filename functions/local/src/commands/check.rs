//! `headwater check`: whether everything is as fresh as promised, with an exit code for schedulers.

use engine::freshness::{self, Judged};
use serde_json::json;

use super::{Context, print_json};
use crate::{
    failure::Failure,
    screen::{counted, say},
    world,
};

/// Judges models and sources; fails when any is not as fresh as promised.
pub(super) async fn check(context: &Context) -> Result<(), Failure> {
    let world = world::open_any(&context.settings()?)?;
    let judged = freshness::check(&world).await?;
    let stale = judged.iter().filter(|judged| !judged.ok).count();
    if context.json {
        print_json(&json!({ "ok": stale == 0, "checked": judged }))?;
    } else {
        for one in &judged {
            say(&line(one))?;
        }
        say(&format!(
            "{} checked, {stale} not as promised",
            counted(judged.len() as u64, "promise")
        ))?;
    }
    match stale {
        0 => Ok(()),
        _ => Err(Failure::shown()),
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
