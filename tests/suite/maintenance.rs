//! Maintenance under load: nothing that is read changes, and what is stored stays bounded.

mod deaths;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use domain::{Duration, TableName, items};
use engine::{
    control,
    cycle::{self, Silent},
    maintain::{Budget, Report, maintain},
};
use futures::TryStreamExt;
use libtest_mimic::Trial;
use object_store::{ObjectStoreExt, path::Path};
use ports::{
    State,
    landing::Append,
    state::{Span, query_all},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tests::{
    case::{Cells, ModelText},
    rows,
    world::{Adapter, Lab, table},
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("maintenance::a_week_in_memory", || {
            week(Adapter::Memory, 1_200)
        }),
        test_async("maintenance::a_week_embedded", || {
            week(Adapter::Embedded, 480)
        }),
        test_async("maintenance::a_feed_that_lags_is_right", lagging),
        test_async(
            "maintenance::a_crash_anywhere_loses_nothing",
            deaths::crashes,
        ),
        test_async("maintenance::two_at_once_do_no_harm", deaths::two),
        test_async("maintenance::keys_are_forgotten_when_they_are_old", keys),
        test_async(
            "maintenance::orphans_go_and_what_others_left_stays",
            orphans,
        ),
    ]
}

const SCRATCH: &str =
    "SELECT region, sum(amount) AS total, count(*) AS n FROM silver.lines GROUP BY region";
const READS: [&str; 4] = [
    "SELECT count(*), sum(_seq), min(_seq), max(_seq), sum(length(payload)) FROM landing.x",
    "SELECT order_id, region, amount, _seq FROM silver.lines ORDER BY order_id",
    "SELECT region, total, n FROM gold.regions ORDER BY region",
    "SELECT what, count(*), sum(amount) FROM gold.log GROUP BY what ORDER BY what",
];
/// More than any round needs.
const ALL: Budget = Budget {
    time: Duration::from_secs(3_600),
    steps: 10_000,
    all: true,
};

fn model(name: &str, config: Value, sql: &str) -> ModelText {
    let mut config = config;
    config["materialized"] = json!("incremental");
    config["live"] = json!("true");
    ModelText {
        name: name.to_owned(),
        config: serde_json::from_value(config).unwrap_or_default(),
        sql: sql.to_owned(),
        asserts: Vec::new(),
    }
}

/// Orders that are merged, totals of their regions and a log of what happened, both by the change feed.
fn models() -> Vec<ModelText> {
    vec![
        model(
            "silver.lines",
            json!({ "incremental_strategy": "merge", "unique_key": "order_id",
                "incremental_filter": "WHERE _seq > {watermark}" }),
            "SELECT (payload->>'id')::BIGINT AS order_id, payload->>'region' AS region, \
             (payload->>'amount')::BIGINT AS amount, _seq FROM landing.x",
        ),
        model(
            "gold.regions",
            json!({ "incremental_strategy": "delete+insert", "unique_key": "region" }),
            "SELECT c.region, sum(l.amount) AS total, count(l.order_id) AS n \
             FROM (SELECT DISTINCT region FROM {changes:silver.lines}) AS c \
             LEFT JOIN silver.lines AS l ON l.region = c.region GROUP BY c.region",
        ),
        model(
            "gold.log",
            json!({ "incremental_strategy": "append" }),
            "SELECT order_id, amount, _change AS what FROM {changes:silver.lines}",
        ),
    ]
}

fn lab(adapter: Adapter) -> Result<Lab> {
    Lab::new(adapter, &models(), domain::LiveSettings::default())
}

fn chained(error: ports::Error) -> anyhow::Error {
    rows::chain(&error)
}

async fn post(lab: &Lab, id: u64, region: &str, amount: i64, key: Option<String>) -> Result<bool> {
    let payload = json!({ "id": id, "region": region, "amount": amount }).to_string();
    let payload: ArrayRef = Arc::new(StringArray::from_iter_values([payload]));
    let append = Append {
        table: table("landing.x")?,
        rows: RecordBatch::try_from_iter([("payload", payload)])?,
        origin_at: lab.world.clock.now(),
        key,
    };
    let stored = lab.world.landing.append(append).await.map_err(chained)?;
    Ok(!stored.duplicate)
}

async fn reads(lab: &Lab) -> Result<Vec<Cells>> {
    let mut all = Vec::new();
    for sql in READS {
        all.push(rows::query(&lab.world, sql).await.context(sql)?);
    }
    Ok(all)
}

async fn upkeep(lab: &Lab, budget: &Budget) -> Result<Report> {
    let report = maintain(&lab.world, budget, lab.world.clock.now()).await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    Ok(report)
}

