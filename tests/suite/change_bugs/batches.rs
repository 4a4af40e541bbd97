//! What must not depend on how events fall into batches.

use super::*;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("changes::a_soft_delete_keeps_the_row_in_any_batches", kept),
        test_async(
            "changes::a_truncate_empties_the_model_and_its_readers",
            truncated,
        ),
    ]
}

/// The same events with a refresh after each, and in one.
async fn in_any_batches(
    model: &ModelText,
    events: &[Value],
    rows: &str,
    want: Value,
) -> Result<()> {
    for each in [true, false] {
        let site = Site::in_memory(std::slice::from_ref(model), "")?;
        for event in events {
            change(&site, event.clone()).await?;
            if each {
                site.cycle().await?;
            }
        }
        site.cycle().await?;
        let told = format!("a refresh for each: {each}");
        expect(&site, rows, want.clone()).await.context(told)?;
        let only = ["silver.orders".parse()?];
        engine::batch::run(&site.lab.world, &only, true, &engine::cycle::Silent).await?;
        expect(&site, rows, want.clone())
            .await
            .context("from nothing")?;
    }
    Ok(())
}

fn soft() -> ModelText {
    let mut model = silver();
    model.config.insert("cdc_deletes".into(), "soft".into());
    model
}

async fn kept() -> Result<()> {
    let row = |region: &str| json!({ "id": 1, "region": region, "amount": 10 });
    let events = [
        json!({ "op": "I", "lsn": 5, "payload": row("EU") }),
        json!({ "op": "U", "lsn": 10, "payload": row("US") }),
        json!({ "op": "D", "lsn": 11, "payload": { "id": 1 } }),
        json!({ "op": "U", "lsn": 9, "payload": row("late") }),
    ];
    let rows = "SELECT id, region, lsn, op, _deleted FROM silver.orders";
    in_any_batches(&soft(), &events, rows, json!([[1, "US", 11, "D", true]])).await?;
    // Of a row that was never there it has only itself.
    let only = [json!({ "op": "D", "lsn": 11, "payload": { "id": 1, "region": "EU" } })];
    in_any_batches(&soft(), &only, rows, json!([[1, "EU", 11, "D", true]])).await
}

async fn truncated() -> Result<()> {
    let site = three().await?;
    change(&site, json!({ "op": "T", "lsn": 6 })).await?;
    order(&site, "I", 7, (1, "EU", 40)).await?;
    site.cycle().await?;
    let all = "SELECT id, region FROM silver.orders";
    expect(&site, all, json!([[1, "EU"]])).await?;
    expect(&site, REGIONS, json!([["EU", 1, 40], ["US", 0, 0]])).await?;
    // Older than the truncate, of rows of before and of one that nobody knows; and the truncate again.
    order(&site, "U", 5, (2, "EU", 20)).await?;
    order(&site, "I", 6, (9, "US", 90)).await?;
    change(&site, json!({ "op": "T", "lsn": 6 })).await?;
    site.cycle().await?;
    expect(&site, all, json!([[1, "EU"]])).await?;
    // All of it anew, in one batch.
    let only = ["silver.orders".parse()?];
    engine::batch::run(&site.lab.world, &only, true, &engine::cycle::Silent).await?;
    expect(&site, all, json!([[1, "EU"]])).await?;
    order(&site, "U", 5, (3, "US", 5)).await?;
    site.cycle().await?;
    expect(&site, all, json!([[1, "EU"]])).await
}
