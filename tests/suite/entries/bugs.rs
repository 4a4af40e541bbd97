//! Bugs of this field, by their number in the list of bug reports.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use domain::Duration;
use embedded::SystemClock;
use futures::future::join_all;
use libtest_mimic::Trial;
use ports::{
    Clock, Query,
    query::{Catalog, Statement},
    tables::{Rows, Scan},
};
use serde_json::{Value, json};
use tests::{
    site::Site,
    world::{Adapter, Lab},
};

use super::{Desk, rows};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "entries::n27_a_deadline_of_now_is_over_now",
            deadline_of_now,
        ),
        test_async("entries::n33_an_expired_entry_that_is_still_there", expired),
        test_async("entries::n35_cold_callers_compute_once", cold),
        test_async(
            "entries::n35_stale_callers_are_served_and_one_rebuilds",
            stale,
        ),
        test_async(
            "entries::n35_a_failed_build_is_no_success_and_holds_nobody_up",
            failing,
        ),
        test_async("entries::n37_types_do_not_share_one_space", types),
        test_async("entries::n51_this_is_a_table_and_no_text", this),
        test_async(
            "entries::n57_a_large_result_does_not_ride_in_the_registry",
            large,
        ),
        test_async("entries::n59_no_rows_are_a_result", empty),
    ]
}

async fn deadline_of_now() -> Result<()> {
    let desk = Desk::new()?;
    let first = desk.lease(json!({ "lease": 0 })).await?;
    let second = desk.lease(json!({ "lease": 60 })).await?;
    ensure!(first != second);
    let held = desk.send("POST", "/lease", json!({})).await?;
    ensure!(held.status == 202, "{}", held.text());
    ensure!(!held.header("retry-after").is_empty(), "no Retry-After");
    Ok(())
}

async fn expired() -> Result<()> {
    for (mode, at_expiry) in [("strict", 404), ("swr", 200)] {
        let desk = Desk::new()?;
        desk.build(json!({ "ttl": 60, "mode": mode }), &rows())
            .await?;
        let clock = desk.site.lab.clock.clone();
        let start = clock.now();
        // Clocks of two processes may be apart: each judges by its own, and nothing breaks either way.
        for (after, status) in [
            (0, 200),
            (59, 200),
            (60, at_expiry),
            (120, at_expiry),
            (-60, 200),
        ] {
            clock.set(domain::Timestamp(start.0 + after * 1_000_000));
            let found = desk.get().await?;
            ensure!(
                found.status == status,
                "{mode} after {after} s: {}",
                found.text()
            );
        }
        clock.set(domain::Timestamp(start.0 + 60_000_000));
        // Strict: a miss, and the caller builds. Stale while revalidating: the entry, and one of the callers builds.
        let first = desk.send("POST", "/lease", json!({ "mode": mode })).await?;
        let second = desk.send("POST", "/lease", json!({ "mode": mode })).await?;
        let wanted = if mode == "swr" {
            (200, 200)
        } else {
            (201, 202)
        };
        ensure!(
            (first.status, second.status) == wanted,
            "{mode}: {} {}",
            first.status,
            second.status
        );
        ensure!(
            first.json()?["lease"]["token"].is_string(),
            "{mode}: nobody builds"
        );
        ensure!(second.json()?.get("lease").is_none(), "{mode}: two build");
        // Without a sweep the row is still there, whatever its age.
        ensure!(desk.listed().await? == 1);
    }
    Ok(())
}

/// A query engine that takes its time, and counts.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Query>,
    runs: AtomicUsize,
    fails: bool,
}

#[async_trait]
impl Query for Slow {
    async fn run(&self, statement: &Statement, catalog: &Catalog) -> ports::Result<Rows> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(300)).await;
        match self.fails {
            true => Err(ports::Error::new(
                ports::Kind::Unavailable,
                "run",
                "statement",
            )),
            false => self.inner.run(statement, catalog).await,
        }
    }

    async fn describe(
        &self,
        statement: &Statement,
        catalog: &Catalog,
    ) -> ports::Result<arrow::datatypes::SchemaRef> {
        self.inner.describe(statement, catalog).await
    }

    async fn over(&self, statement: &Statement, entry: &Scan) -> ports::Result<Rows> {
        self.inner.over(statement, entry).await
    }
}

/// A site whose clock is that of the machine, and whose queries take a third of a second.
fn slow(fails: bool) -> Result<(Arc<Site>, Arc<Slow>)> {
    let mut lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let slow = Arc::new(Slow {
        inner: lab.world.query.clone(),
        runs: AtomicUsize::new(0),
        fails,
    });
    lab.world.query = slow.clone();
    lab.world.clock = Arc::new(SystemClock);
    Ok((Arc::new(Site::new(lab, "")?), slow))
}

