//! Those outside: they send events, hear an answer or none, and send again. What they were told is held against what is
//! stored (**S-2**, **Q-1**).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{Duration, TableName};
use engine::{
    World,
    ingest::{self, Accepted, Format, Request},
};
use ports::{Clock as _, Kind};
use rand::{Rng, rngs::StdRng, seq::SliceRandom};

use crate::{
    book::Book,
    models::{self, Feeder},
    scheduler::{Life, Scheduler},
};

/// Attempts at one request.
const ATTEMPTS_MAX: u32 = 12;

/// One request that somebody wants to make.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    feeder: Feeder,
    body: String,
    key: Option<String>,
    /// Numbers of its events that fit, in order.
    events: Vec<u64>,
    /// Numbers of those that do not, and go to the quarantine.
    misfits: Vec<u64>,
    /// Whether it is one that has to be refused.
    bad: bool,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    wanted: Wanted,
    answers: Vec<Accepted>,
    unknown: usize,
    refused: bool,
}

/// Where a process that takes requests is found while it lives.
#[derive(Debug, Default)]
pub(crate) struct Door {
    open: Mutex<Option<(World, Arc<Life>)>>,
}

impl Door {
    pub(crate) fn open(&self, world: World, life: Arc<Life>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some((world, life));
    }

    fn enter(&self) -> Option<(World, Arc<Life>)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().filter(|(_, life)| !life.is_dead())
    }
}

/// What clients will send: each a list of requests.
pub(crate) fn scripts(
    dice: &mut StdRng,
    feeders: &[Feeder],
    clients: usize,
    requests: usize,
) -> Vec<Vec<Wanted>> {
    let mut numbers = 0;
    let mut changes = Changes::new(dice, requests * 2);
    let mut scripts = vec![Vec::new(); clients];
    for number in 0..requests {
        let feeder = feeders[dice.random_range(0..feeders.len())];
        let mut wanted = match feeder {
            Feeder::Users => changes.request(dice, &mut numbers),
            feeder => orders(dice, feeder, &mut numbers),
        };
        if dice.random_bool(0.6) {
            wanted.key = Some(format!("key-{number}"));
        }
        if dice.random_bool(0.03) {
            wanted.bad = true;
            wanted.body.push_str("\n{\"event\": ");
        }
        scripts[dice.random_range(0..clients)].push(wanted);
    }
    scripts
}

fn orders(dice: &mut StdRng, feeder: Feeder, numbers: &mut u64) -> Wanted {
    let mut wanted = Wanted::empty(feeder);
    for _ in 0..dice.random_range(1..4) {
        *numbers += 1;
        let (item, grp) = (dice.random_range(1..6), dice.random_range(1..4));
        let amt = dice.random_range(1..100);
        if dice.random_bool(0.04) {
            wanted.misfits.push(*numbers);
            wanted.line(&format!("{{\"item\":\"x\",\"event\":{numbers}}}"));
        } else {
            wanted.events.push(*numbers);
            wanted.line(&row(item, grp, amt, *numbers));
        }
    }
    wanted
}

fn row(item: i64, grp: i64, amt: i64, event: u64) -> String {
    format!("{{\"item\":{item},\"grp\":{grp},\"amt\":{amt},\"event\":{event}}}")
}

impl Wanted {
    fn empty(feeder: Feeder) -> Self {
        Self {
            feeder,
            body: String::new(),
            key: None,
            events: Vec::new(),
            misfits: Vec::new(),
            bad: false,
        }
    }

    fn line(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }
}

/// Changes of a table of users, as its database logged them, delivered in another order and some twice.
struct Changes {
    log: Vec<(&'static str, i64, i64, i64, i64)>,
    next: usize,
}

impl Changes {
    fn new(dice: &mut StdRng, count: usize) -> Self {
        let mut rows: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut log = Vec::new();
        for lsn in (10..).step_by(10).take(count) {
            let item = dice.random_range(1..5);
            let new = (dice.random_range(1..4), dice.random_range(1..100));
            let (op, (grp, amt)) = match rows.get(&item).copied() {
                None => ("I", new),
                Some(old) if dice.random_bool(0.4) => ("D", old),
                Some(_) => ("U", new),
            };
            match op {
                "D" => drop(rows.remove(&item)),
                _ => drop(rows.insert(item, (grp, amt))),
            }
            log.push((op, lsn, item, grp, amt));
        }
        for window in log.chunks_mut(6) {
            window.shuffle(dice);
        }
        Self { log, next: 0 }
    }