/// Runs a cycle in which a model may lose a race, and nothing else may go wrong.
async fn cycle(lab: &Lab) -> Result<()> {
    let report = cycle::run(&lab.world, &Silent).await.map_err(chained)?;
    for (model, how) in report.models {
        let is_fine = matches!(how.word(), "built" | "idle" | "held" | "conflict");
        ensure!(is_fine, "`{model}` ended {how:?}");
    }
    Ok(())
}

async fn caught_up(lab: &Lab) -> Result<()> {
    for _ in 0..4 {
        lab.clock.advance(Duration::from_secs(2));
        cycle(lab).await?;
    }
    let gold = "SELECT region, total, n FROM gold.regions WHERE n > 0 ORDER BY region";
    let want = rows::query(&lab.world, &format!("{SCRATCH} ORDER BY region")).await?;
    rows::compare(
        "gold.regions",
        rows::query(&lab.world, gold).await?,
        &want,
        &[],
    )?;
    // The log of all changes, applied from nothing, is the table.
    let net = "SELECT sum(CASE WHEN what IN ('insert', 'update_after') THEN amount ELSE -amount END) FROM gold.log";
    let sum = "SELECT sum(amount) FROM silver.lines";
    let want = rows::query(&lab.world, sum).await?;
    rows::compare("gold.log", rows::query(&lab.world, net).await?, &want, &[])
}

/// How many objects there are below each of the first three folders, and items in each kind of partition.
async fn stored(lab: &Lab) -> Result<(BTreeMap<String, usize>, usize)> {
    let listed: Vec<_> = lab.objects.list(None).try_collect().await?;
    let mut objects = BTreeMap::new();
    for object in listed {
        let folders: Vec<&str> = object.location.as_ref().split('/').collect();
        let folder = folders[..folders.len() - 1].join("/");
        *objects.entry(folder).or_default() += 1;
    }
    let advances = items_of(&*lab.world.state, items::table(&table("landing.x")?)).await?;
    Ok((objects, advances))
}

async fn items_of(state: &dyn State, partition: String) -> Result<usize> {
    let span = Span::prefix(partition, "", 1_000);
    Ok(query_all(state, span).await.map_err(chained)?.len())
}

async fn week(adapter: Adapter, steps: u64) -> Result<()> {
    let lab = lab(adapter)?;
    let settings = lab.world.live.maintenance.clone();
    let budget = Budget {
        time: Duration::from_secs(3_600),
        ..Budget::of(&settings)
    };
    let mut dice = StdRng::seed_from_u64(11);
    let step_time = Duration::from_secs(7 * 86_400 / steps);
    let mut sum = Report::default();
    let (mut most_objects, mut most_advances) = (0, 0);
    let mut acknowledged = 0;
    for step in 0..steps {
        for _ in 0..dice.random_range(1..=2) {
            let region = ["eu", "us", "asia", "africa"][dice.random_range(0..4)];
            let id = dice.random_range(0..400);
            let key = Some(format!("{step}-{id}-{region}"));
            acknowledged +=
                u64::from(post(&lab, id, region, dice.random_range(0..100), key).await?);
        }
        lab.clock.advance(step_time);
        match step % 20 {
            4 | 9 | 14 => cycle(&lab).await?,
            // What is read does not change by it.
            10 if step % 100 == 10 => {
                let before = reads(&lab).await?;
                sum.add(upkeep(&lab, &budget).await?);
                ensure!(reads(&lab).await? == before, "step {step}: a read changed");
            }
            // A refresh at the same time loses at most a race.
            19 => {
                let (cycle, report) = futures::join!(cycle(&lab), upkeep(&lab, &budget));
                cycle?;
                sum.add(report?);
                let (objects, advances) = stored(&lab).await?;
                most_objects = most_objects.max(objects.values().copied().max().unwrap_or(0));
                most_advances = most_advances.max(advances);
            }
            _ => {}
        }
    }
    caught_up(&lab).await?;
    let count = rows::value(&lab.world, "SELECT count(*) FROM landing.x").await?;
    ensure!(
        count == json!(acknowledged),
        "{acknowledged} were stored, {count} are read"
    );
    println!(
        "{sum:?}\nat most {most_objects} objects in a folder, {most_advances} items of the landing table"
    );
    ensure!(
        sum.folds > 0 && sum.snapshots + sum.garbage_removed > 0,
        "nothing was done"
    );
    // Fifty snapshots, their manifests, and what waits for its grace time.
    ensure!(most_objects < 500, "{most_objects} objects in one folder");
    ensure!(
        most_advances < 120,
        "{most_advances} items of the landing table"
    );
    // At rest, only what is in use stays.
    let before = reads(&lab).await?;
    for _ in 0..6 {
        lab.clock.advance(Duration::from_secs(2 * 3_600));
        upkeep(&lab, &ALL).await?;
    }
    ensure!(reads(&lab).await? == before, "a read changed at rest");
    let (objects, advances) = stored(&lab).await?;
    println!("at rest: {objects:?}, {advances} items");
    ensure!(advances < 40, "{advances} items at rest");
    for (folder, count) in &objects {
        ensure!(*count < 160, "{count} objects in {folder} at rest");
    }
    let again = upkeep(&lab, &ALL).await?;
    ensure!(
        again.garbage_found == 0 && again.folds == 0 && !again.more,
        "at rest: {again:?}"
    );
    Ok(())
}