async fn ask(site: &Site, body: &Value) -> Result<(u16, String)> {
    let answer = site
        .send("POST", "/api/materialize/query", &[], body.to_string())
        .await?;
    Ok((answer.status, answer.header("headwater-entry").to_owned()))
}

async fn many(site: &Site, body: &Value, callers: usize) -> Result<Vec<(u16, String)>> {
    let asked = (0..callers).map(|_| ask(site, body));
    join_all(asked).await.into_iter().collect()
}

async fn cold() -> Result<()> {
    let (site, slow) = slow(false)?;
    let body = json!({ "sql": "SELECT 1 AS one" });
    let answers = many(&site, &body, 100).await?;
    ensure!(
        slow.runs.load(Ordering::SeqCst) == 1,
        "{} builds",
        slow.runs.load(Ordering::SeqCst)
    );
    let built = answers.iter().filter(|(_, how)| how == "built").count();
    let hits = answers
        .iter()
        .filter(|(status, how)| *status == 200 && how == "hit")
        .count();
    ensure!((built, hits) == (1, 99), "{built} built, {hits} hits");
    // Who does not want to wait is told to come again.
    let body = json!({ "sql": "SELECT 2 AS two", "wait": 0 });
    let answers = many(&site, &body, 10).await?;
    let told = answers.iter().filter(|(status, _)| *status == 202).count();
    ensure!(
        told == 9 && slow.runs.load(Ordering::SeqCst) == 2,
        "{answers:?}"
    );
    Ok(())
}

async fn stale() -> Result<()> {
    let (site, slow) = slow(false)?;
    let body = json!({ "sql": "SELECT 1 AS one", "ttl": "100ms" });
    ask(&site, &body).await?;
    tokio::time::sleep(Duration::from_millis(150)).await;
    let began = std::time::Instant::now();
    let answers = many(&site, &body, 1_000).await?;
    let stale = answers
        .iter()
        .filter(|(status, how)| *status == 200 && how == "stale")
        .count();
    // Those that come after the rebuild find it.
    let fresh = answers
        .iter()
        .filter(|(status, how)| *status == 200 && how == "hit")
        .count();
    ensure!(
        stale + fresh == 1_000 && stale > 0,
        "{stale} stale, {fresh} fresh"
    );
    println!("1,000 callers served in {:?}", began.elapsed());
    tokio::time::sleep(Duration::from_millis(500)).await;
    // One rebuild for them all; a ttl of 100 ms can have begun a second by now, and no more.
    let runs = slow.runs.load(Ordering::SeqCst);
    ensure!((2..=3).contains(&runs), "{runs} builds");
    Ok(())
}

async fn failing() -> Result<()> {
    let (site, slow) = slow(true)?;
    let body = json!({ "sql": "SELECT 1 AS one" });
    let (status, _) = ask(&site, &body).await?;
    ensure!(status == 503, "{status}");
    let listed = site.send("GET", "/api/materialize", &[], "").await?;
    ensure!(listed.json()?["entries"] == json!([]), "{}", listed.text());
    // The next one tries again at once.
    ask(&site, &body).await?;
    ensure!(slow.runs.load(Ordering::SeqCst) == 2);
    Ok(())
}

