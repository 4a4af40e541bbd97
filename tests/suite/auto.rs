//! `incremental_strategy=auto`: whatever happened, a table is its query from scratch (**M-3**).

mod costs;
mod shapes;

use anyhow::{Context, Result, bail, ensure};
use engine::{control, cycle, refresh::Refreshed};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    rows::{self, compare},
    site::Site,
    world::table,
};

use self::shapes::Shape;
use crate::plain::test_async;

/// Histories of the property test; each is a test of its own.
const SEEDS: u64 = 6;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        test_async(
            "bugs::n03_auto_a_row_that_moves_leaves_its_old_group",
            moves,
        ),
        test_async("auto::a_chain_of_two_follows_moves_and_deletes", chain),
        test_async("auto::an_edit_reaches_all_rows", edited),
        test_async("auto::an_edit_of_a_view_reaches_all_rows", edited_view),
        test_async("auto::a_lost_feed_means_all_rows_anew", lost),
        test_async("auto::the_feed_of_an_auto_model_is_exact", feed),
        test_async(
            "auto::costs_grow_with_the_change_and_not_with_the_table",
            costs::grow_with_the_change,
        ),
        test_async("auto::keys_of_any_type_are_replaced_once", keys),
        test_async("auto::what_is_computed_anew_is_told_before", told),
    ];
    for seed in 0..SEEDS {
        let name = format!("auto::any_history_ends_as_the_query_from_scratch_{seed}");
        trials.push(test_async(name, move || history(seed)));
    }
    trials
}

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

fn auto(name: &str, key: &str, sql: &str) -> ModelText {
    let config = match key {
        "" => json!({ "incremental_strategy": "auto" }),
        key => json!({ "incremental_strategy": "auto", "unique_key": key }),
    };
    model(name, config, sql)
}

/// A table of change events: the rows of `columns` by `id`.
fn kept(name: &str, columns: &str) -> ModelText {
    model(
        &format!("silver.{name}"),
        json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
            "incremental_filter": "WHERE _seq > {watermark}" }),
        &format!(
            "SELECT (payload->>'id')::BIGINT AS id, {columns}, payload->>'op' AS op, (payload->>'lsn')::BIGINT AS lsn, \
             _seq FROM landing.{name}"
        ),
    )
}

fn orders() -> ModelText {
    kept(
        "orders",
        "(payload->>'customer')::BIGINT AS customer, payload->>'region' AS region, \
         (payload->>'amount')::BIGINT AS amount, (payload->>'score')::DOUBLE AS score",
    )
}

fn customers() -> ModelText {
    kept(
        "customers",
        "payload->>'segment' AS segment, (payload->>'boss')::BIGINT AS boss",
    )
}

/// Posts a change of one row.
async fn change(site: &Site, table: &str, op: &str, lsn: u64, row: Value) -> Result<()> {
    let mut body = row;
    body["op"] = json!(op);
    body["lsn"] = json!(lsn);
    site.event(table, body.to_string()).await?;
    Ok(())
}

async fn expect(site: &Site, sql: &str, want: Value) -> Result<()> {
    let want: Vec<Vec<Value>> = serde_json::from_value(want)?;
    compare(sql, site.cells(sql).await?, &want, &[])
}

/// Numbers that look random and are not.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// One random change: of an order mostly, of a customer now and then; half a million keys apart or all over the same.
async fn step(site: &Site, dice: &mut Dice, lsn: &mut u64) -> Result<()> {
    *lsn += 1;
    let op = ["I", "U", "U", "D"][usize::try_from(dice.below(4))?];
    if dice.below(4) == 0 {
        let segment = [json!("a"), json!("b"), json!("c"), Value::Null];
        let row = json!({ "id": dice.below(5), "segment": segment[usize::try_from(dice.below(4))?],
            "boss": dice.below(5) });
        return change(site, "customers", op, *lsn, row).await;
    }
    let region = [json!("eu"), json!("us"), json!("asia"), Value::Null];
    let score = [
        json!(0.5),
        json!("-0.0"),
        json!(0.0),
        json!("NaN"),
        Value::Null,
    ];
    let row = json!({ "id": dice.below(12), "customer": dice.below(6), "region": region[usize::try_from(dice.below(4))?],
        "amount": if dice.below(5) == 0 { Value::Null } else { json!(dice.below(6)) },
        "score": score[usize::try_from(dice.below(5))?] });
    change(site, "orders", op, *lsn, row).await
}

