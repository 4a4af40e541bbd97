use super::*;
use crate::Model;

/// A chain landing.o -> bronze.o -> silver.o -> gold.o with a view before gold, and a side model of the same source.
const CHAIN: &[(&str, &str)] = &[
    ("bronze.o", "SELECT id, _seq FROM landing.o"),
    ("silver.o", "SELECT id, _seq FROM bronze.o"),
    ("gold.o", "SELECT id, _seq FROM gold.v"),
    ("silver.side", "SELECT id, _seq FROM landing.o"),
];

/// Two branches that meet.
const DIAMOND: &[(&str, &str)] = &[
    ("bronze.o", "SELECT id, _seq FROM landing.o"),
    ("silver.a", "SELECT id, _seq FROM bronze.o"),
    ("silver.b", "SELECT id, _seq FROM bronze.o"),
    (
        "gold.j",
        "SELECT a.id FROM silver.a AS a JOIN silver.b AS b ON a.id = b.id",
    ),
];

fn name(text: &str) -> TableName {
    text.parse().expect("a table name")
}

/// The world of one test; times in seconds.
#[derive(Default)]
struct World {
    project: Project,
    live: LiveSettings,
    now: i64,
    heads: BTreeMap<TableName, Position>,
    consumed: BTreeMap<(TableName, TableName), Position>,
    states: BTreeMap<TableName, ModelState>,
    origins: BTreeMap<TableName, Timestamp>,
    controls: BTreeMap<TableName, Control>,
    targets: BTreeMap<TableName, Position>,
    attempted: BTreeSet<TableName>,
}

fn second(n: i64) -> Timestamp {
    Timestamp(n * 1_000_000)
}

impl World {
    fn new(models: &[(&str, &str)]) -> Self {
        let file = |model: &str| format!("transform/{}.sql", model.replace('.', "/"));
        let mut files: Vec<_> = models
            .iter()
            .map(|(model, sql)| {
                let config = "@config materialized=incremental, live=true, unique_key=id, \
                              incremental_filter=WHERE _seq > {watermark:";
                let input = sql
                    .split("FROM ")
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next())
                    .unwrap_or("");
                let input = if input == "gold.v" { "silver.o" } else { input };
                (file(model), format!("{config}{input}}}\n{sql}"))
            })
            .collect();
        files.push((
            file("gold.v"),
            "@config materialized=view\nSELECT id, _seq FROM silver.o".to_owned(),
        ));
        if models.iter().all(|(model, _)| *model != "silver.o") {
            files.pop();
        }
        let (project, _) = Project::load(&files, None);
        assert_eq!(
            project.live().count(),
            models.len(),
            "the test's project loads"
        );
        Self {
            project,
            ..Self::default()
        }
    }

    fn head(mut self, table: &str, sequence: u64, commits: u64) -> Self {
        self.heads
            .insert(name(table), Position { sequence, commits });
        if table.starts_with("landing.") {
            self.targets
                .insert(name(table), Position { sequence, commits });
        }
        self
    }

    fn consumed(mut self, model: &str, input: &str, sequence: u64, commits: u64) -> Self {
        self.consumed
            .insert((name(model), name(input)), Position { sequence, commits });
        self
    }

    fn paused(mut self, model: &str) -> Self {
        self.controls.entry(name(model)).or_default().paused = true;
        self
    }

    fn failing(mut self, model: &str, retry_at: i64) -> Self {
        let state = self.states.entry(name(model)).or_default();
        (state.failures, state.retry_at) = (1, Some(second(retry_at)));
        self
    }

    fn attempted(mut self, model: &str) -> Self {
        self.attempted.insert(name(model));
        self
    }

    /// Everything of the chain built and caught up at sequence 1.
    fn built(mut self) -> Self {
        let pairs: Vec<_> = self
            .project
            .inputs
            .iter()
            .flat_map(|(m, inputs)| inputs.iter().map(|i| (m.clone(), i.clone())))
            .collect();
        let one = Position {
            sequence: 1,
            commits: 1,
        };
        for (model, input) in pairs {
            self.heads.insert(model.clone(), one);
            self.heads.entry(input.clone()).or_insert(one);
            self.consumed.insert((model, input), one);
        }
        self
    }

    fn view(&self) -> View<'_> {
        View {
            project: &self.project,
            live: &self.live,
            now: second(self.now),
            heads: &self.heads,
            consumed: &self.consumed,
            states: &self.states,
            origins: &self.origins,
            controls: &self.controls,
            targets: &self.targets,
            attempted: &self.attempted,
        }
    }

    /// Decisions in words, by model: `refresh`, `idle`, `after x`, `paused`, `backoff 5`, `interval 5`, `waiting x`.
    fn check(&self, expect: &[(&str, &str)]) {
        let decisions = decide(&self.view());
        for (model, words) in expect {
            let said = match &decisions[&name(model)] {
                Decision::Refresh => "refresh".to_owned(),
                Decision::Idle => "idle".to_owned(),
                Decision::After(first) => format!("after {first}"),
                Decision::Hold(Hold::Paused) => "paused".to_owned(),
                Decision::Hold(Hold::Backoff(at)) => format!("backoff {}", at.0 / 1_000_000),
                Decision::Hold(Hold::Interval(at)) => format!("interval {}", at.0 / 1_000_000),
                Decision::Hold(Hold::Target { until, of }) => {
                    format!("gathers until {} for {of}", until.0 / 1_000_000)
                }
                Decision::Hold(Hold::Waiting(on)) => format!("waiting {on}"),
                Decision::Hold(Hold::Unfed(on)) => format!("unfed {on}"),
            };
            assert_eq!(said, *words, "{model}");
        }
    }

    /// Status words: `live`, `waiting x`.
    fn check_words(&self, expect: &[(&str, &str)]) {
        let all = super::words(&self.view());
        for (model, words) in expect {
            let said = match &all[&name(model)] {
                (word, Some(on)) => format!("{word} {on}"),
                (word, None) => (*word).to_owned(),
            };
            assert_eq!(said, *words, "{model}");
        }
    }
}

