//! A state store that goes wrong as planned.

use std::sync::Arc;

use async_trait::async_trait;
use ports::{
    Error, Kind, Result, State,
    state::{Item, Key, Outcome, Span, Write, validate},
};

use super::{Fault, Faults, Operation};

/// A state store under a plan of faults.
#[derive(Debug)]
pub struct FaultyState {
    inner: Arc<dyn State>,
    faults: Arc<Faults>,
}

impl FaultyState {
    /// Puts a store under a plan.
    #[must_use]
    pub fn new(inner: Arc<dyn State>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

fn error(fault: Fault) -> Error {
    let because = match fault {
        Fault::DiskFull => "the disk is full",
        Fault::Before | Fault::After | Fault::Conflict => "no answer (injected fault)",
    };
    Error::new(Kind::Unavailable, "reach state", "faulty").because(because)
}

#[async_trait]
impl State for FaultyState {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Item>>> {
        self.faults
            .call(Operation::Get, error, self.inner.get_many(keys))
            .await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        self.faults
            .call(Operation::Query, error, self.inner.query(span))
            .await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        // A caller's mistake stays a mistake, whatever the weather.
        validate(&writes)?;
        let turn = self.faults.enter(Operation::Transact).await;
        if turn.fault == Some(Fault::Conflict) {
            return Ok(Outcome::Conflict(Vec::new()));
        }
        self.faults
            .finish(turn, error, self.inner.transact(writes))
            .await
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        self.inner.change_counter().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use ports::state::Expect;

    use super::*;
    use crate::{MemoryState, Rates};

    fn put(value: u32) -> Vec<Write> {
        vec![Write::put(Key::new("p", "s"), &value, Expect::Any)]
    }

    fn faulty() -> (Arc<MemoryState>, Arc<Faults>, FaultyState) {
        let (memory, faults) = (Arc::new(MemoryState::new()), Arc::new(Faults::none()));
        let state = FaultyState::new(memory.clone(), faults.clone());
        (memory, faults, state)
    }

    #[tokio::test]
    async fn a_store_without_faults_keeps_the_contract() {
        let (_, _, state) = faulty();
        crate::contract::state(Arc::new(state)).await;
    }

    #[tokio::test]
    async fn an_injected_fault_hits_the_call_it_was_meant_for() {
        let (memory, faults, state) = faulty();
        faults.inject(Operation::Transact, 1, Fault::Before);
        faults.inject(Operation::Transact, 2, Fault::After);
        faults.inject(Operation::Transact, 3, Fault::Conflict);
        assert!(
            state
                .transact(put(1))
                .await
                .expect("no fault yet")
                .is_committed()
        );
        let before = state.transact(put(2)).await.expect_err("injected before");
        assert_eq!(before.kind, Kind::Unavailable);
        assert_eq!(memory.items()[0].decode::<u32>().expect("number"), 1);
        state.transact(put(3)).await.expect_err("injected after");
        assert_eq!(memory.items()[0].decode::<u32>().expect("number"), 3);
        let conflict = state.transact(put(4)).await.expect("an answer");
        assert_eq!(conflict, Outcome::Conflict(Vec::new()));
        assert!(state.transact(put(5)).await.expect("over").is_committed());
        assert_eq!(faults.calls_of(Operation::Transact), 5);
    }

    #[tokio::test]
    async fn nothing_happens_after_a_crash() {
        let (memory, faults, state) = faulty();
        faults.crash_after(1);
        let work = async {
            let _ = state.transact(put(1)).await;
            let _ = state.transact(put(2)).await;
        };
        assert_eq!(faults.until_crash(work).await, None);
        assert!(faults.has_crashed());
        assert!(
            state.get(&Key::new("p", "s")).now_or_never().is_none(),
            "the dead do not answer"
        );
        assert_eq!(memory.items()[0].decode::<u32>().expect("number"), 1);
        faults.restart();
        assert!(
            state
                .transact(put(3))
                .await
                .expect("a new process")
                .is_committed()
        );
    }

    #[tokio::test]
    async fn a_crash_after_the_effect_leaves_the_effect() {
        let (memory, faults, state) = faulty();
        faults.crash_after_effect(0);
        assert!(faults.until_crash(state.transact(put(1))).await.is_none());
        assert_eq!(memory.items().len(), 1);
    }

    #[tokio::test]
    async fn the_same_seed_makes_the_same_weather() {
        async fn weather(seed: u64) -> Vec<Option<bool>> {
            let rates = Rates {
                conflict: 0.2,
                before: 0.2,
                after: 0.1,
                disk_full: 0.1,
            };
            let faults = Arc::new(Faults::seeded(seed, rates));
            let state = FaultyState::new(Arc::new(MemoryState::new()), faults);
            let mut answers = Vec::new();
            for value in 0..50 {
                answers.push(
                    state
                        .transact(put(value))
                        .await
                        .ok()
                        .map(|o| o.is_committed()),
                );
            }
            answers
        }
        let once = weather(3).await;
        assert_eq!(once, weather(3).await);
        assert!(once.contains(&None) && once.contains(&Some(false)) && once.contains(&Some(true)));
    }
}