    fn request(&mut self, dice: &mut StdRng, numbers: &mut u64) -> Wanted {
        let mut wanted = Wanted::empty(Feeder::Users);
        for _ in 0..dice.random_range(1..4) {
            let again = self.next > 0 && dice.random_bool(0.2);
            let at = if again {
                dice.random_range(0..self.next)
            } else {
                self.next = (self.next + 1).min(self.log.len());
                self.next - 1
            };
            let (op, lsn, item, grp, amt) = self.log[at];
            *numbers += 1;
            wanted.events.push(*numbers);
            let payload = row(item, grp, amt, *numbers);
            wanted.line(&format!(
                "{{\"op\":\"{op}\",\"lsn\":{lsn},\"payload\":{payload}}}"
            ));
        }
        wanted
    }
}

/// Sends a script; what became of each request.
pub(crate) async fn send(
    scheduler: Arc<Scheduler>,
    doors: Vec<Arc<Door>>,
    script: Vec<Wanted>,
    pause: Duration,
    again: f64,
) -> Vec<Told> {
    let mut told = Vec::new();
    for wanted in script {
        nap(&scheduler, pause).await;
        let mut result = Told {
            wanted,
            answers: Vec::new(),
            unknown: 0,
            refused: false,
        };
        for _ in 0..ATTEMPTS_MAX {
            let twice = result.wanted.key.is_some() && scheduler.chance(again);
            let ended = if twice {
                let both = futures::join!(
                    attempt(&scheduler, &doors, &result.wanted),
                    attempt(&scheduler, &doors, &result.wanted)
                );
                vec![both.0, both.1]
            } else {
                vec![attempt(&scheduler, &doors, &result.wanted).await]
            };
            for ended in ended {
                match ended {
                    Attempt::Accepted(answer) => result.answers.push(answer),
                    Attempt::Refused => result.refused = true,
                    Attempt::Unknown => result.unknown += 1,
                    Attempt::Nobody => {}
                }
            }
            // Some hear the answer and send again all the same; some give up.
            let over = result.refused || !result.answers.is_empty() && !scheduler.chance(again);
            let gone = result.unknown > 0 && result.wanted.key.is_none() && scheduler.chance(0.5);
            if over || gone {
                break;
            }
            nap(&scheduler, Duration::from_secs(2)).await;
        }
        told.push(result);
    }
    told
}

async fn nap(scheduler: &Scheduler, longest: Duration) {
    let longest = u64::try_from(longest.as_micros()).unwrap_or(0);
    let nap = scheduler.draw(|dice| dice.random_range(0..=longest));
    let until = scheduler.clock.now() + Duration::from_micros(nap);
    scheduler.clock.sleep_until(until).await;
}

enum Attempt {
    Accepted(Accepted),
    Refused,
    Unknown,
    /// Nobody was there to take it.
    Nobody,
}

async fn attempt(scheduler: &Scheduler, doors: &[Arc<Door>], wanted: &Wanted) -> Attempt {
    let door = scheduler.draw(|dice| dice.random_range(0..doors.len()));
    let Some((world, life)) = doors[door].enter() else {
        return Attempt::Nobody;
    };
    match life.until_death(handle(&world, wanted)).await {
        None => Attempt::Unknown,
        Some(Ok(accepted)) => Attempt::Accepted(accepted),
        Some(Err(Kind::Invalid | Kind::TooLarge | Kind::NotFound)) => Attempt::Refused,
        Some(Err(Kind::Conflict | Kind::Unavailable | Kind::Corrupt)) => Attempt::Unknown,
    }
}

async fn handle(world: &World, wanted: &Wanted) -> Result<Accepted, Kind> {
    let request = Request {
        source: wanted.feeder.source().to_owned(),
        body: wanted.body.clone().into(),
        format: Format::Ndjson,
        key: wanted.key.clone(),
        headers: Vec::new(),
    };
    let settings = models::settings();
    match wanted.feeder {
        Feeder::Users => match ingest::cdc(world, &settings, request).await {
            Ok(taken) => Ok(taken.accepted),
            Err(ingest::Refused::Envelope(_)) => Err(Kind::Invalid),
            Err(ingest::Refused::Port(error)) => Err(error.kind),
        },
        Feeder::Orders | Feeder::Refunds => ingest::webhook(world, &settings, request)
            .await
            .map_err(|error| error.kind),
    }
}

/// Holds what was answered against what is stored.
///
/// # Errors
/// What was acknowledged and is missing, was refused and is there, or is there too often.
pub(crate) fn check(told: &[Told], book: &Book) -> Result<(), String> {
    let mut counts: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for (table, rows) in &book.landed {
        for row in rows {
            *counts.entry((table.to_string(), row.event)).or_default() += 1;
        }
    }
    for told in told {
        let table = told.wanted.feeder.table();
        for event in &told.wanted.events {
            told.check(*event, counts.remove(&(table.clone(), *event)).unwrap_or(0))?;
        }
        let quarantine = format!("quarantine.{}", told.wanted.feeder.source());
        for event in &told.wanted.misfits {
            told.check(
                *event,
                counts.remove(&(quarantine.clone(), *event)).unwrap_or(0),
            )?;
        }
        told.ranges(&table, book)?;
    }
    match counts.keys().next() {
        Some((table, event)) => Err(format!("Q-1: nobody sent event {event} of {table}")),
        None => Ok(()),
    }
}

impl Told {
    fn check(&self, event: u64, count: usize) -> Result<(), String> {
        let answers = self.answers.len();
        let (least, most) = match (self.wanted.bad, &self.wanted.key) {
            (true, _) => (0, 0),
            (false, Some(_)) => (answers.min(1), 1),
            (false, None) => (answers, answers + self.unknown),
        };
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(format!(
            "S-2: event {event} is stored {count} times, not {least} to {most}: {self:?}"
        ))
    }

    /// Every range that was answered with holds exactly the request's events.
    fn ranges(&self, table: &str, book: &Book) -> Result<(), String> {
        let table: TableName = table.parse().map_err(|error| format!("{error}"))?;
        let rows = book.landed.get(&table).map_or(&[][..], Vec::as_slice);
        for answer in &self.answers {
            if self.wanted.events.is_empty() {
                continue;
            }
            let first = usize::try_from(answer.sequence_from).unwrap_or(0);
            let last = usize::try_from(answer.sequence_to).unwrap_or(0);
            let found: Vec<u64> = rows
                .get(first.wrapping_sub(1)..last)
                .map(|rows| rows.iter().map(|row| row.event).collect())
                .unwrap_or_default();
            if found != self.wanted.events {
                return Err(format!(
                    "S-1: {table} holds events {found:?} at the range answered: {self:?}"
                ));
            }
        }
        Ok(())
    }
}
