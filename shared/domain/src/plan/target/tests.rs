use std::collections::BTreeSet;

use super::*;
use crate::{
    Position,
    items::{Control, ModelState},
    plan::{Decision, Hold, decide},
};

/// A random layered project over landing.o, and everything the planner looks at; times in milliseconds.
struct World {
    project: Project,
    live: LiveSettings,
    now: Timestamp,
    heads: BTreeMap<TableName, Position>,
    consumed: BTreeMap<(TableName, TableName), Position>,
    states: BTreeMap<TableName, ModelState>,
    controls: BTreeMap<TableName, Control>,
    origins: BTreeMap<TableName, Timestamp>,
    targets: BTreeMap<TableName, Position>,
    attempted: BTreeSet<TableName>,
}

fn name(text: &str) -> TableName {
    text.parse().expect("a table name")
}

fn milli(n: i64) -> Timestamp {
    Timestamp(n * 1_000)
}

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

impl World {
    /// Models `(name, inputs, target)`, all built and one commit behind.
    fn new(models: &[(&str, &[&str], Option<u64>)]) -> Self {
        let files: Vec<(String, String)> = models
            .iter()
            .map(|(model, inputs, target)| {
                let target = target.map_or_else(String::new, |ms| format!(", target_lag={ms}ms"));
                let mut sql = format!("SELECT a0.id FROM {} AS a0", inputs[0]);
                for (n, input) in inputs.iter().enumerate().skip(1) {
                    sql.push_str(&format!(" JOIN {input} AS a{n} ON a0.id = a{n}.id"));
                }
                let text = format!(
                    "@config materialized=incremental, live=true, unique_key=id, incremental_filter=WHERE \
                     _seq > {{watermark:{}}}{target}\n{sql}",
                    inputs[0]
                );
                (format!("transform/{}.sql", model.replace('.', "/")), text)
            })
            .collect();
        let (project, findings) = Project::load(&files, None);
        assert_eq!(project.live().count(), models.len(), "{findings:?}");
        let one = Position {
            sequence: 1,
            commits: 1,
        };
        let two = Position {
            sequence: 2,
            commits: 2,
        };
        let mut world = Self {
            heads: BTreeMap::from([(name("landing.o"), two)]),
            targets: BTreeMap::from([(name("landing.o"), two)]),
            consumed: BTreeMap::new(),
            live: LiveSettings::default(),
            now: milli(0),
            states: BTreeMap::new(),
            controls: BTreeMap::new(),
            origins: BTreeMap::new(),
            attempted: BTreeSet::new(),
            project,
        };
        for model in world.project.live() {
            world.heads.insert(model.name.clone(), two);
            world.origins.insert(model.name.clone(), milli(0));
            for input in &world.project.inputs[&model.name] {
                world
                    .consumed
                    .insert((model.name.clone(), input.clone()), one);
            }
        }
        world
    }

    fn slow(mut self, model: &str, ms: u64) -> Self {
        self.states.entry(name(model)).or_default().slow_ms = Some(ms);
        self
    }

    fn view(&self) -> View<'_> {
        View {
            project: &self.project,
            live: &self.live,
            now: self.now,
            heads: &self.heads,
            consumed: &self.consumed,
            states: &self.states,
            controls: &self.controls,
            origins: &self.origins,
            targets: &self.targets,
            attempted: &self.attempted,
        }
    }

    /// Until when a model gathers (milliseconds), and for whom.
    fn check(&self, model: &str, expect: Option<(i64, &str)>) {
        let found = match &decide(&self.view())[&name(model)] {
            Decision::Hold(Hold::Target { until, of }) => Some((until.0 / 1_000, of.to_string())),
            _ => None,
        };
        let expect = expect.map(|(until, of)| (until, of.to_owned()));
        assert_eq!(found, expect, "{model}");
    }
}

const CHAIN: [(&str, &[&str]); 3] = [
    ("bronze.o", &["landing.o"]),
    ("silver.o", &["bronze.o"]),
    ("gold.o", &["silver.o"]),
];

fn chain(targets: [Option<u64>; 3]) -> World {
    let models: Vec<_> = CHAIN
        .iter()
        .zip(targets)
        .map(|((model, inputs), target)| (*model, *inputs, target))
        .collect();
    World::new(&models)
}

#[test]
fn a_model_waits_for_what_its_own_target_leaves() {
    let mut world = chain([None, None, Some(10_000)]).slow("gold.o", 400);
    // Ten seconds, less a quarter more than it takes, less the least time between cycles.
    world.check("gold.o", None);
    world.consumed.insert(
        (name("bronze.o"), name("landing.o")),
        world.heads[&name("landing.o")],
    );
    world.consumed.insert(
        (name("silver.o"), name("bronze.o")),
        world.heads[&name("bronze.o")],
    );
    world.check("gold.o", Some((8_500, "gold.o")));
    world.now = milli(8_500);
    world.check("gold.o", None);
    assert_eq!(decide(&world.view())[&name("gold.o")], Decision::Refresh);
}

#[test]
fn the_tightest_reader_counts_through_those_without_a_target() {
    let world = chain([Some(60_000), None, Some(10_000)])
        .slow("bronze.o", 800)
        .slow("silver.o", 400)
        .slow("gold.o", 80);
    world.check(
        "bronze.o",
        Some((10_000 - 100 - 500 - 1_000 - 1_000, "gold.o")),
    );
    chain([Some(5_000), None, Some(60_000)]).check("bronze.o", Some((4_000, "bronze.o")));
    // Whoever has no target waits for nothing, whatever its readers allow.
    chain([None, Some(60_000), Some(60_000)]).check("bronze.o", None);
}

