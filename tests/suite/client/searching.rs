//! Search through a frame: the registry builds what the function declares, and answers for whoever holds a frame.

use std::time::Duration;

use anyhow::{Result, ensure};
use arrow::array::{AsArray, RecordBatch};
use client::{Batches, MaterializedFrame, Search, VectorSearch, materialize};
use libtest_mimic::Trial;
use serde::{Deserialize, Serialize};

use super::{Bench, Source};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_async(
        "client::frames_are_searched_by_words_and_by_vectors",
        searched,
    )]
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    text: String,
    year: i64,
    near: Vec<f64>,
}

fn note(text: &str, year: i64, near: [f64; 2]) -> Note {
    Note {
        text: text.to_owned(),
        year,
        near: near.to_vec(),
    }
}

#[materialize(key = "notes", ttl = 60, client = on.client, index = [bm25("text"), vector("near")], key_fn = |_| ())]
async fn notes(on: Source) -> Vec<Note> {
    on.called();
    vec![
        note("a late invoice", 2024, [1.0, 0.0]),
        note("an invoice, paid", 2025, [0.0, 1.0]),
        note("late, late again", 2026, [0.7, 0.7]),
    ]
}

async fn searched() -> Result<()> {
    let bench = Bench::new()?;
    // What was just computed is on its way into the registry: it is waited for.
    let fresh = notes(bench.source.clone()).await?;
    found(&fresh).await?;
    let hit = notes(bench.other()).await?;
    found(&hit).await?;
    ensure!(bench.source.calls() == 1);
    Ok(())
}

async fn found(frame: &MaterializedFrame) -> Result<()> {
    let late = Search::new("late").select("text");
    let texts = texts(&ready(async || frame.search(&late).await).await?.batches);
    ensure!(texts == ["late, late again", "a late invoice"], "{texts:?}");
    let old = Search::new("late").filter("year < 2026");
    let texts = self::texts(&frame.search(&old).await?.batches);
    ensure!(texts == ["a late invoice"], "{texts:?}");
    let near = VectorSearch::near("near", vec![0.1, 1.0]).limit(2);
    let texts = self::texts(
        &ready(async || frame.vector_search(&near).await)
            .await?
            .batches,
    );
    ensure!(
        texts == ["an invoice, paid", "late, late again"],
        "{texts:?}"
    );
    let refused = frame.search(&Search::new("late").column("year")).await;
    ensure!(refused.is_err(), "{refused:?}");
    Ok(())
}

/// Asks until the index is built.
async fn ready(ask: impl AsyncFn() -> client::Result<Batches>) -> Result<Batches> {
    for _ in 0..10_000 {
        match ask().await {
            Err(client::Error::IndexNotReady { .. }) => {
                tokio::time::sleep(Duration::from_millis(2)).await
            }
            other => return Ok(other?),
        }
    }
    anyhow::bail!("the index is never built")
}

/// The column `text`, row by row.
fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let column = |batch: &RecordBatch| {
        let texts = batch
            .column_by_name("text")
            .map(|c| c.as_string::<i32>().clone());
        let texts = texts.into_iter().flat_map(|texts| {
            let texts: Vec<String> = texts.iter().flatten().map(str::to_owned).collect();
            texts
        });
        texts.collect::<Vec<_>>()
    };
    batches.iter().flat_map(column).collect()
}
