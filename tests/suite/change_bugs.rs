//! Bugs that others had with changes: deletes, moves, late and repeated events, keys that change. Numbers are those of the
//! list of public reports that this program was built against.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tests::{
    case::ModelText,
    folder::Folder,
    program,
    site::Site,
    world::{Adapter, Lab},
};

use crate::plain::{test, test_async};

mod batches;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = batches::trials();
    trials.extend([
        test_async("bugs::n03_a_row_that_moves_leaves_its_old_group", moves),
        test_async("bugs::n05_a_hard_delete_reaches_the_next_level", deletes),
        test_async(
            "bugs::n07_an_older_insert_does_not_come_back_after_a_delete",
            late,
        ),
        test_async(
            "bugs::n07_after_retention_an_older_insert_is_quarantined",
            late_after_gc,
        ),
        test_async("bugs::n09_a_value_that_did_not_change_stays", unchanged),
        test_async("bugs::n11_a_null_after_a_delete_is_no_event", tombstone),
        test_async("bugs::n13_a_key_that_changes_is_two_changes", moved_key),
        test_async("bugs::n15_a_date_in_the_future_stops_nothing", future),
        test_async("bugs::n17_sequences_are_those_of_commits", sequences),
        test("bugs::n19_naive_timestamps_are_utc_whatever_tz_says", zones),
        test_async(
            "bugs::n61_a_sequence_that_is_none_is_never_newest",
            unsequenced,
        ),
    ]);
    trials
}

fn live(name: &str, config: Value, sql: &str) -> ModelText {
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

/// Orders by change events, deleted for good.
fn silver() -> ModelText {
    live(
        "silver.orders",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
            "cdc_deletes": "hard", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT (payload->>'id')::BIGINT AS id, payload->>'region' AS region, (payload->>'amount')::BIGINT AS amount, \
         op, lsn, _seq FROM landing.orders",
    )
}

/// Totals of the regions that anything changed in, before or after; one without orders is left with a count of 0.
fn gold() -> ModelText {
    live(
        "gold.regions",
        json!({ "incremental_strategy": "delete+insert", "unique_key": "region" }),
        "SELECT c.region, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS total \
         FROM (SELECT DISTINCT region FROM {changes:silver.orders}) AS c \
         LEFT JOIN silver.orders AS o ON o.region = c.region GROUP BY c.region",
    )
}

async fn change(site: &Site, body: Value) -> Result<Value> {
    let headers = [("content-type", "application/json")];
    let answer = site
        .send("POST", "/api/ingest/cdc/orders", &headers, body.to_string())
        .await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text());
    answer.json()
}

/// A change of an order: operation, sequence, id, region, amount.
async fn order(site: &Site, op: &str, lsn: u64, row: (u64, &str, u64)) -> Result<()> {
    let (id, region, amount) = row;
    let payload = json!({ "id": id, "region": region, "amount": amount });
    change(site, json!({ "op": op, "lsn": lsn, "payload": payload })).await?;
    Ok(())
}

async fn expect(site: &Site, sql: &str, expected: Value) -> Result<()> {
    let found = json!(site.cells(sql).await.context(sql.to_owned())?);
    ensure!(found == expected, "{sql}:\n{found}\nexpected\n{expected}");
    Ok(())
}

const REGIONS: &str = "SELECT region, orders, total FROM gold.regions ORDER BY region";

async fn three() -> Result<Site> {
    let site = Site::in_memory(&[silver(), gold()], "")?;
    order(&site, "I", 1, (1, "EU", 10)).await?;
    order(&site, "I", 2, (2, "EU", 20)).await?;
    order(&site, "I", 3, (3, "US", 5)).await?;
    site.cycle().await?;
    expect(&site, REGIONS, json!([["EU", 2, 30], ["US", 1, 5]])).await?;
    Ok(site)
}

async fn moves() -> Result<()> {
    let site = three().await?;
    order(&site, "U", 4, (1, "US", 10)).await?;
    site.cycle().await?;
    expect(&site, REGIONS, json!([["EU", 1, 20], ["US", 2, 15]])).await
}

async fn deletes() -> Result<()> {
    let site = three().await?;
    order(&site, "U", 4, (1, "US", 10)).await?;
    site.cycle().await?;
    order(&site, "D", 5, (3, "US", 5)).await?;
    site.cycle().await?;
    expect(&site, REGIONS, json!([["EU", 1, 20], ["US", 1, 10]])).await?;
    order(&site, "D", 6, (1, "US", 10)).await?;
    site.cycle().await?;
    expect(&site, REGIONS, json!([["EU", 1, 20], ["US", 0, 0]])).await
}