async fn history(seed: u64) -> Result<()> {
    let shapes = shapes::all();
    let mut models = vec![orders(), customers(), shapes::view()];
    models.extend(
        shapes
            .iter()
            .map(|shape| auto(shape.name, shape.key, shape.sql)),
    );
    let site = Site::in_memory(&models, "")?;
    // A model is built from inputs that are there.
    let row = json!({ "id": 0, "customer": 0, "region": "eu", "amount": 3, "score": 0.5 });
    change(&site, "orders", "I", 1, row).await?;
    let row = json!({ "id": 0, "segment": "a", "boss": 0 });
    change(&site, "customers", "I", 2, row).await?;
    site.cycle().await?;
    check_all(&site, &shapes)
        .await
        .with_context(|| format!("seed {seed}, at the start"))?;
    let mut dice = Dice::new(seed + 1);
    let mut lsn = 2;
    for at in 0..14_u64 {
        for _ in 0..=dice.below(if at % 5 == 4 { 25 } else { 4 }) {
            step(&site, &mut dice, &mut lsn).await?;
        }
        // Some are left behind for a while, and read several batches at once later.
        let paused = match dice.below(3) {
            0 => Vec::new(),
            _ => (0..4).map(|_| dice.below(shapes.len() as u64)).collect(),
        };
        for shape in &paused {
            pause(&site, shapes[usize::try_from(*shape)?].name, true).await?;
        }
        let report = site.lab.cycle().await?;
        for (name, how) in &report.models {
            check_outcome(&shapes, &name.to_string(), how, at)?;
        }
        for shape in &paused {
            pause(&site, shapes[usize::try_from(*shape)?].name, false).await?;
        }
        if paused.is_empty() {
            check_all(&site, &shapes)
                .await
                .with_context(|| format!("seed {seed}, step {at}"))?;
        }
    }
    site.cycle().await?;
    check_all(&site, &shapes)
        .await
        .with_context(|| format!("seed {seed}, at the end"))
}

async fn pause(site: &Site, model: &str, paused: bool) -> Result<()> {
    control::set_paused(&site.lab.world, &table(model)?, paused)
        .await
        .map_err(|error| rows::chain(&error))
        .map(drop)
}

/// Only what cannot be traced is computed anew.
fn check_outcome(shapes: &[Shape], name: &str, how: &Refreshed, at: u64) -> Result<()> {
    let traced = shapes
        .iter()
        .find(|shape| shape.name == name)
        .is_none_or(|shape| shape.traced);
    match how {
        Refreshed::Built {
            recomputed: Some(why),
            ..
        } if traced => bail!("step {at}: `{name}` was computed anew: {why}"),
        Refreshed::Built { .. } | Refreshed::Idle | Refreshed::Held { .. } => Ok(()),
        other => bail!("step {at}: `{name}` ended {other:?}"),
    }
}

async fn check_all(site: &Site, shapes: &[Shape]) -> Result<()> {
    for shape in shapes {
        let Some(_) = site
            .lab
            .world
            .tables
            .pin(&table(shape.name)?)
            .await
            .map_err(|e| rows::chain(&e))?
        else {
            continue;
        };
        let want = site
            .cells(shape.sql)
            .await
            .with_context(|| shape.name.to_owned())?;
        let got = site.cells(&format!("SELECT * FROM {}", shape.name)).await?;
        compare(shape.name, got, &want, &[])?;
    }
    Ok(())
}

/// Status says it before, and the refresh after.
async fn told() -> Result<()> {
    let shapes = shapes::all();
    let mut models = vec![orders(), customers(), shapes::view()];
    let of = |shape: &Shape| auto(shape.name, shape.key, shape.sql);
    models.extend(shapes.iter().map(of));
    let site = Site::in_memory(&models, "")?;
    let (mut dice, mut lsn) = (Dice::new(3), 20);
    for at in 0..4 {
        let row = json!({ "id": at, "customer": at, "region": "eu", "amount": at + 2 });
        change(&site, "orders", "U", 10 + at, row).await?;
        let row = json!({ "id": at, "segment": "a", "boss": at });
        change(&site, "customers", "U", 10 + at, row).await?;
        site.cycle().await?;
    }
    for _ in 0..30 {
        step(&site, &mut dice, &mut lsn).await?;
    }
    let status = engine::status::status(&site.lab.world, None).await;
    let status = status.map_err(|error| rows::chain(&error))?;
    let report = site.lab.cycle().await?;
    for shape in &shapes {
        let name = table(shape.name)?;
        let before = status.models.iter().find(|model| model.model == name);
        let before = before.with_context(|| format!("no status of {name}"))?;
        ensure!(before.recomputes.is_none() == shape.traced, "{before:?}");
        let Some(Refreshed::Built { recomputed, .. }) = report.models.get(&name) else {
            bail!("{name} was not due: {report:?}");
        };
        ensure!(
            recomputed.is_none() == shape.traced,
            "{name}: {recomputed:?}"
        );
    }
    Ok(())
}

