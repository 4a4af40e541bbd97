//! Frames answer alike, whatever backs them.

use anyhow::{Context, Result, ensure};
use client::{Error, Lookups, MaterializedFrame, Selection, Served, Settings, materialize};
use libtest_mimic::Trial;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Bench, Source};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "client::look_ups_answer_alike_whatever_backs_a_frame",
            lookups,
        ),
        test_async("client::n51_this_is_a_table_wherever_the_rows_are", this),
        test_async("client::a_chain_that_makes_no_sense_says_why", senseless),
    ]
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    id: i64,
    text: Option<String>,
    amount: Option<f64>,
    #[serde(rename = "odd__\"name\"")]
    odd: i64,
    at: String,
}

fn notes() -> Vec<Note> {
    let note = |id, text: Option<&str>, amount, at: &str| Note {
        id,
        text: text.map(str::to_owned),
        amount,
        odd: id * 10,
        at: at.to_owned(),
    };
    vec![
        note(1, Some("Late Invoice"), Some(1.5), "2026-01-02T10:00:00"),
        note(2, Some("50% off_now"), Some(-2.0), "2026-03-04T11:00:00"),
        note(3, None, None, "2025-03-04T12:00:00"),
        note(4, Some("it's LATE"), Some(7.0), "2026-03-05T13:00:00"),
        note(5, Some(""), Some(0.0), "2027-01-01T00:00:00"),
    ]
}

#[materialize(client = on.client, key_fn = |_| ())]
async fn noted(on: Source) -> Vec<Note> {
    on.called();
    notes()
}

/// A frame of every backing: computed here, found inline, found elsewhere.
async fn backings() -> Result<Vec<(Bench, MaterializedFrame)>> {
    let mut all = Vec::new();
    for (yaml, hit) in [
        ("", false),
        ("", true),
        ("materialize:\n  inline_max: 1B\n", true),
    ] {
        let bench = Bench::told(yaml, Settings::default())?;
        let mut frame = noted(bench.source.clone()).await?;
        ensure!(bench.source.client.flush().await.stored == 1);
        if hit {
            frame = noted(bench.source.clone()).await?;
        }
        ensure!(frame.is_hit() == hit && (frame.served() == Served::Built) != hit);
        ensure!(frame.rows::<Note>().await? == notes());
        all.push((bench, frame));
    }
    Ok(all)
}

