//! Kind `delivery`: commits are numbered from 1; their announcements arrive in any order, and more than once.

use anyhow::{Context, Result};
use ports::queue::Announcement;
use tests::{
    case::{Live, Step},
    rows,
    world::{Adapter, table},
};

use super::live::Replay;

pub(super) async fn replay(case: &Live, adapter: Adapter) -> Result<()> {
    let replay = Replay::start(case, adapter).await?;
    let mut announcements = Vec::new();
    for step in &case.steps {
        match step {
            Step::Land {
                table: name, rows, ..
            } => {
                let done = replay.append(name, rows).await?;
                announcements.push(Announcement {
                    table: table(name)?,
                    position: done.position,
                });
            }
            Step::Deliver { advances } => {
                for number in advances {
                    let announcement = announcements
                        .get(number.wrapping_sub(1))
                        .context("no such commit")?;
                    deliver(&replay, announcement).await?;
                }
            }
            other => replay
                .expect(other)
                .await
                .with_context(|| format!("{other:?}"))?,
        }
    }
    Ok(())
}

/// One delivery wakes one cycle.
async fn deliver(replay: &Replay, announcement: &Announcement) -> Result<()> {
    let queue = &replay.lab.world.queue;
    queue
        .send(std::slice::from_ref(announcement))
        .await
        .map_err(|e| rows::chain(&e))?;
    queue.receive().await.map_err(|e| rows::chain(&e))?;
    replay.cycle(&std::collections::BTreeMap::new()).await
}