const TOTALS: &str =
    "SELECT region, count(*) AS n, sum(amount) AS total FROM silver.orders GROUP BY region";

async fn order(site: &Site, op: &str, lsn: u64, id: u64, region: &str, amount: u64) -> Result<()> {
    let row = json!({ "id": id, "customer": id, "region": region, "amount": amount });
    change(site, "orders", op, lsn, row).await
}

async fn moves() -> Result<()> {
    let site = Site::in_memory(&[orders(), auto("gold.regions", "", TOTALS)], "")?;
    let read = "SELECT region, n, total FROM gold.regions ORDER BY region";
    order(&site, "I", 1, 1, "EU", 10).await?;
    order(&site, "I", 2, 2, "EU", 20).await?;
    order(&site, "I", 3, 3, "US", 5).await?;
    site.cycle().await?;
    expect(&site, read, json!([["EU", 2, 30], ["US", 1, 5]])).await?;
    order(&site, "U", 4, 1, "US", 10).await?;
    site.cycle().await?;
    expect(&site, read, json!([["EU", 1, 20], ["US", 2, 15]])).await?;
    // n05: a delete reaches the next level, and the last row of a group takes the group with it.
    order(&site, "D", 5, 3, "US", 5).await?;
    site.cycle().await?;
    expect(&site, read, json!([["EU", 1, 20], ["US", 1, 10]])).await?;
    order(&site, "D", 6, 1, "US", 10).await?;
    site.cycle().await?;
    expect(&site, read, json!([["EU", 1, 20]])).await
}

async fn chain() -> Result<()> {
    let per_customer =
        "SELECT o.customer, o.region, sum(o.amount) AS total FROM silver.orders AS o GROUP BY 1, 2";
    let per_region = "SELECT region, count(*) AS customers, sum(total) AS total FROM gold.customers GROUP BY region";
    let models = [
        orders(),
        auto("gold.customers", "", per_customer),
        auto("gold.regions", "region", per_region),
    ];
    let site = Site::in_memory(&models, "")?;
    let read = "SELECT region, customers, total FROM gold.regions ORDER BY region";
    for id in 0..6 {
        order(
            &site,
            "I",
            id + 1,
            id,
            ["EU", "US"][usize::try_from(id % 2)?],
            10 + id,
        )
        .await?;
    }
    site.cycle().await?;
    expect(&site, read, json!([["EU", 3, 36], ["US", 3, 39]])).await?;
    order(&site, "U", 10, 0, "US", 10).await?;
    order(&site, "D", 11, 2, "EU", 0).await?;
    site.cycle().await?;
    expect(&site, read, json!([["EU", 1, 14], ["US", 4, 49]])).await?;
    order(&site, "D", 12, 4, "EU", 0).await?;
    site.cycle().await?;
    expect(&site, read, json!([["US", 4, 49]])).await
}

async fn edited() -> Result<()> {
    let mut site = Site::in_memory(&[orders(), auto("gold.regions", "", TOTALS)], "")?;
    order(&site, "I", 1, 1, "EU", 10).await?;
    order(&site, "I", 2, 2, "US", 20).await?;
    site.cycle().await?;
    let doubled = TOTALS.replace("sum(amount)", "2 * sum(amount)");
    site.lab
        .set_models(&[orders(), auto("gold.regions", "", &doubled)])?;
    order(&site, "U", 3, 1, "EU", 11).await?;
    site.cycle().await?;
    let read = "SELECT region, total FROM gold.regions ORDER BY region";
    expect(&site, read, json!([["EU", 22], ["US", 40]])).await?;
    // All rows are the new definition's, and so are the columns.
    for (lsn, definition, all) in [
        (
            4,
            TOTALS.replace("sum(amount)", "sum(amount)::VARCHAR"),
            json!([["EU", 1, "12"], ["US", 1, "20"]]),
        ),
        (
            5,
            String::from("SELECT region, sum(amount) AS total FROM silver.orders GROUP BY region"),
            json!([["EU", 12], ["US", 20]]),
        ),
    ] {
        site.lab
            .set_models(&[orders(), auto("gold.regions", "", &definition)])?;
        order(&site, "U", lsn, 1, "EU", 12).await?;
        site.cycle().await?;
        expect(&site, "SELECT * FROM gold.regions ORDER BY region", all).await?;
    }
    let mut strict = auto(
        "gold.regions",
        "",
        "SELECT region, count(*) AS n FROM silver.orders GROUP BY region",
    );
    strict
        .config
        .insert(String::from("on_schema_change"), String::from("fail"));
    site.lab.set_models(&[orders(), strict])?;
    order(&site, "U", 6, 1, "EU", 13).await?;
    let report = site.lab.cycle().await?;
    let how = &report.models[&table("gold.regions")?];
    ensure!(!matches!(how, Refreshed::Built { .. }), "{how:?}");
    expect(&site, read, json!([["EU", 12], ["US", 20]])).await
}