#[test]
fn nothing_is_built_before_a_source_has_advanced() {
    World::new(CHAIN).check(&[
        ("bronze.o", "idle"),
        ("silver.o", "idle"),
        ("gold.o", "idle"),
    ]);
}

#[test]
fn a_chain_moves_level_by_level_through_a_view() {
    let world = World::new(CHAIN).head("landing.o", 2, 1);
    world.check(&[
        ("bronze.o", "refresh"),
        ("silver.side", "refresh"),
        ("silver.o", "after bronze.o"),
        ("gold.o", "after silver.o"),
    ]);
    let world = world
        .head("bronze.o", 2, 1)
        .consumed("bronze.o", "landing.o", 2, 1)
        .attempted("bronze.o");
    world.check(&[
        ("bronze.o", "idle"),
        ("silver.o", "refresh"),
        ("gold.o", "after silver.o"),
    ]);
    let world = world
        .head("silver.o", 2, 1)
        .consumed("silver.o", "bronze.o", 2, 1)
        .attempted("silver.o");
    world.check(&[("silver.o", "idle"), ("gold.o", "refresh")]);
}

#[test]
fn the_join_of_a_diamond_comes_after_both_sides() {
    let world = World::new(DIAMOND).built().head("landing.o", 2, 2);
    world.check(&[
        ("bronze.o", "refresh"),
        ("silver.a", "after bronze.o"),
        ("gold.j", "after silver.a"),
    ]);
    let world = world
        .head("bronze.o", 2, 2)
        .consumed("bronze.o", "landing.o", 2, 2)
        .attempted("bronze.o");
    world.check(&[
        ("silver.a", "refresh"),
        ("silver.b", "refresh"),
        ("gold.j", "after silver.a"),
    ]);
    let world = world
        .head("silver.a", 2, 2)
        .consumed("silver.a", "bronze.o", 2, 2)
        .attempted("silver.a");
    world.check(&[("silver.b", "refresh"), ("gold.j", "after silver.b")]);
}

#[test]
fn a_join_waits_for_the_first_rows_of_both_sides() {
    const TWO: &[(&str, &str)] = &[
        ("silver.a", "SELECT id, _seq FROM landing.a"),
        ("silver.b", "SELECT id, _seq FROM landing.b"),
        (
            "gold.j",
            "SELECT a.id, a._seq FROM silver.a AS a JOIN silver.b AS b ON a.id = b.id",
        ),
        ("gold.k", "SELECT id, _seq FROM gold.j"),
    ];
    World::new(TWO).check(&[("silver.a", "idle"), ("gold.j", "idle")]);
    let world = World::new(TWO)
        .head("landing.a", 1, 1)
        .head("silver.a", 1, 1)
        .consumed("silver.a", "landing.a", 1, 1);
    world.check(&[
        ("silver.a", "idle"),
        ("silver.b", "idle"),
        ("gold.j", "unfed silver.b"),
        ("gold.k", "waiting gold.j"),
    ]);
    world.check_words(&[
        ("silver.b", "live"),
        ("gold.j", "waiting silver.b"),
        ("gold.k", "waiting silver.b"),
    ]);
    let world = world.head("landing.b", 1, 1);
    world.check(&[("silver.b", "refresh"), ("gold.j", "after silver.b")]);
    let world = world
        .head("silver.b", 1, 1)
        .consumed("silver.b", "landing.b", 1, 1);
    world.check(&[("gold.j", "refresh"), ("gold.k", "after gold.j")]);
}

