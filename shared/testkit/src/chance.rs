//! Chance that a seed decides.

use std::sync::Mutex;

use domain::Timestamp;
use ports::Chance;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::lock::lock;

/// Ids and numbers that are the same for the same seed and the same order of calls.
#[derive(Debug)]
pub struct SeededChance {
    numbers: Mutex<StdRng>,
}

impl SeededChance {
    /// Chance from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            numbers: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }
}

impl Default for SeededChance {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Chance for SeededChance {
    fn id(&self, now: Timestamp) -> String {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let random: [u8; 10] = lock(&self.numbers).random();
        uuid::Builder::from_unix_timestamp_millis(millis, &random)
            .into_uuid()
            .to_string()
    }

    fn fraction(&self) -> f64 {
        lock(&self.numbers).random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids_and_numbers() {
        let draw = |seed| {
            let chance = SeededChance::new(seed);
            (
                chance.id(Timestamp(1_000)),
                chance.fraction().to_bits(),
                chance.id(Timestamp(1_000)),
            )
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn seeded_chance_keeps_the_contract() {
        crate::contract::chance(&SeededChance::new(1));
    }
}