async fn edited_view() -> Result<()> {
    let reads = auto(
        "gold.viewed",
        "",
        "SELECT who, count(*) AS n FROM silver.large GROUP BY who",
    );
    let mut site = Site::in_memory(&[orders(), shapes::view(), reads.clone()], "")?;
    order(&site, "I", 1, 1, "EU", 10).await?;
    order(&site, "I", 2, 2, "US", 20).await?;
    site.cycle().await?;
    let read = "SELECT sum(n) AS n FROM gold.viewed";
    expect(&site, read, json!([[2]])).await?;
    let mut view = shapes::view();
    view.sql = view.sql.replace("amount > 2", "amount > 15");
    site.lab.set_models(&[orders(), view, reads])?;
    // A change that touches none of the groups there are.
    order(&site, "I", 3, 3, "US", 1).await?;
    site.cycle().await?;
    expect(&site, read, json!([[1]])).await
}

async fn lost() -> Result<()> {
    let site = Site::in_memory(&[orders(), auto("gold.regions", "", TOTALS)], "")?;
    order(&site, "I", 1, 1, "EU", 10).await?;
    site.cycle().await?;
    pause(&site, "gold.regions", true).await?;
    for lsn in 2..57 {
        order(&site, "U", lsn, 1 + lsn % 2, "US", lsn).await?;
        site.lab.cycle().await?;
    }
    pause(&site, "gold.regions", false).await?;
    let report = site.lab.cycle().await?;
    let how = &report.models[&table("gold.regions")?];
    let anew =
        matches!(how, Refreshed::Built { recomputed: Some(why), .. } if why.contains("expired"));
    ensure!(anew, "{how:?}");
    expect(
        &site,
        "SELECT region, n, total FROM gold.regions",
        json!([["US", 2, 111]]),
    )
    .await
}

async fn feed() -> Result<()> {
    let log = model(
        "gold.log",
        json!({ "incremental_strategy": "append" }),
        "SELECT region, n, _change AS what FROM {changes:gold.regions}",
    );
    let models = [orders(), auto("gold.regions", "region", TOTALS), log];
    let site = Site::in_memory(&models, "")?;
    order(&site, "I", 1, 1, "EU", 10).await?;
    order(&site, "I", 2, 2, "US", 20).await?;
    site.cycle().await?;
    order(&site, "U", 3, 1, "US", 10).await?;
    site.cycle().await?;
    // Nothing a group has changes: neither does the group.
    order(&site, "U", 4, 1, "US", 10).await?;
    site.cycle().await?;
    let read = "SELECT region, n, what FROM gold.log ORDER BY what, region";
    let want = json!([
        ["EU", 1, "delete"],
        ["EU", 1, "insert"],
        ["US", 1, "insert"],
        ["US", 2, "update_after"],
        ["US", 1, "update_before"]
    ]);
    expect(&site, read, want).await
}

async fn keys() -> Result<()> {
    let sql = "SELECT score, region, customer % 2 = 0 AS even, make_date(2026, 1, (1 + customer)::INT) AS day, \
               amount::DECIMAL(10, 2) AS exact, count(*) AS n FROM silver.orders GROUP BY 1, 2, 3, 4, 5";
    let site = Site::in_memory(&[orders(), auto("gold.x", "", sql)], "")?;
    let mut dice = Dice::new(9);
    let mut lsn = 0;
    for at in 0..10 {
        for _ in 0..4 {
            step(&site, &mut dice, &mut lsn).await?;
        }
        let report = cycle::run(&site.lab.world, &cycle::Silent)
            .await
            .map_err(|error| rows::chain(&error))?;
        if let Some(how) = report.models.get(&table("gold.x")?) {
            check_outcome(&[], "gold.x", how, at)?;
        }
        let want = site.cells(sql).await?;
        let got = site.cells("SELECT * FROM gold.x").await?;
        compare(&format!("step {at}"), got, &want, &[])?;
    }
    Ok(())
}
