//! `headwater live lag` and `headwater live profile`: how old data was when it was applied, and what the rows are like.

use comfy_table::Color;
use domain::{Duration, TableName, lag::Summary};
use engine::{
    World,
    lags::{self, History, Stretch},
    profile::{self, Profile},
};

use super::{Context, print_json};
use crate::{
    failure::Failure,
    screen::{
        Table, coloured, counted, is_terminal, moment, number, right, say, span, table, text,
    },
};

/// What bars are made of, from the least to the greatest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bars beside a line, the last there are.
const BARS_MAX: usize = 32;

/// Shows the lag history of a model, or a line for each.
pub(super) async fn lag(
    context: &Context,
    world: &World,
    model: Option<&str>,
) -> Result<(), Failure> {
    if let Some(model) = model {
        let history = lags::history(world, &super::named(model)?).await?;
        if context.json {
            return print_json(&history);
        }
        return one(&history);
    }
    let mut all = Vec::new();
    for model in world.project.live() {
        all.push(lags::history(world, &model.name).await?);
    }
    if context.json {
        return print_json(&all);
    }
    match all.is_empty() {
        true => say("no live models")?,
        false => say(&each(&all).to_string())?,
    }
    Ok(())
}

/// A line for each model: the last hour, and the day as bars.
fn each(all: &[History]) -> Table {
    let is_drawn = is_terminal();
    let mut titles = vec!["model", ">refreshes", ">p50", ">p95", ">max", ">target"];
    titles.extend(is_drawn.then_some("last hour"));
    titles.push(">day p95");
    titles.extend(is_drawn.then_some("last day"));
    let mut table = table(&titles);
    for history in all {
        let target = history.target_seconds.map(Duration::from_secs_f64);
        let mut row = vec![text(&history.model)];
        row.extend(figures(history.hour));
        row.push(right(target.map(span).unwrap_or_default()));
        row.extend(is_drawn.then(|| text(bars(&history.minutes))));
        row.push(right(
            history
                .day
                .map(|day| millis(day.p95_ms))
                .unwrap_or_default(),
        ));
        row.extend(is_drawn.then(|| text(bars(&history.quarters))));
        table.add_row(row);
    }
    table
}

fn figures(lags: Option<Summary>) -> [comfy_table::Cell; 4] {
    let Some(Summary {
        count,
        p50_ms,
        p95_ms,
        max_ms,
    }) = lags
    else {
        return [number(0), text(""), text(""), text("")];
    };
    let [p50, p95, max] = [p50_ms, p95_ms, max_ms].map(|ms| right(millis(ms)));
    [number(count), p50, p95, max]
}

/// One model, interval by interval.
fn one(history: &History) -> Result<(), Failure> {
    let title = |what: &str, lags: Option<Summary>| match lags {
        None => format!("{what}: nothing was applied"),
        Some(lags) => format!(
            "{what}: applied {}, p50 {}, p95 {}, highest {}",
            counted(lags.count, "time"),
            millis(lags.p50_ms),
            millis(lags.p95_ms),
            millis(lags.max_ms)
        ),
    };
    say(&title("last hour", history.hour))?;
    if let Some(target) = history.target_seconds {
        say(&format!(
            "target_lag: {}",
            span(Duration::from_secs_f64(target))
        ))?;
    }
    stretches(&history.minutes)?;
    say(&title("last day", history.day))?;
    stretches(&history.quarters)
}

fn stretches(stretches: &[Stretch]) -> Result<(), Failure> {
    if stretches.is_empty() {
        return Ok(());
    }
    let mut titles = vec!["from", ">refreshes", ">p50", ">p95", ">max"];
    titles.extend(is_terminal().then_some("p95 as a bar"));
    let mut table = table(&titles);
    // Without a terminal bars are left out: they are for the eye.
    let shown = match is_terminal() {
        true => drawn(stretches.iter().map(|stretch| stretch.lags.p95_ms)),
        false => String::new(),
    };
    let mut shown = shown.chars();
    for stretch in stretches {
        let mut row = vec![text(moment(&stretch.start))];
        row.extend(figures(Some(stretch.lags)));
        row.extend(shown.next().map(|bar| coloured(bar, Color::Cyan)));
        table.add_row(row);
    }
    Ok(say(&table.to_string())?)
}

/// The 95th percentiles as bars against the highest of them.
fn bars(stretches: &[Stretch]) -> String {
    let from = stretches.len().saturating_sub(BARS_MAX);
    drawn(stretches[from..].iter().map(|stretch| stretch.lags.p95_ms))
}

fn drawn(values: impl Iterator<Item = u64> + Clone) -> String {
    let highest = values.clone().max().unwrap_or(0).max(1);
    let bar = |value: u64| {
        let step = u128::from(value) * 7 / u128::from(highest);
        BARS[usize::try_from(step).unwrap_or(7).min(7)]
    };
    values.map(bar).collect()
}

/// Shows what the columns of a model hold.
pub(super) async fn profile(
    context: &Context,
    world: &World,
    model: &TableName,
    now: bool,
) -> Result<(), Failure> {
    let found = match now {
        true => Some(profile::now(world, model).await?),
        false => profile::stored(world, model).await?,
    };
    if context.json {
        return print_json(&found);
    }
    let Some(found) = found else {
        return Ok(say(&format!(
            "{model} has not been profiled yet: `headwater live profile {model} --now` does it"
        ))?);
    };
    let how = match found.from_statistics {
        true => ", from the statistics of its files",
        false => "",
    };
    say(&format!(
        "{}, at {}{how}",
        counted(found.rows, "row"),
        moment(&found.at.to_string())
    ))?;
    say(&columns(&found).to_string())?;
    if found.left_out > 0 {
        say(&format!(
            "{} not shown",
            counted(found.left_out, "further column")
        ))?;
    }
    Ok(())
}

fn columns(profile: &Profile) -> Table {
    let mut table = table(&[
        "column",
        "type",
        ">NULL",
        "least",
        "greatest",
        ">distinct, about",
    ]);
    for column in &profile.columns {
        let nulls = column
            .null_fraction
            .map(|part| format!("{:.1} %", part * 100.0));
        let distinct = column.distinct.map_or_else(|| text(""), number);
        table.add_row(vec![
            text(&column.name),
            text(&column.kind),
            right(nulls.unwrap_or_default()),
            text(column.min.as_deref().unwrap_or_default()),
            text(column.max.as_deref().unwrap_or_default()),
            distinct,
        ]);
    }
    table
}

fn millis(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_rise_with_their_values() {
        assert_eq!(drawn([0, 50, 100].into_iter()), "▁▄█");
        assert_eq!(drawn([0, 0].into_iter()), "▁▁");
        assert_eq!(drawn(std::iter::empty::<u64>()), "");
        assert_eq!(drawn([u64::MAX].into_iter()), "█");
    }
}