#[test]
fn a_commit_that_only_deletes_wakes_its_readers() {
    World::new(CHAIN)
        .built()
        .head("landing.o", 1, 1)
        .head("bronze.o", 1, 2)
        .check(&[
            ("bronze.o", "idle"),
            ("silver.o", "refresh"),
            ("silver.side", "idle"),
        ]);
}

#[test]
fn a_cycle_reads_landing_no_further_than_its_target() {
    let mut world = World::new(CHAIN).built().head("landing.o", 5, 5);
    world.targets.insert(
        name("landing.o"),
        Position {
            sequence: 1,
            commits: 1,
        },
    );
    world.check(&[("bronze.o", "idle")]);
    world.targets.clear();
    world.check(&[("bronze.o", "idle")]);
}

#[test]
fn a_paused_model_holds_what_is_below_it() {
    let world = World::new(CHAIN).built().paused("silver.o");
    world.check(&[
        ("bronze.o", "idle"),
        ("silver.o", "idle"),
        ("gold.o", "idle"),
    ]);
    world.check_words(&[("silver.o", "paused"), ("gold.o", "live")]);
    let world = world.head("bronze.o", 2, 2);
    world.check(&[("silver.o", "paused"), ("gold.o", "waiting silver.o")]);
    world.check_words(&[("silver.o", "paused"), ("gold.o", "waiting silver.o")]);
}

#[test]
fn holds_name_the_nearest_that_is_stuck_and_the_status_its_root() {
    let world = World::new(CHAIN)
        .built()
        .head("landing.o", 2, 2)
        .paused("bronze.o");
    world.check(&[
        ("bronze.o", "paused"),
        ("silver.o", "waiting bronze.o"),
        ("gold.o", "waiting silver.o"),
        ("silver.side", "refresh"),
    ]);
    world.check_words(&[
        ("silver.o", "waiting bronze.o"),
        ("gold.o", "waiting bronze.o"),
        ("silver.side", "behind"),
    ]);
}

#[test]
fn a_failing_model_is_retried_when_its_backoff_ends_or_a_person_asks() {
    let mut world = World::new(CHAIN)
        .built()
        .head("landing.o", 2, 2)
        .failing("bronze.o", 5);
    world.check(&[("bronze.o", "backoff 5"), ("silver.o", "waiting bronze.o")]);
    world.check_words(&[("bronze.o", "failing"), ("silver.o", "waiting bronze.o")]);
    world.controls.insert(
        name("bronze.o"),
        Control {
            paused: false,
            retry: true,
        },
    );
    world.check(&[("bronze.o", "refresh"), ("silver.o", "after bronze.o")]);
    world.controls.clear();
    world.now = 5;
    world.check(&[("bronze.o", "refresh"), ("silver.o", "after bronze.o")]);
}

#[test]
fn a_model_that_failed_in_this_cycle_is_not_tried_again_and_holds_what_is_below() {
    let mut world = World::new(CHAIN)
        .built()
        .head("landing.o", 2, 2)
        .failing("bronze.o", 0)
        .attempted("bronze.o");
    world.check(&[("bronze.o", "backoff 0"), ("silver.o", "waiting bronze.o")]);
    world.controls.insert(
        name("bronze.o"),
        Control {
            paused: false,
            retry: true,
        },
    );
    world.check(&[("bronze.o", "backoff 0")]);
}

#[test]
fn an_interval_holds_only_its_own_model() {
    let mut world = World::new(CHAIN)
        .built()
        .head("landing.o", 2, 2)
        .head("silver.o", 2, 2);
    let interval = |model: &mut Model| model.config.live_interval = Some(Duration::from_secs(30));
    world
        .project
        .models
        .get_mut(&name("bronze.o"))
        .map(interval)
        .expect("a model");
    world
        .states
        .entry(name("bronze.o"))
        .or_default()
        .last_refresh = Some(second(0));
    world.now = 10;
    world.check(&[
        ("bronze.o", "interval 30"),
        ("silver.o", "idle"),
        ("gold.o", "refresh"),
    ]);
    world.controls.insert(
        name("bronze.o"),
        Control {
            paused: false,
            retry: true,
        },
    );
    world.check(&[("bronze.o", "refresh"), ("gold.o", "after silver.o")]);
    world.controls.clear();
    world.now = 30;
    world.check(&[("bronze.o", "refresh")]);
}

#[test]
fn backoff_doubles_to_its_cap() {
    let live = LiveSettings::default();
    let seconds = |failures| backoff(failures, &live).as_secs();
    assert_eq!(
        [0, 1, 2, 3, 8, 9, 40, u32::MAX].map(seconds),
        [0, 2, 4, 8, 256, 300, 300, 300]
    );
}