async fn late() -> Result<()> {
    let site = Site::in_memory(&[silver()], "")?;
    for (op, lsn) in [("I", 2), ("D", 9), ("I", 1)] {
        order(&site, op, lsn, (1, "EU", 10)).await?;
        site.cycle().await?;
    }
    expect(&site, "SELECT id FROM silver.orders", json!([])).await?;
    let buried = "SELECT id, lsn FROM silver.orders__tombstones";
    expect(&site, buried, json!([[1, 9]])).await
}

/// A round of all maintenance, so much later.
async fn maintain_after(site: &Site, days: u64) -> Result<engine::maintain::Report> {
    let lab = &site.lab;
    lab.clock
        .advance(domain::Duration::from_secs(days * 86_400));
    let budget = engine::maintain::Budget {
        time: domain::Duration::from_secs(60),
        steps: u32::MAX,
        all: true,
    };
    let now = ports::Clock::now(&*lab.clock);
    let report = engine::maintain::maintain(&lab.world, &budget, now).await;
    ensure!(report.errors.is_empty(), "{report:?}");
    Ok(report)
}

async fn late_after_gc() -> Result<()> {
    let site = Site::in_memory(&[silver()], "")?;
    for (op, lsn) in [("I", 2), ("D", 9)] {
        order(&site, op, lsn, (1, "EU", 10)).await?;
        site.cycle().await?;
    }
    // Inside the retention everything is known.
    ensure!(maintain_after(&site, 6).await?.tombstones == 0, "too early");
    order(&site, "D", 8, (2, "EU", 20)).await?;
    order(&site, "I", 7, (3, "EU", 30)).await?;
    site.cycle().await?;
    ensure!(
        maintain_after(&site, 2).await?.tombstones == 1,
        "one is old"
    );
    let buried = "SELECT id, lsn FROM silver.orders__tombstones";
    expect(&site, buried, json!([[2, 8]])).await?;
    // Older than the tombstone that is gone: of the deleted row, of a row that is there, of a new row, of a buried one.
    for (lsn, id) in [(1, 1), (8, 3), (9, 4), (3, 2)] {
        order(&site, "I", lsn, (id, "US", 40)).await?;
    }
    order(&site, "I", 10, (5, "US", 50)).await?;
    site.cycle().await?;
    let all = "SELECT id, region, lsn FROM silver.orders ORDER BY id";
    expect(&site, all, json!([[3, "US", 8], [5, "US", 10]])).await?;
    let kept = "SELECT (payload->>'id')::BIGINT AS id, split_part(reason, ':', 1) FROM quarantine.orders ORDER BY id";
    let late = json!([[1, "late_after_gc"], [4, "late_after_gc"]]);
    expect(&site, kept, late.clone()).await?;
    let status = site
        .send("GET", "/api/live/status", &[], "")
        .await?
        .json()?;
    ensure!(status["models"][0]["late_after_gc"] == 2, "{status}");
    // Nothing but such an event is no commit, and is kept all the same.
    order(&site, "I", 9, (6, "US", 60)).await?;
    site.cycle().await?;
    expect(&site, all, json!([[3, "US", 8], [5, "US", 10]])).await?;
    expect(
        &site,
        "SELECT count(*) FROM quarantine.orders",
        json!([[3]]),
    )
    .await
}

/// Rows with a text, and a number that may be without a value.
fn notes() -> ModelText {
    live(
        "silver.notes",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
            "cdc_deletes": "hard", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT (payload->>'id')::BIGINT AS id, payload->>'body' AS text, payload->>'status' AS status, \
         NULLIF(payload->>'n', '__debezium_unavailable_value')::BIGINT AS n, op, lsn, unavailable, _seq \
         FROM landing.orders",
    )
}

fn update(lsn: u64, after: Value) -> Value {
    json!({ "op": "u", "before": null, "after": after, "source": { "lsn": lsn } })
}

const NOTES: &str = "SELECT id, text, status, n, unavailable FROM silver.notes ORDER BY id";

