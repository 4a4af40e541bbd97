//! Chance from the operating system.

use domain::Timestamp;
use ports::Chance;

/// Ids and numbers that nobody can foretell.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn id(&self, now: Timestamp) -> String {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let random: [u8; 10] = rand::random();
        uuid::Builder::from_unix_timestamp_millis(millis, &random)
            .into_uuid()
            .to_string()
    }

    fn fraction(&self) -> f64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_chance_keeps_the_contract() {
        testkit::contract::chance(&SystemChance);
    }
}
