//! Kind `http`: requests in order against a fresh project, its runner running, without authentication.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::{
    case::{Exchange, Http},
    rows,
    site::Site,
    world::{Adapter, Lab},
};

pub(super) async fn replay(case: &Http, adapter: Adapter) -> Result<()> {
    let lab = Lab::new(adapter, &case.models, domain::LiveSettings::default())?;
    let site = Site::new(lab, "")?;
    site.runner.start();
    let outcome = exchanges(case, &site).await;
    site.runner.stop().await;
    outcome
}

async fn exchanges(case: &Http, site: &Site) -> Result<()> {
    for (at, step) in case.steps.iter().enumerate() {
        let said = || format!("step {} {step:?}", at + 1);
        match step {
            Exchange::Request { .. } => request(site, step).await.with_context(said)?,
            Exchange::Query { query, rows } => {
                let got = site.cells(query).await.with_context(said)?;
                rows::compare(query, got, rows, &[])?;
            }
        }
    }
    Ok(())
}

async fn request(site: &Site, step: &Exchange) -> Result<()> {
    let Exchange::Request {
        req: (method, path),
        json,
        raw,
        repeat,
        headers,
        status,
        body,
        has,
    } = step
    else {
        return Ok(());
    };
    let mut sent_headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    if json.is_some() && !headers.contains_key("content-type") {
        sent_headers.push(("content-type", "application/json"));
    }
    let sent = json.as_ref().map(Value::to_string).or_else(|| raw.clone());
    let sent = sent
        .or_else(|| repeat.as_ref().map(|(text, times)| text.repeat(*times)))
        .unwrap_or_default();
    let answer = site.send(method, path, &sent_headers, sent).await?;
    ensure!(
        answer.status == *status,
        "answered {} {}, not {status}",
        answer.status,
        answer.text()
    );
    if body.is_none() && has.is_empty() {
        return Ok(());
    }
    let answer = answer.json()?;
    if let Some(body) = body {
        rows::subset(&answer, body, "body")?;
    }
    for key in has {
        ensure!(answer.get(key).is_some(), "no `{key}` in {answer}");
    }
    Ok(())
}
