//! The live feed: events numbered from 1, the last thousand remembered.

use std::collections::VecDeque;

use tokio::sync::broadcast;

use super::{Event, Numbered};

/// Events remembered, for those who resume.
const REMEMBERED_MAX: usize = 1_000;

/// The feed of one process.
#[derive(Debug)]
pub(super) struct Feed {
    remembered: VecDeque<Numbered>,
    last: u64,
    sender: broadcast::Sender<Numbered>,
}

impl Feed {
    /// A feed without events.
    pub(super) fn new() -> Self {
        let (sender, _) = broadcast::channel(REMEMBERED_MAX);
        Self {
            remembered: VecDeque::new(),
            last: 0,
            sender,
        }
    }

    /// Numbers an event, remembers it, and hands it to all who listen.
    pub(super) fn record(&mut self, event: Event) {
        self.last += 1;
        let numbered = Numbered {
            id: self.last,
            event,
        };
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(numbered.clone());
        // Nobody may be listening.
        let _ = self.sender.send(numbered);
    }

    /// Remembered events after a number, and those to come: none is missed or told twice.
    pub(super) fn after(&self, after: u64) -> (Vec<Numbered>, broadcast::Receiver<Numbered>) {
        let remembered = self
            .remembered
            .iter()
            .filter(|event| event.id > after)
            .cloned();
        (remembered.collect(), self.sender.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event::CycleStarted {
            number,
            at: String::new(),
        }
    }

    #[test]
    fn the_last_thousand_events_are_remembered_in_order() {
        let mut feed = Feed::new();
        (1..=1_200).for_each(|number| feed.record(event(number)));
        let (all, _) = feed.after(0);
        assert_eq!((all.len(), all[0].id, all[999].id), (1_000, 201, 1_200));
        let (some, mut rest) = feed.after(1_198);
        assert_eq!(
            some.iter().map(|event| event.id).collect::<Vec<_>>(),
            [1_199, 1_200]
        );
        feed.record(event(1_201));
        assert_eq!(rest.try_recv().map(|event| event.id), Ok(1_201));
    }
}