#[test]
fn nobody_gathers_who_is_new_failing_or_asked_or_of_unknown_age() {
    let held = || chain([Some(60_000), None, None]);
    held().check("bronze.o", Some((59_000, "bronze.o")));
    let mut world = held();
    world.heads.remove(&name("bronze.o"));
    world.check("bronze.o", None);
    let mut world = held();
    world.states.entry(name("bronze.o")).or_default().failures = 1;
    world.check("bronze.o", None);
    let mut world = held();
    world.controls.entry(name("bronze.o")).or_default().retry = true;
    world.check("bronze.o", None);
    let mut world = held();
    world.origins.clear();
    world.check("bronze.o", None);
}

#[test]
fn what_is_due_before_the_next_cycle_goes_along() {
    let mut world = chain([Some(10_000), None, None]);
    world.now = milli(8_500);
    world.check("bronze.o", Some((9_000, "bronze.o")));
    world.attempted.insert(name("silver.side"));
    world.check("bronze.o", None);
}

#[test]
fn a_target_below_the_least_interval_is_a_warning() {
    let world = chain([Some(999), Some(1_000), None]);
    let found = short_targets(&world.project, &world.live);
    let told: Vec<_> = found.iter().map(|f| (f.model.as_str(), f.code)).collect();
    assert_eq!(told, [("bronze.o", "target_lag_too_short")]);
}

/// Random DAGs of up to eight models over one source.
fn random(seed: u64) -> World {
    let mut draw = numbers(seed);
    let size = 2 + draw(7);
    let names: Vec<String> = (0..size).map(|n| format!("silver.m{n}")).collect();
    let mut inputs: Vec<Vec<&str>> = Vec::new();
    for n in 0..names.len() {
        let mut of: Vec<&str> = names[..n]
            .iter()
            .filter(|_| draw(3) == 0)
            .map(String::as_str)
            .collect();
        if of.is_empty() {
            of.push("landing.o");
        }
        inputs.push(of);
    }
    let targets: Vec<Option<u64>> = (0..size)
        .map(|_| (draw(3) > 0).then(|| 500 + draw(60_000)))
        .collect();
    let models: Vec<_> = names
        .iter()
        .zip(&inputs)
        .zip(&targets)
        .map(|((model, inputs), target)| (model.as_str(), inputs.as_slice(), *target))
        .collect();
    let mut world = World::new(&models);
    for model in &names {
        world = world.slow(model, draw(3_000));
        world.origins.insert(
            name(model),
            milli(i64::try_from(draw(5_000)).expect("small")),
        );
        if draw(5) == 0 {
            let inputs = world.project.inputs[&name(model)].clone();
            for input in inputs {
                let head = world.heads[&input];
                world.consumed.insert((name(model), input), head);
            }
        }
    }
    world.now = milli(i64::try_from(draw(60_000)).expect("small"));
    world
}

/// Longest time that refreshes take from the start of a model to the commit of each reader below it, in microseconds.
fn ways(world: &World, from: &TableName, taken: i64, found: &mut BTreeMap<TableName, i64>) {
    let taken = taken + estimate(&world.view(), from);
    let longest = found.entry(from.clone()).or_insert(taken);
    *longest = taken.max(*longest);
    let readers: Vec<_> = world
        .project
        .inputs
        .iter()
        .filter(|(_, inputs)| inputs.contains(from))
        .collect();
    for (reader, _) in readers {
        ways(world, reader, taken, found);
    }
}

/// The law: a model is held exactly as long as every target on its way down can still be kept with a cycle to spare, and
/// never longer; and whoever is held says until when.
#[test]
fn nobody_starts_later_than_the_latest_start() {
    let (mut held, mut due) = (0, 0);
    for seed in 0..3_000 {
        let world = random(seed);
        for (model, decision) in decide(&world.view()) {
            let own = world.project.models[&model].config.target_lag;
            let mut found = BTreeMap::new();
            ways(&world, &model, 0, &mut found);
            let deadline = |(reader, taken): (&TableName, &i64)| {
                let target = world.project.models[reader].config.target_lag?;
                Some(world.origins[&model].0 + micros(target) - taken)
            };
            let latest = found.iter().filter_map(deadline).min();
            let latest = latest.map(|latest| latest - micros(world.live.min_interval));
            match decision {
                Decision::Hold(Hold::Target { until, .. }) => {
                    held += 1;
                    assert!(own.is_some(), "seed {seed}: {model} has no target");
                    assert_eq!(Some(until.0), latest, "seed {seed}: {model}");
                    assert!(
                        world.now < until,
                        "seed {seed}: {model} is held though it is due"
                    );
                }
                Decision::Refresh => {
                    due += 1;
                    let late = latest.is_some_and(|latest| world.now.0 >= latest);
                    assert!(
                        own.is_none() || late,
                        "seed {seed}: {model} could have waited"
                    );
                }
                Decision::Idle | Decision::After(_) | Decision::Hold(_) => {}
            }
        }
    }
    assert!(
        held > 1_000 && due > 1_000,
        "{held} held, {due} due: the cases say little"
    );
}
