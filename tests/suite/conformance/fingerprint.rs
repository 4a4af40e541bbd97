//! Kind `fingerprint`: which calls share an entry, asked over HTTP.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::{case::Pair, site::Site, world::Adapter};

pub(super) async fn replay(pairs: &[Pair], adapter: Adapter) -> Result<()> {
    let site = super::site(adapter, "").await?;
    for pair in pairs {
        let said = || format!("{pair:?}");
        let a = fingerprint(&site, &pair.a).await.with_context(said)?;
        if pair.rejected {
            ensure!(a.is_none(), "{pair:?}: not refused");
            continue;
        }
        let Some(b) = &pair.b else {
            bail!("{pair:?} is one call");
        };
        let b = fingerprint(&site, b).await.with_context(said)?;
        ensure!(a.is_some() && b.is_some(), "{pair:?}: refused");
        ensure!((a == b) == pair.same, "{pair:?}: {a:?} and {b:?}");
    }
    Ok(())
}

/// The fingerprint of a call; none when it is refused for an argument.
async fn fingerprint(site: &Site, call: &Value) -> Result<Option<String>> {
    let body = json!({
        "name": call.get("fn").cloned().unwrap_or_else(|| "f".into()),
        "version": call.get("version").cloned().unwrap_or_else(|| 0.into()),
        "args": call.get("args").cloned().unwrap_or_else(|| json!([])),
        "kwargs": call.get("kwargs").cloned().unwrap_or_else(|| json!({})),
    });
    let path = "/api/materialize/fingerprint";
    let answer = site.send("POST", path, &[], body.to_string()).await?;
    match answer.status {
        200 => Ok(answer.json()?["fingerprint"].as_str().map(str::to_owned)),
        422 => {
            let detail = answer.json()?["detail"].to_string();
            ensure!(
                detail.contains("args") || detail.contains("kwargs"),
                "no path in {detail}"
            );
            Ok(None)
        }
        other => bail!("answered {other} {}", answer.text()),
    }
}