async fn ids(selection: &Selection) -> Result<Vec<i64>> {
    #[derive(Deserialize)]
    struct Id {
        id: i64,
    }
    let rows: Vec<Id> = selection.rows().await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

async fn lookups() -> Result<()> {
    for (_bench, frame) in backings().await? {
        let checks: Vec<(Selection, &[i64])> = vec![
            (frame.filter("text__icontains", "late"), &[1, 4]),
            (frame.filter("text__contains", "LATE"), &[4]),
            (frame.filter("text__contains", "50%"), &[2]),
            (frame.filter("text__contains", "_"), &[2]),
            (frame.filter("text__startswith", "it's"), &[4]),
            (frame.filter("text__istartswith", "LATE"), &[1]),
            (frame.filter("text__endswith", "now"), &[2]),
            (frame.filter("text__iexact", "late invoice"), &[1]),
            (frame.filter("text", ""), &[5]),
            (frame.filter("text", None::<&str>), &[3]),
            (frame.filter("text__isnull", false), &[1, 2, 4, 5]),
            (frame.filter("text__in", ["it's LATE", ""]), &[4, 5]),
            (frame.filter("text__in", Vec::<&str>::new()), &[]),
            (frame.filter("text__regex", "^[0-9]+%"), &[2]),
            (frame.filter("text__iregex", "LATE$"), &[4]),
            (frame.filter("amount__range", [-2.0, 1.5]), &[1, 2, 5]),
            (frame.filter("amount__gt", 0), &[1, 4]),
            (frame.filter("amount__lte", 0.0), &[2, 5]),
            (frame.filter("odd__\"name\"__gte", 40), &[4, 5]),
            (frame.filter("odd__\"name\"", 10), &[1]),
            // Where the column is NULL a look-up is not met, so that `exclude` keeps the row.
            (frame.exclude("amount__gt", 0), &[2, 3, 5]),
            (frame.exclude("text__in", ["", "it's LATE"]), &[1, 2, 3]),
            (
                frame.all().exclude_all(
                    Lookups::new()
                        .and("amount__gt", 0)
                        .and("text__icontains", "invoice"),
                ),
                &[2, 3, 4, 5],
            ),
            (frame.filter("id__contains", "3"), &[3]),
            (frame.slice(1, 4).slice(1, 9), &[3, 4]),
        ];
        for (selection, expected) in checks {
            let found = ids(&selection.clone())
                .await
                .with_context(|| format!("{selection:?}"))?;
            let mut sorted = found.clone();
            sorted.sort_unstable();
            ensure!(
                sorted == expected,
                "{:?}: {found:?}",
                selection.statement()?
            );
            ensure!(selection.len().await? == expected.len() as u64);
        }
        ensure!(ids(&frame.order_by(&["-amount"])).await? == [3, 4, 1, 5, 2]);
        ensure!(ids(&frame.order_by(&["amount", "-id"]).slice(0, 2)).await? == [2, 5]);
        let values: Vec<Value> = frame
            .filter("id", 1)
            .values(&["odd__\"name\"", "id"])
            .rows()
            .await?;
        ensure!(
            values == [serde_json::json!({ "odd__\"name\"": 10, "id": 1 })],
            "{values:?}"
        );
        let moments = frame
            .sql("SELECT id, CAST(at AS TIMESTAMP) AS at FROM this")
            .await?;
        ensure!(moments.num_rows() == 5);
    }
    Ok(())
}

async fn this() -> Result<()> {
    for (_bench, frame) in backings().await? {
        for (sql, rows) in [
            ("SELECT id -- it's\nFROM this -- that's", 5),
            ("SELECT t.this FROM (SELECT id AS this FROM this) t", 5),
            ("SELECT 1 AS this FROM this", 5),
            ("SELECT id FROM THIS", 5),
            ("WITH this AS (SELECT 1 AS x) SELECT x FROM this", 1),
            ("SELECT 'FROM this' AS text FROM this LIMIT 1", 1),
        ] {
            let found = frame.sql(sql).await.with_context(|| sql.to_owned())?;
            ensure!(found.num_rows() == rows, "`{sql}`: {}", found.num_rows());
        }
        for sql in [
            "SELECT * FROM that",
            "DELETE FROM this",
            "SELECT * FROM '/etc/passwd'",
            "SELECT",
        ] {
            ensure!(frame.sql(sql).await.is_err(), "`{sql}` runs");
        }
    }
    Ok(())
}

async fn senseless() -> Result<()> {
    let bench = Bench::new()?;
    let frame = noted(bench.source.clone()).await?;
    bench.way.sent();
    for (selection, said) in [
        (
            frame.filter("nope", 1),
            "there is no column `nope`; there are id, text",
        ),
        (frame.filter("id__wat", 1), "`wat`, which is no look-up"),
        (frame.filter("id__gt__lt", 1), "more than one word"),
        (frame.filter("id__range", [1, 2, 3]), "takes two values"),
        (frame.filter("id__in", 1), "takes several values"),
        (frame.filter("id__gt", [1, 2]), "takes one value"),
        (frame.filter("id__isnull", 1), "true or false"),
        (frame.filter("id__gt", None::<i64>), "use `isnull`"),
        (frame.filter("amount", f64::NAN), "NaN"),
        (frame.order_by(&["-nope"]), "there is no column `nope`"),
        (frame.values(&["nope"]), "there is no column `nope`"),
        (frame.slice(0, 1).filter("id", 1), "after a slice"),
        (frame.slice(0, 1).order_by(&["id"]), "after a slice"),
    ] {
        let refused = selection.arrow().await;
        let Err(Error::Lookup(why)) = &refused else {
            anyhow::bail!("{selection:?}: {refused:?}");
        };
        ensure!(why.contains(said), "{why}");
    }
    Ok(())
}
