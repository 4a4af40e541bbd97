//! Kind `facade`: chains of look-ups through the Rust client's frame, over rows of this process, rows that ride inline and rows
//! that stay where they are.

use anyhow::{Context, Result, bail, ensure};
use client::{
    Call, Data, Identity, Lookups, MaterializedFrame, Operand, Parameter, Selection, Served, Spec,
};
use serde::Deserialize;
use serde_json::Value;
use tests::{case::Chain, parquet, transport::Direct, world::Adapter};

pub(super) async fn replay(rows: &[Value], cases: &[Chain], adapter: Adapter) -> Result<()> {
    for settings in ["", "materialize:\n  inline_max: 1B\n"] {
        let site = super::site(adapter, settings).await?;
        let client = Direct::new(site.router()).client();
        let batch = parquet::batch(rows)?;
        let call = || {
            let batch = batch.clone();
            Call::new(Identity::new("facade", 0), Spec::default(), move || {
                let batch = batch.clone();
                async move { Data::Batches(batch.into()) }
            })
        };
        let built = client.get(call()).await?;
        ensure!(client.flush().await.failed == 0);
        let found = client.get(call()).await?;
        ensure!((built.served(), found.served()) == (Served::Built, Served::Hit));
        for frame in [built, found] {
            for case in cases {
                let said = || format!("{:?} {settings:?}: {case:?}", frame.served());
                check(&frame, case).await.with_context(said)?;
            }
        }
    }
    Ok(())
}

async fn check(frame: &MaterializedFrame, case: &Chain) -> Result<()> {
    #[derive(Deserialize)]
    struct Row {
        id: i64,
    }
    let mut selection = frame.all();
    for (word, argument) in &case.chain {
        let before = format!("{selection:?}");
        let next = step(selection.clone(), word, argument)?;
        ensure!(
            format!("{selection:?}") == before,
            "`{word}` changed what it was called on"
        );
        selection = next;
    }
    match (selection.rows::<Row>().await, case.error) {
        (Err(error), true) => {
            println!("{error}");
            Ok(())
        }
        (Err(error), false) => bail!("{}", error.chain()),
        (Ok(_), true) => bail!("it is not refused"),
        (Ok(rows), false) => {
            let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
            ensure!(ids == case.ids, "{ids:?}");
            ensure!(selection.len().await? == ids.len() as u64);
            Ok(())
        }
    }
}

fn step(selection: Selection, word: &str, argument: &Value) -> Result<Selection> {
    Ok(match word {
        "filter" => selection.filter_all(lookups(argument)?),
        "exclude" => selection.exclude_all(lookups(argument)?),
        "order_by" => {
            let columns: Vec<&str> = argument
                .as_array()
                .context("no list")?
                .iter()
                .filter_map(Value::as_str)
                .collect();
            selection.order_by(&columns)
        }
        "slice" => {
            let (start, stop): (u64, u64) = serde_json::from_value(argument.clone())?;
            selection.slice(start, stop)
        }
        other => bail!("no call `{other}`"),
    })
}

fn lookups(argument: &Value) -> Result<Lookups> {
    let one = |value: &Value| Parameter::from_json(&value.to_string()).map_err(anyhow::Error::msg);
    let pairs = argument.as_object().context("no look-ups")?;
    let mut all = Lookups::new();
    for (lookup, value) in pairs {
        let operand: Operand = match value.as_array() {
            Some(values) => values.iter().map(one).collect::<Result<Vec<_>>>()?.into(),
            None => one(value)?.into(),
        };
        all = all.and(lookup, operand);
    }
    Ok(all)
}
