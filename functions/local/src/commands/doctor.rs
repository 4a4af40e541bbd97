//! `headwater doctor`: has `infra/doctor.py` look at a deployment, and shows what it found.

use std::fmt::Write as _;

use comfy_table::Color;
use serde::Deserialize;

use super::{Context, print_json};
use crate::{
    cli::Target,
    failure::Failure,
    infra::{self, Infra},
    screen::{self, coloured, counted, say, text},
};

/// What was looked at, as `infra/doctor.py` tells it.
#[derive(Debug, Deserialize)]
struct Examined {
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    area: String,
    check: String,
    status: Status,
    found: String,
    /// What to do; empty when all is well.
    #[serde(rename = "do")]
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// Looks at a deployment; fails when anything fails there.
pub(super) fn doctor(context: &Context, target: &Target) -> Result<(), Failure> {
    let infra = Infra::find(target.infra.as_deref())?;
    let answer = infra.run("doctor.py", target, &[], |line| {
        let mut err = anstream::stderr().lock();
        Ok(std::io::Write::write_fmt(
            &mut err,
            format_args!("{line}\n"),
        )?)
    })?;
    let Examined { checks } = infra::read(&answer)?;
    let count = |status| checks.iter().filter(|check| check.status == status).count() as u64;
    let (warnings, failures) = (count(Status::Warn), count(Status::Fail));
    if context.json {
        print_json(&answer)?;
    } else {
        show(&checks)?;
        say(&format!(
            "{}: {}, {}",
            counted(checks.len() as u64, "check"),
            counted(failures, "failure"),
            counted(warnings, "warning"),
        ))?;
    }
    if failures == 0 {
        Ok(())
    } else {
        Err(Failure::shown())
    }
}

fn show(checks: &[Check]) -> Result<(), Failure> {
    let mut table = screen::table(&["", "what", "check", "found"]);
    let mut remedies = String::new();
    for check in checks {
        let (mark, colour) = match check.status {
            Status::Ok => ("ok", Color::Green),
            Status::Warn => ("warn", Color::Yellow),
            Status::Fail => ("fail", Color::Red),
        };
        table.add_row([
            coloured(mark, colour),
            text(&check.area),
            text(&check.check),
            text(&check.found),
        ]);
        if check.status != Status::Ok && !check.remedy.is_empty() {
            // Below the table, where there is room for sentences and commands to copy.
            let _ = writeln!(
                remedies,
                "{mark}: {}, {}: {}",
                check.area, check.check, check.remedy
            );
        }
    }
    say(&format!("{table}\n"))?;
    if !remedies.is_empty() {
        say(&format!("what to do\n{remedies}"))?;
    }
    Ok(())
}
