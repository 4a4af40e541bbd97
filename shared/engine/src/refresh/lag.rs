//! Lag: how old the oldest data is that a model could read and has not.

use domain::{TableName, Timestamp, items};
use ports::{
    Result, State,
    state::{Item, Span},
};

use super::job::Input;
use crate::World;

/// Commits of a model looked at for the oldest origin. Origins rise with commits but for what several inputs mix up.
const COMMITS_MAX: usize = 100;

/// When the oldest data arrived that lies between what was consumed and what will be; none when nothing does.
///
/// # Errors
/// What the store answers.
pub(crate) async fn origin(world: &World, inputs: &[Input]) -> Result<Option<Timestamp>> {
    let mut oldest = None;
    for input in inputs.iter().filter(|input| input.is_behind()) {
        let seen = match input.landing {
            true => (world.tables).arrived(&input.table, input.consumed.sequence),
            false => None,
        };
        let found = match seen {
            Some(at) => Some(at),
            None => of_input(&*world.state, input).await?,
        };
        oldest = [oldest, found].into_iter().flatten().min();
    }
    Ok(oldest)
}

/// The same of one input, whether it is behind or not.
///
/// # Errors
/// What the store answers.
pub(crate) async fn of_input(state: &dyn State, input: &Input) -> Result<Option<Timestamp>> {
    let span = unread(&input.table, input);
    let page = state.query(&span).await?;
    page.iter()
        .try_fold(None, |oldest: Option<Timestamp>, item| {
            let origin = arrived(item, input.landing)?;
            Ok(Some(oldest.map_or(origin, |oldest| oldest.min(origin))))
        })
}

/// The commits of an input that have not been read.
fn unread(table: &TableName, input: &Input) -> Span {
    let (from, until, limit) = if input.landing {
        let first = input.consumed.sequence.saturating_add(1);
        // The advance that holds the last sequence may end after it.
        (items::advance(first), items::advance(u64::MAX), 1)
    } else {
        let first = input.consumed.commits.saturating_add(1);
        (
            items::commit(first),
            items::commit(input.to.commits.saturating_add(1)),
            COMMITS_MAX,
        )
    };
    Span {
        partition: items::table(table),
        from,
        until: Some(until),
        reverse: false,
        limit,
    }
}

/// When the data of a commit arrived. Landing commits may hold rows behind their header.
fn arrived(item: &Item, landing: bool) -> Result<Timestamp> {
    let advance: items::Advance = if landing {
        item.unpack()?.0
    } else {
        item.decode()?
    };
    Ok(advance.origin_at)
}
