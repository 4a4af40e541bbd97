//! A large project: 200 models in 8 levels, and what a look at all of them costs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use anyhow::Result;
use domain::{
    TableName,
    items::{self, Consumed, Control, Head, ModelState},
    plan,
};
use engine::{World, cycle};
use ports::{
    State,
    state::{Key, Span, query_all},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tests::{case::ModelText, world::table};

use crate::{Options, block_on, merge, sample::summary};

/// Models of one level.
const WIDTH: usize = 25;
/// Levels.
const LEVELS: usize = 8;
/// Longest a look may take, milliseconds.
const TARGET_MS: f64 = 10.0;

pub(crate) fn run(options: &Options) -> Result<Value> {
    block_on(measure(if options.quick { 20 } else { 100 }))
}

fn name(level: usize, at: usize) -> String {
    format!("l{level}.m{:02}", at % WIDTH)
}

/// Every model merges what two of the level before it hold.
fn models() -> Vec<ModelText> {
    let model = |level: usize, at: usize| {
        let own = "SELECT order_id, amount, region, _seq FROM";
        let sql = match level {
            0 => format!("{own} landing.orders WHERE _seq > {{watermark}}"),
            _ => {
                let (one, other) = (name(level - 1, at), name(level - 1, at + 1));
                format!(
                    "{own} {one} WHERE _seq > {{watermark:{one}}} UNION ALL {own} {other} \
                     WHERE _seq > {{watermark:{other}}}"
                )
            }
        };
        let config = [
            ("materialized", "incremental"),
            ("live", "true"),
            ("incremental_strategy", "merge"),
            ("unique_key", "order_id"),
        ];
        ModelText {
            name: name(level, at),
            config: config
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            sql,
            asserts: Vec::new(),
        }
    };
    (0..LEVELS * WIDTH)
        .map(|at| model(at / WIDTH, at % WIDTH))
        .collect()
}

async fn measure(rounds: u32) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let models = models();
    let world = merge::world(folder.path(), &models)?;
    let orders = table("landing.orders")?;
    merge::append(&world, &orders, vec![(1, 1), (2, 2)]).await?;
    let started = Instant::now();
    merge::cycle(&world, &cycle::Silent).await?;
    let first = started.elapsed();
    eprintln!("  {} models built in {first:?}", models.len());
    // A cycle that finds nothing to do: everything loaded, everything decided, twice.
    let mut idle = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        cycle::run(&world, &cycle::Silent)
            .await
            .map_err(|error| tests::rows::chain(&error))?;
        idle.push(started.elapsed());
    }
    let known = Known::read(&world).await?;
    let mut decided = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        known.decide(&world);
        decided.push(started.elapsed());
    }
    idle.sort();
    let p50 = idle[idle.len() / 2].as_secs_f64() * 1e3;
    Ok(json!({
        "models": models.len(), "levels": LEVELS, "first_cycle_s": first.as_secs_f64(), "idle_cycle": summary(idle),
        "decide": summary(decided), "target_ms": TARGET_MS, "within": p50 <= TARGET_MS,
    }))
}

/// What the planner looks at.
#[derive(Default)]
struct Known {
    heads: BTreeMap<TableName, domain::Position>,
    consumed: BTreeMap<(TableName, TableName), domain::Position>,
    states: BTreeMap<TableName, ModelState>,
    controls: BTreeMap<TableName, Control>,
}

async fn read<T: DeserializeOwned>(state: &dyn State, key: Key) -> Result<Option<T>> {
    let item = state.get(&key).await;
    let item = item.map_err(|error| tests::rows::chain(&error))?;
    let value = item.map(|item| item.decode()).transpose();
    value.map_err(|error| tests::rows::chain(&error))
}

impl Known {
    async fn read(world: &World) -> Result<Self> {
        let mut known = Self::default();
        let state = &*world.state;
        let listed = query_all(state, Span::prefix(items::TABLES, "", 500)).await;
        for item in listed.map_err(|error| tests::rows::chain(&error))? {
            let table: TableName = item.key.sort.parse()?;
            let head: Option<Head> =
                read(state, Key::new(items::table(&table), items::HEAD)).await?;
            known.heads.extend(head.map(|head| (table, head.position)));
        }
        for (model, inputs) in &world.project.inputs {
            let own = items::model(model);
            let kept: Option<ModelState> = read(state, Key::new(own.clone(), items::STATE)).await?;
            known.states.insert(model.clone(), kept.unwrap_or_default());
            for input in inputs {
                let key = Key::new(own.clone(), items::consumed(input));
                let consumed: Consumed = read(state, key).await?.unwrap_or_default();
                known
                    .consumed
                    .insert((model.clone(), input.clone()), consumed.position);
            }
        }
        Ok(known)
    }

    fn decide(&self, world: &World) {
        let decisions = plan::decide(&plan::View {
            project: &world.project,
            live: &world.live,
            now: world.clock.now(),
            heads: &self.heads,
            consumed: &self.consumed,
            states: &self.states,
            origins: &BTreeMap::new(),
            controls: &self.controls,
            targets: &self.heads,
            attempted: &BTreeSet::new(),
        });
        std::hint::black_box(decisions);
    }
}