async fn unchanged() -> Result<()> {
    const ABSENT: &str = "__debezium_unavailable_value";
    let row = json!({ "id": 1, "body": "long text", "status": "new", "n": 7 });
    let events = [
        json!({ "op": "c", "before": null, "after": row, "source": { "lsn": 1 } }),
        update(
            2,
            json!({ "id": 1, "body": ABSENT, "status": "paid", "n": ABSENT }),
        ),
        update(
            3,
            json!({ "id": 1, "body": ABSENT, "status": "sent", "n": 8 }),
        ),
        // Nobody has told what the text of this one is.
        update(
            4,
            json!({ "id": 2, "body": ABSENT, "status": "new", "n": ABSENT }),
        ),
        update(
            2,
            json!({ "id": 1, "body": ABSENT, "status": "paid", "n": ABSENT }),
        ),
    ];
    for together in [1, 2, 5] {
        let site = Site::in_memory(&[notes()], "")?;
        for some in events.chunks(together) {
            change(&site, json!(some)).await?;
            site.cycle().await?;
        }
        let expected = json!([
            [1, "long text", "sent", 8, null],
            [2, null, "new", null, "[\"text\",\"n\"]"]
        ]);
        expect(&site, NOTES, expected).await?;
        let status = site
            .send("GET", "/api/live/status", &[], "")
            .await?
            .json()?;
        let told = &status["models"][0]["unavailable_values"];
        ensure!(*told == 2, "{told}");
    }
    // What stands for such a value is a setting.
    let mut lab = Lab::new(Adapter::Memory, &[notes()], domain::LiveSettings::default())?;
    lab.world.live = std::sync::Arc::new(domain::LiveSettings {
        unavailable_value: domain::cdc::Placeholder::new("(same)"),
        ..domain::LiveSettings::clone(&lab.world.live)
    });
    let site = Site::new(lab, "")?;
    change(&site, json!([events[0]])).await?;
    let same = json!({ "id": 1, "body": "(same)", "status": ABSENT, "n": 9 });
    change(&site, update(2, same)).await?;
    site.cycle().await?;
    let expected = json!([[1, "long text", ABSENT, 9, null]]);
    expect(&site, NOTES, expected).await
}

async fn tombstone() -> Result<()> {
    let site = Site::in_memory(&[silver()], "")?;
    order(&site, "I", 1, (1, "EU", 10)).await?;
    let lines =
        "{\"op\":\"d\",\"before\":{\"id\":1},\"after\":null,\"source\":{\"lsn\":2}}\nnull\n";
    let headers = [("content-type", "application/x-ndjson")];
    let answer = site
        .send("POST", "/api/ingest/cdc/orders", &headers, lines)
        .await?;
    let told = answer.json()?;
    ensure!(answer.status == 202 && told["rows"] == 1, "{told}");
    ensure!(told["ignored"] == 1 && told["quarantined"] == 0, "{told}");
    site.cycle().await?;
    expect(&site, "SELECT id FROM silver.orders", json!([])).await
}

async fn moved_key() -> Result<()> {
    let one = json!([{ "op": "u", "before": { "id": 1, "region": "EU", "amount": 10 },
        "after": { "id": 7, "region": "EU", "amount": 10 }, "source": { "lsn": 5 } }]);
    let two = json!([
        { "op": "d", "before": { "id": 1, "region": "EU", "amount": 10 }, "after": null, "source": { "lsn": 5 } },
        { "op": "c", "before": null, "after": { "id": 7, "region": "EU", "amount": 10 }, "source": { "lsn": 5 } },
    ]);
    for encoding in [one, two] {
        let site = Site::in_memory(&[silver()], "")?;
        order(&site, "I", 1, (1, "EU", 10)).await?;
        site.cycle().await?;
        change(&site, encoding).await?;
        site.cycle().await?;
        expect(
            &site,
            "SELECT id, region, amount FROM silver.orders",
            json!([[7, "EU", 10]]),
        )
        .await?;
        expect(
            &site,
            "SELECT id FROM silver.orders__tombstones",
            json!([[1]]),
        )
        .await?;
    }
    Ok(())
}

async fn future() -> Result<()> {
    let model = live(
        "silver.events",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT payload->>'id' AS id, (payload->>'at')::TIMESTAMP AS at, _seq FROM landing.events",
    );
    let site = Site::in_memory(&[model], "")?;
    for (id, at) in [
        ("a", "2026-01-01T02:00:00Z"),
        ("b", "2026-01-01T00:00:00Z"),
        ("c", "2026-01-01T00:00:01Z"),
    ] {
        site.event("events", json!({ "id": id, "at": at }).to_string())
            .await?;
        site.cycle().await?;
    }
    expect(
        &site,
        "SELECT id FROM silver.events ORDER BY id",
        json!([["a"], ["b"], ["c"]]),
    )
    .await
}

