//! `headwater quarantine`: rows that broke a model, listed, shown, put through it again, or dropped.

use engine::quarantine::{self, Listing, Row};

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
                false => show_list(&listing),
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
            if context.json {
                return print_json(&done);
            }
            let how = match done.rebuilt {
                true => " (built anew)",
                false => "",
            };
            let (rows, added) = (counted(done.replayed, "row"), counted(done.added, "row"));
            say(&format!(
                "{}: {rows} out of quarantine, {added} added{how}",
                done.model
            ))?;
            match done.left.is_empty() {
                true => Ok(()),
                false => show_rows(&done.left),
            }
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

fn show_list(listing: &Listing) -> Result<(), Failure> {
    let held = listing.models.iter().filter(|held| !held.rows.is_empty());
    let mut any = false;
    for held in held {
        any = true;
        let rows = counted(held.rows.len() as u64, "row");
        say(&format!("{}: {rows} in quarantine", held.model))?;
        show_rows(&held.rows)?;
    }
    if !any {
        say("no model has rows in quarantine")?;
    }
    if listing.tables.is_empty() {
        return Ok(());
    }
    let mut kept = table(&["all that was ever quarantined", ">rows"]);
    for one in &listing.tables {
        kept.add_row(vec![text(&one.table), number(one.rows)]);
    }
    Ok(say(&kept.to_string())?)
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