async fn types() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    let pairs = [
        (r#"{"$decimal": "1.5"}"#, r#""decimal:1.5""#),
        (r#"{"$bytes": "6869"}"#, r#""bytes:6869""#),
        (r#"{"$set": [1]}"#, "[1]"),
        (r#"{"$tuple": [1]}"#, "[1]"),
        (r#"{"$map": [[1, "a"]]}"#, r#"{"1": "a"}"#),
        (r#"{"$map": [[true, 1]]}"#, r#"{"true": 1}"#),
    ];
    for (a, b) in pairs {
        let mut prints = Vec::new();
        for argument in [a, b] {
            let body = format!(r#"{{"name": "f", "args": [{argument}]}}"#);
            let answer = site
                .send("POST", "/api/materialize/fingerprint", &[], body)
                .await?;
            ensure!(answer.status == 200, "{}", answer.text());
            prints.push(answer.json()?["fingerprint"].clone());
        }
        ensure!(prints[0] != prints[1], "{a} and {b} share an entry");
    }
    Ok(())
}

async fn this() -> Result<()> {
    let desk = Desk::new()?;
    let named = [
        json!({ "this": "a", "n": 1 }),
        json!({ "this": "b", "n": 2 }),
    ];
    // Inline, and from the file.
    for inline_max in [Value::Null, json!(0)] {
        let token = desk.lease(json!({ "ttl": null })).await?;
        desk.upload(&token, tests::parquet::of_objects(&named)?)
            .await?;
        let body = json!({ "token": token, "inline_max": inline_max });
        desk.send("POST", "/commit", body).await?;
        for (sql, expected) in [
            (
                "SELECT 1 AS one -- it's\nFROM this -- that's\nLIMIT 1",
                json!([{ "one": 1 }]),
            ),
            (
                "SELECT t.this FROM this t ORDER BY 1",
                json!([{ "this": "a" }, { "this": "b" }]),
            ),
            ("SELECT 1 AS this FROM this LIMIT 1", json!([{ "this": 1 }])),
            ("SELECT count(*) AS n FROM THIS", json!([{ "n": 2 }])),
            (
                "WITH this AS (SELECT 7 AS x) SELECT x FROM this",
                json!([{ "x": 7 }]),
            ),
            (
                "WITH this AS (SELECT n FROM this WHERE n > 1) SELECT n FROM this",
                json!([{ "n": 2 }]),
            ),
            (
                "SELECT 'this' AS word, /* this */ this.n FROM this WHERE this = 'b'",
                json!([{ "n": 2, "word": "this" }]),
            ),
        ] {
            let got = desk.query(sql).await?;
            ensure!(got == expected, "`{sql}` gives {got}");
        }
        ensure!(desk.send("DELETE", "", json!({})).await?.status == 200);
    }
    Ok(())
}

async fn large() -> Result<()> {
    let desk = Desk::new()?;
    let text = |at: usize| {
        let noise = domain::fingerprint::digest(at.to_string().as_bytes());
        json!({ "text": noise })
    };
    // About 450 KB of text that does not compress, and then what as text is just below the limit.
    let rows: Vec<Value> = (0..7_000).map(text).collect();
    let entry = desk.build(json!({}), &rows).await?;
    ensure!(
        entry["inline"] == false && entry["row_count"] == 7_000,
        "{entry}"
    );
    ensure!(desk.query("SELECT count(*) AS n FROM this").await? == json!([{ "n": 7_000 }]));
    desk.send("DELETE", "", json!({})).await?;
    let rows: Vec<Value> = (0..2_500).map(text).collect();
    let entry = desk.build(json!({}), &rows).await?;
    ensure!(entry["inline"] == true, "{entry}");
    let length = entry["inline_length"].as_u64().unwrap_or(0);
    ensure!(length <= 256 << 10, "{length} bytes ride inline");
    Ok(())
}

async fn empty() -> Result<()> {
    let site = Site::in_memory(&[], "")?;
    site.event("t", r#"{"a": 1}"#).await?;
    for sql in [
        "SELECT * FROM landing.t WHERE 1=0",
        "SELECT id, _seq FROM landing.t LIMIT 0",
    ] {
        let body = json!({ "sql": sql });
        let mut served = Vec::new();
        for _ in 0..2 {
            let answer = site
                .send("POST", "/api/materialize/query", &[], body.to_string())
                .await?;
            ensure!(answer.status == 200, "{}", answer.text());
            ensure!(answer.json()?["row_count"] == 0, "{}", answer.text());
            ensure!(
                answer.json()?["columns"][0]["name"] == "id",
                "{}",
                answer.text()
            );
            served.push(answer.header("headwater-entry").to_owned());
            let path = format!(
                "/api/materialize/{}/query",
                answer.header("headwater-entry-id")
            );
            let count = json!({ "sql": "SELECT count(*) AS n FROM this" }).to_string();
            let count = site.send("POST", &path, &[], count).await?;
            ensure!(
                count.json()?["rows"] == json!([{ "n": 0 }]),
                "{}",
                count.text()
            );
        }
        ensure!(served == ["built", "hit"], "{served:?}");
    }
    // From outside as well: a file without rows.
    let desk = Desk::on(site)?;
    let none = tests::parquet::batch(&rows())?.slice(0, 0);
    for inline_max in [Value::Null, json!(0)] {
        let token = desk.lease(json!({})).await?;
        desk.upload(&token, tests::parquet::of_batch(&none)?)
            .await?;
        desk.send(
            "POST",
            "/commit",
            json!({ "token": token, "inline_max": inline_max }),
        )
        .await?;
        ensure!(desk.get().await?.status == 200);
        ensure!(desk.query("SELECT count(*) AS c FROM this").await? == json!([{ "c": 0 }]));
        desk.send("DELETE", "", json!({})).await?;
    }
    Ok(())
}
