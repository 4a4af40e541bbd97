//! `headwater quarantine`: rows that broke a model, listed, shown, put through it again, or dropped.

use domain::TableName;
use engine::quarantine::{self, Listing, Replayed, Row};

use super::{Context, named, print_json};
use crate::{
    cli::Quarantine,
    failure::Failure,
    screen::{counted, moment, number, say, table, text},
    world,
};

/// Does what was asked.
pub(super) async fn quarantine(context: &Context, what: Quarantine) -> Result<(), Failure> {
    let settings = context.settings()?;
    let world = match what {
        Quarantine::Replay { .. } => world::open_sound(&settings)?,
        _ => world::open_any(&settings)?,
    };
    match what {
        Quarantine::List { model } => {
            let model = model.as_deref().map(named).transpose()?;
            let listing = quarantine::list(&world, model.as_ref()).await?;
            match context.json {
                true => print_json(&listing),
                false => show_list(&listing, model.as_ref()),
            }
        }
        Quarantine::Show { model, id } => {
            let row = quarantine::show(&world, &named(&model)?, id).await?;
            match context.json {
                true => print_json(&row),
                false => show_row(&row),
            }
        }
        Quarantine::Replay { model, ids } => {
            let done = quarantine::replay(&world, &named(&model)?, meant(&ids)).await?;
            show_replay(context, &done, &ids)
        }
        Quarantine::Drop { model, ids } => {
            let done = quarantine::drop_rows(&world, &named(&model)?, meant(&ids)).await?;
            if context.json {
                return print_json(&done);
            }
            let rows = counted(done.dropped, "row");
            Ok(say(&format!(
                "{}: {rows} dropped, {} left",
                done.model, done.left
            ))?)
        }
    }
}

/// The rows of a command line: naming none means all.
fn meant(ids: &[u64]) -> Option<&[u64]> {
    (!ids.is_empty()).then_some(ids)
}

fn show_list(listing: &Listing, asked: Option<&TableName>) -> Result<(), Failure> {
    let held = listing.models.iter().filter(|held| !held.rows.is_empty());
    let mut any = false;
    for held in held {
        any = true;
        let rows = counted(held.rows.len() as u64, "row");
        say(&format!("{}: {rows} in quarantine", held.model))?;
        show_rows(&held.rows)?;
    }
    if !any {
        let who = match asked {
            Some(model) => format!("{model} has no rows"),
            None => "no model has rows".to_owned(),
        };
        say(&format!("{who} in quarantine that a replay could put in"))?;
    }
    if listing.tables.is_empty() {
        return Ok(());
    }
    let mut kept = table(&["all that was ever quarantined", ">rows"]);
    for one in &listing.tables {
        kept.add_row(vec![text(&one.table), number(one.rows)]);
    }
    say(&kept.to_string())?;
    // Events without a sequence, and those that did not fit their source, are nowhere else.
    for one in &listing.tables {
        say(&format!(
            "why, and the events: headwater query \"SELECT reason, payload FROM {}\"",
            one.table
        ))?;
    }
    Ok(())
}

/// Shows what a replay did; fails when it was to put rows in and put in none.
fn show_replay(context: &Context, done: &Replayed, ids: &[u64]) -> Result<(), Failure> {
    let is_meant = |row: &&Row| ids.is_empty() || ids.contains(&row.id);
    let still = done.left.iter().filter(is_meant).count() as u64;
    let none = done.replayed == 0 && still > 0;
    if context.json {
        print_json(done)?;
        return match none {
            true => Err(Failure::shown()),
            false => Ok(()),
        };
    }
    let how = match done.rebuilt {
        true => " (built anew)",
        false => "",
    };
    let model = &done.model;
    let (rows, added) = (counted(done.replayed, "row"), counted(done.added, "row"));
    say(&format!(
        "{model}: {rows} out of quarantine, {added} added{how}"
    ))?;
    if !done.left.is_empty() {
        show_rows(&done.left)?;
    }
    if let Some(first) = done.dropped.first() {
        let rows = counted(done.dropped.len() as u64, "row");
        say(&format!(
            "{rows} of those named stay dropped, as quarantine holds no more at once: name those from {first} on again"
        ))?;
    }
    if none {
        let rows = counted(still, "row");
        return Err(Failure::project(format!(
            "nothing left the quarantine of {model}: {rows} would break it still, for the reasons above; mend the model, or drop \
             what nobody wants with `headwater quarantine drop {model}`"
        )));
    }
    Ok(())
}

fn show_rows(rows: &[Row]) -> Result<(), Failure> {
    let mut shown = table(&[">id", "input", "since", "reason"]);
    for row in rows {
        shown.add_row(vec![
            number(row.id),
            text(&row.input),
            text(moment(&row.at)),
            text(&row.reason),
        ]);
    }
    Ok(say(&shown.to_string())?)
}

fn show_row(row: &Row) -> Result<(), Failure> {
    say(&format!(
        "{} of {}, since {}",
        row.id,
        row.input,
        moment(&row.at)
    ))?;
    say(&row.reason)?;
    Ok(say(row.row.as_deref().unwrap_or("(the row is gone)"))?)
}
