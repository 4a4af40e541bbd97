//! Signed links to the data of entries: for a while, for this data and nothing else, whole or in parts.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use client::{Served, Settings};
use libtest_mimic::Trial;
use serde_json::Value;
use tests::{
    http::Answer,
    site::Site,
    world::{Adapter, Lab},
};

use super::{Bench, counted, rows, signups};
use crate::plain::{test_async, test_emulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("client::a_link_reads_its_data_and_nothing_else", signed),
        test_async("client::a_link_is_read_in_parts", parts),
        test_async(
            "client::a_link_that_was_over_before_it_was_used_is_asked_for_anew",
            over,
        ),
        test_emulated("client::on_aws_a_link_is_a_presigned_address", presigned),
    ]
}

const REMOTE: &str = "materialize:\n  inline_max: 1B\n";

/// A stored entry that does not ride inline, and the link to it.
async fn linked(yaml: &str) -> Result<(Bench, String)> {
    let bench = Bench::told(yaml, Settings::default())?;
    counted(bench.source.clone(), 0).await?;
    ensure!(bench.source.client.flush().await.stored == 1);
    let found = counted(bench.source.clone(), 0).await?;
    let answer = bench
        .site
        .send(
            "GET",
            &format!("/api/materialize/{}", found.meta().id),
            &[],
            "",
        )
        .await?
        .json()?;
    let href = answer["url"]["href"]
        .as_str()
        .with_context(|| answer.to_string())?
        .to_owned();
    Ok((bench, href))
}

async fn get(bench: &Bench, href: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    bench.site.send("GET", href, headers, "").await
}

async fn signed() -> Result<()> {
    let (bench, href) = linked(REMOTE).await?;
    let whole = get(&bench, &href, &[]).await?;
    ensure!(
        whole.status == 200 && whole.body.starts_with(b"PAR1"),
        "{}",
        whole.text()
    );
    let (path, query) = href.split_once('?').context("no query")?;
    let pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let with = |name: &str, value: &str| {
        let each = pairs.iter().map(|(key, known)| match *key == name {
            true => format!("{key}={value}"),
            false => format!("{key}={known}"),
        });
        format!("{path}?{}", each.collect::<Vec<_>>().join("&"))
    };
    let other = path.replacen(char::is_numeric, "f", 1);
    for changed in [
        with("generation", ".."),
        with("generation", "..%2F..%2Fstate"),
        with("expires", "9000000000000000"),
        with("signature", "00"),
        with("signature", &"0".repeat(64)),
        format!("{other}?{query}"),
    ] {
        let answer = get(&bench, &changed, &[]).await?;
        ensure!(
            answer.status == 403,
            "{changed}: {} {}",
            answer.status,
            answer.text()
        );
        let problem: Value = answer.json()?;
        ensure!(
            problem["type"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("link-over")),
            "{problem}"
        );
    }
    ensure!(get(&bench, path, &[]).await?.status == 400);
    bench.site.lab.clock.advance(Duration::from_secs(600));
    ensure!(get(&bench, &href, &[]).await?.status == 403);
    Ok(())
}

async fn parts() -> Result<()> {
    let (bench, href) = linked(REMOTE).await?;
    let whole = get(&bench, &href, &[]).await?;
    let size = whole.body.len();
    let tag = whole.header("etag").to_owned();
    ensure!(whole.header("accept-ranges") == "bytes" && !tag.is_empty());
    for (range, from, to) in [
        (String::from("bytes=0-3"), 0, 4),
        (format!("bytes=4-{}", size * 2), 4, size),
        (format!("bytes={}-", size - 4), size - 4, size),
        (String::from("bytes=-8"), size - 8, size),
    ] {
        let part = get(&bench, &href, &[("range", &range), ("if-range", &tag)]).await?;
        ensure!(part.status == 206, "{range}: {}", part.status);
        ensure!(part.body == whole.body[from..to], "{range}");
        let said = format!("bytes {from}-{}/{size}", to - 1);
        ensure!(
            part.header("content-range") == said,
            "{}",
            part.header("content-range")
        );
    }
    let beyond = get(&bench, &href, &[("range", &format!("bytes={size}-"))]).await?;
    ensure!(beyond.status == 416 && beyond.header("content-range") == format!("bytes */{size}"));
    for headers in [
        [("range", "bytes=0-3"), ("if-range", "\"other\"")],
        [("range", "lines=1-2"), ("x", "y")],
    ] {
        let answer = get(&bench, &href, &headers).await?;
        ensure!(answer.status == 200 && answer.body == whole.body);
    }
    let known = get(&bench, &href, &[("if-none-match", &tag)]).await?;
    ensure!(known.status == 304 && known.body.is_empty());
    let head = bench.site.send("HEAD", &href, &[], "").await?;
    ensure!(head.status == 200 && head.header("content-length") == size.to_string());
    Ok(())
}

async fn over() -> Result<()> {
    let (bench, _) = linked(REMOTE).await?;
    let frame = counted(bench.source.clone(), 0).await?;
    ensure!(frame.served() == Served::Hit);
    bench.way.sent();
    // Held for longer than its link is good for.
    bench.site.lab.clock.advance(Duration::from_secs(1_200));
    ensure!(rows(&frame).await? == signups(0));
    let sent = bench.way.sent();
    let expected = [
        "GET /api/materialize/data",
        "GET /api/materialize",
        "GET /api/materialize/data",
    ];
    ensure!(sent == expected, "{sent:?}");
    ensure!(bench.source.calls() == 1);
    Ok(())
}

async fn presigned() -> Result<()> {
    let mut lab = Lab::open(Adapter::Aws, &[], domain::LiveSettings::default()).await?;
    let signer = lab.place.as_ref().context("no place")?.s3();
    lab.world.entries = Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(signer));
    let bench = Bench::on(Site::new(lab, REMOTE)?, Settings::default());
    counted(bench.source.clone(), 0).await?;
    ensure!(bench.source.client.flush().await.stored == 1);
    let frame = counted(bench.source.clone(), 0).await?;
    let path = format!("/api/materialize/{}", frame.meta().id);
    let answer = bench.site.send("GET", &path, &[], "").await?.json()?;
    let href = answer["url"]["href"]
        .as_str()
        .with_context(|| answer.to_string())?;
    ensure!(
        href.starts_with("http") && href.contains("X-Amz-Signature"),
        "{href}"
    );
    ensure!(frame.served() == Served::Hit && rows(&frame).await? == signups(0));
    ensure!(bench.source.calls() == 1);
    Ok(())
}