/// Orders in one burst after another, each read by a cycle.
async fn bursts(lab: &Lab, count: u64, span: Duration) -> Result<()> {
    for step in 0..count {
        for id in 0..3 {
            let region = ["eu", "us", "asia"][usize::try_from((step + id) % 3)?];
            post(lab, id + step % 7, region, i64::try_from(step)?, None).await?;
        }
        lab.clock.advance(span);
        cycle(lab).await?;
    }
    Ok(())
}

async fn pause(lab: &Lab, paused: bool) -> Result<()> {
    for name in ["gold.regions", "gold.log"] {
        let name: TableName = table(name)?;
        control::set_paused(&lab.world, &name, paused)
            .await
            .map_err(chained)?;
    }
    Ok(())
}

async fn lagging() -> Result<()> {
    // The snapshot that was read stays however old it is and however many came after it: nothing is rebuilt.
    for behind in [35, 70] {
        let lab = lab(Adapter::Memory)?;
        bursts(&lab, 3, Duration::from_secs(60)).await?;
        pause(&lab, true).await?;
        for _ in 0..behind / 5 {
            bursts(&lab, 5, Duration::from_secs(1_800)).await?;
            upkeep(&lab, &ALL).await?;
        }
        pause(&lab, false).await?;
        caught_up(&lab).await?;
        let what = "SELECT count(*) FROM gold.log WHERE what = 'update_after'";
        let updates = rows::value(&lab.world, what).await?;
        ensure!(
            updates != json!(0),
            "{behind} commits behind, the log was rebuilt"
        );
    }
    Ok(())
}

async fn keys() -> Result<()> {
    let lab = lab(Adapter::Memory)?;
    let state = lab.world.state.clone();
    let key = || Some(String::from("delivery-1"));
    ensure!(post(&lab, 1, "eu", 1, key()).await?);
    lab.clock.advance(Duration::from_secs(6 * 86_400));
    upkeep(&lab, &ALL).await?;
    ensure!(
        !post(&lab, 1, "eu", 1, key()).await?,
        "it is remembered for a week"
    );
    lab.clock.advance(Duration::from_secs(86_400 + 1));
    ensure!(upkeep(&lab, &ALL).await?.keys_forgotten == 1);
    ensure!(items_of(&*state, String::from("seen#x#delivery-1")).await? == 0);
    ensure!(items_of(&*state, items::expiry(&table("landing.x")?)).await? == 0);
    ensure!(
        post(&lab, 1, "eu", 1, key()).await?,
        "and forgotten after it"
    );
    ensure!(
        !post(&lab, 1, "eu", 1, key()).await?,
        "and remembered again"
    );
    Ok(())
}

async fn orphans() -> Result<()> {
    let lab = lab(Adapter::Memory)?;
    bursts(&lab, 2, Duration::from_secs(1)).await?;
    let id = lab.world.chance.id(lab.world.clock.now());
    let ours = [
        format!("landing/x/data/{id}.parquet"),
        format!("tables/silver/lines/data/{id}.parquet"),
        format!("tables/silver/lines/metadata/manifest-{id}.avro"),
    ];
    let theirs = [
        String::from("landing/x/incoming/late.parquet"),
        format!("landing/x/incoming/{id}.parquet"),
        String::from("tables/silver/lines/data/part-1.parquet"),
        format!("notes/{id}.txt"),
    ];
    for path in ours.iter().chain(&theirs) {
        lab.objects
            .put(&Path::from(path.as_str()), "x".into())
            .await?;
    }
    let there = async |path: &String| lab.objects.head(&Path::from(path.as_str())).await.is_ok();
    for hours in [1, 2, 20] {
        lab.clock.advance(Duration::from_secs(hours * 3_600));
        upkeep(&lab, &ALL).await?;
        for path in &ours {
            ensure!(
                there(path).await,
                "{path} may be part of a refresh under way"
            );
        }
    }
    for _ in 0..2 {
        lab.clock.advance(Duration::from_secs(2 * 3_600));
        upkeep(&lab, &ALL).await?;
    }
    for path in &ours {
        ensure!(!there(path).await, "{path} is still there");
    }
    for path in &theirs {
        ensure!(there(path).await, "{path} is gone");
    }
    caught_up(&lab).await
}