async fn sequences() -> Result<()> {
    let model = live(
        "silver.events",
        json!({ "incremental_strategy": "append", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT payload->>'id' AS id, _seq FROM landing.events",
    );
    let lab = Lab::new(Adapter::Embedded, &[model], domain::LiveSettings::default())?;
    let site = Site::new(lab, "")?;
    let slow = site.event("events", r#"{"id":"a"}"#);
    let quick = site.event("events", r#"{"id":"b"}"#);
    // The first has begun and waits for its thread; the second commits, and a refresh runs, before anybody asks for it.
    futures::pin_mut!(slow);
    ensure!(
        futures::poll!(slow.as_mut()).is_pending(),
        "a commit takes a thread of its own"
    );
    quick.await?;
    site.cycle().await?;
    slow.await?;
    site.cycle().await?;
    expect(
        &site,
        "SELECT count(*), min(_seq), max(_seq) FROM silver.events",
        json!([[2, 1, 2]]),
    )
    .await?;
    expect(
        &site,
        "SELECT DISTINCT id FROM silver.events ORDER BY id",
        json!([["a"], ["b"]]),
    )
    .await
}

fn zones() -> Result<()> {
    let model = live(
        "gold.days",
        json!({ "incremental_strategy": "delete+insert", "unique_key": "day", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT date_trunc('day', at)::DATE AS day, id, at, _seq FROM landing.events",
    );
    let rows = "id,at\n1,2025-02-28 18:19:00\n2,2025-03-01 00:19:00\n3,2025-11-02 01:30:00\n4,2025-11-02 01:30:00\n";
    let mut found = Vec::new();
    for zone in ["UTC", "America/Chicago"] {
        let folder = Folder::with_models("", std::slice::from_ref(&model))?;
        let file = folder.path().join("events.csv");
        std::fs::write(&file, rows)?;
        let run = |arguments: &[&str]| -> Result<String> {
            let output = program::command()?
                .env("TZ", zone)
                .arg("--project")
                .arg(folder.path())
                .args(arguments)
                .output()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{zone} {arguments:?}: {text}");
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let path = file.to_string_lossy().into_owned();
        // Twice: what a batch replaces must be what it selects.
        for _ in 0..2 {
            run(&["ingest", &path, "--table", "landing.events"])?;
            run(&["run"])?;
        }
        found.push(run(&[
            "query",
            "--json",
            "SELECT day, count(*) AS n FROM gold.days GROUP BY day ORDER BY day",
        ])?);
    }
    ensure!(found[0] == found[1], "{found:?}");
    let told: Value = serde_json::from_str(&found[0])?;
    let days = json!([
        { "day": "2025-02-28", "n": 1 }, { "day": "2025-03-01", "n": 1 }, { "day": "2025-11-02", "n": 2 },
    ]);
    ensure!(told["rows"] == days, "{told}");
    Ok(())
}

async fn unsequenced() -> Result<()> {
    let text = live(
        "silver.orders",
        json!({ "incremental_strategy": "merge", "unique_key": "id", "cdc_op": "op", "cdc_seq": "lsn",
            "cdc_deletes": "hard", "incremental_filter": "WHERE _seq > {watermark}" }),
        "SELECT (payload->>'id')::BIGINT AS id, (payload->>'amount')::BIGINT AS amount, payload->>'op' AS op, \
         payload->>'lsn' AS lsn, _seq FROM landing.orders",
    );
    let site = Site::in_memory(&[text], "")?;
    for (amount, lsn) in [
        (20, json!("2")),
        (99, json!(null)),
        (30, json!("9")),
        (40, json!("10")),
        (50, json!("9")),
        (60, json!("abc")),
    ] {
        let event = json!({ "id": 2, "amount": amount, "op": "U", "lsn": lsn });
        site.event("orders", event.to_string()).await?;
        site.cycle().await?;
    }
    expect(
        &site,
        "SELECT amount, lsn FROM silver.orders",
        json!([[40, "10"]]),
    )
    .await?;
    let kept = "SELECT payload->>'amount', model FROM quarantine.orders ORDER BY 1";
    expect(
        &site,
        kept,
        json!([["60", "silver.orders"], ["99", "silver.orders"]]),
    )
    .await?;
    let status = site
        .send("GET", "/api/live/status", &[], "")
        .await?
        .json()?;
    let told = &status["models"][0]["unordered_events"];
    ensure!(*told == 2, "{told}");
    Ok(())
}
