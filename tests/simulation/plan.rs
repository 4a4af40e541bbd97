//! What one seed is about: drawn once, before anything runs.

use domain::{Duration, LiveSettings, Maintenance};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    broken::Broken,
    models::{KEYED, PROJECTS, Shape},
    scheduler::Rates,
};

/// Who runs cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Functions: steps, orders, a schedule.
    Functions,
    /// A runner in one process or two.
    Embedded,
    /// Both on one lake.
    Mixed,
}

/// One seed's world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
    /// Whether a schedule takes the steps that lost messages would have caused.
    pub(crate) schedule: bool,
    pub(crate) project: &'static [Shape],
    pub(crate) rates: Rates,
    /// Whether the real query engine runs the queries.
    pub(crate) real: bool,
    pub(crate) servers: usize,
    pub(crate) coalescers: usize,
    pub(crate) refreshers: usize,
    pub(crate) clients: usize,
    pub(crate) requests: usize,
    /// Longest a client thinks.
    pub(crate) pause: Duration,
    pub(crate) controls: usize,
    pub(crate) batches: usize,
    pub(crate) skew: bool,
    /// Whether maintenance makes no pauses.
    pub(crate) eager: bool,
    /// Chance of a message, or a request, coming again.
    pub(crate) again: f64,
    pub(crate) late: Duration,
    pub(crate) compare: f64,
    /// Whether everything is tidied up at the end, and looked at again.
    pub(crate) tidy: bool,
    pub(crate) live: LiveSettings,
    pub(crate) broken: Option<Broken>,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn draw(seed: u64, broken: Option<Broken>) -> Self {
        let mut dice = StdRng::seed_from_u64(seed ^ 0x9e37_79b9_7f4a_7c15);
        let mode = match dice.random_range(0..10) {
            0..6 => Mode::Functions,
            6..9 => Mode::Embedded,
            _ => Mode::Mixed,
        };
        let deaf = broken == Some(Broken::LostWakeUp);
        let mode = if deaf { Mode::Functions } else { mode };
        let schedule = mode != Mode::Functions || !deaf && dice.random_bool(0.75);
        let rough = [0.0, 0.3, 0.3, 1.0, 1.0, 2.0][dice.random_range(0..6)];
        let rates = Rates {
            lost: 0.004 * rough,
            unknown: 0.005 * rough,
            conflict: 0.015 * rough,
            die: 0.006 * rough,
            jump: 0.0005 * rough,
            creep: 0.06,
            unsent: schedule,
        };
        let long = dice.random_bool(0.05);
        let real = broken.is_none() && seed % 20 == 7;
        let drawn = PROJECTS[dice.random_range(0..PROJECTS.len())];
        let project = match real && seed % 40 == 7 {
            true => KEYED[usize::from(seed % 80 == 7)],
            false => drawn,
        };
        Self {
            seed,
            mode,
            schedule,
            project,
            rates,
            real,
            servers: dice.random_range(1..3),
            coalescers: dice.random_range(1..3),
            refreshers: dice.random_range(1..4),
            clients: dice.random_range(1..4),
            requests: if long { 60 } else { dice.random_range(4..14) },
            pause: Duration::from_millis([300, 1_000, 4_000][dice.random_range(0..3)]),
            controls: dice.random_range(0..4),
            // A run that does not hear of its own commit announces nothing, which only a schedule makes up for.
            batches: [0, 0, 1, 1, 2][dice.random_range(0..5)] * usize::from(schedule),
            skew: dice.random_bool(0.5),
            eager: dice.random_bool(0.1),
            again: if rough > 0.0 { 0.08 } else { 0.0 },
            late: Duration::from_millis(if rough > 0.0 { 1_500 } else { 50 }),
            compare: 0.35,
            tidy: dice.random_bool(0.3),
            live: live(),
            broken,
        }
    }

    /// A plan without any weather: many requests, one after the other, about one per millisecond.
    pub(crate) fn burst(mode: Mode, requests: usize) -> Self {
        Self {
            mode,
            schedule: true,
            project: PROJECTS[0],
            rates: Rates::default(),
            servers: 1,
            clients: 1,
            requests,
            pause: Duration::from_millis(2),
            controls: 0,
            batches: 0,
            skew: false,
            eager: false,
            again: 0.0,
            late: Duration::from_millis(5),
            compare: 0.1,
            tidy: false,
            ..Self::draw(0, None)
        }
    }
}

/// A plan without any weather, for histories of their own.
pub(crate) fn still(seed: u64, mode: Mode) -> Plan {
    Plan {
        rates: Rates::default(),
        skew: false,
        again: 0.0,
        late: Duration::from_millis(5),
        real: false,
        ..Plan {
            mode,
            ..Plan::draw(seed, None)
        }
    }
}

/// Settings of all simulated projects: defaults, but for times that would make histories long.
fn live() -> LiveSettings {
    LiveSettings {
        backoff_base: Duration::from_secs(1),
        backoff_max: Duration::from_secs(4),
        maintenance: Maintenance {
            enabled: true,
            interval: Duration::from_secs(3),
            budget: Duration::from_secs(60),
            fold_after: Duration::from_secs(2),
            retention: Duration::from_secs(10),
            grace: Duration::from_secs(150),
            orphans: Duration::from_secs(300),
            idempotency: Duration::from_secs(7 * 86_400),
        },
        ..LiveSettings::default()
    }
}
