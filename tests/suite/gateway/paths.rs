//! Paths as a gateway hands them over: decoded.

use anyhow::{Context, Result, ensure};
use domain::items;
use libtest_mimic::Trial;
use ports::state::{Span, query_all};
use serde_json::json;

use super::{Gate, Gateway};
use crate::plain::test_async;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "gateway::a_path_that_was_decoded_reaches_no_other_source",
            decoded,
        ),
        test_async(
            "gateway::an_address_that_is_none_is_refused_and_nothing_panics",
            no_address,
        ),
    ]
}

async fn decoded() -> Result<()> {
    for gateway in Gateway::ALL {
        let gate = Gate::new()?;
        let post = async |source: &str| -> Result<(u64, String)> {
            let mut payload = gateway.payload(&[], Some("{\"id\":1}".to_owned()), false);
            let path = format!("/api/ingest/webhook/{source}");
            let name = if payload.get("rawPath").is_some() {
                "rawPath"
            } else {
                "path"
            };
            payload[name] = json!(path);
            gate.answer(payload).await
        };
        let sources = [
            "or#ders",
            "or?ders",
            "or\nders",
            "ord\ters",
            "x\\..\\orders",
            "x/../orders",
            "x/%2e%2E/orders",
            "or ders",
            "orders%",
            "örders",
            "./orders",
        ];
        for source in sources {
            let (status, text) = post(source).await.context(source)?;
            ensure!(status == 400, "{gateway:?} {source:?}: {status} {text}");
        }
        let tables = Span::prefix(items::TABLES, "", 10);
        let landed = query_all(&*gate.lab.world.state, tables).await?;
        ensure!(landed.is_empty(), "{gateway:?}: {landed:?}");
        let (status, text) = post("%6frders").await?;
        ensure!(status == 202, "{gateway:?}: {status} {text}");
        ensure!(gate.count().await? == json!(1), "{gateway:?}");
    }
    Ok(())
}

async fn no_address() -> Result<()> {
    let gate = Gate::new()?;
    for gateway in Gateway::ALL {
        for host in ["a b c", "a/b", ""] {
            let mut payload = gateway.payload(&[], Some("{}".to_owned()), false);
            payload["headers"] = json!({ "host": host });
            let (status, text) = gate.answer(payload).await.context(host)?;
            ensure!(status == 400, "{gateway:?} {host:?}: {status} {text}");
        }
        // Hosts that no URL has, and a word of the way that nobody asks for.
        for host in ["1.2.3.999", "a:99999", "xn--a"] {
            let mut payload = gateway.payload(&[], Some("{}".to_owned()), false);
            payload["headers"] = json!({ "host": host, "x-forwarded-proto": "ht tp" });
            let (status, text) = gate.answer(payload).await.context(host)?;
            ensure!(
                status == 202 || status == 400,
                "{gateway:?} {host:?}: {status} {text}"
            );
        }
        for query in ["a b", "<", "a=\"b\"", "{\"", "a\n", "ä"] {
            let mut payload = gateway.payload(&[], Some("{}".to_owned()), false);
            if payload.get("rawQueryString").is_none() {
                continue;
            }
            payload["rawQueryString"] = json!(query);
            let (status, text) = gate.answer(payload).await.context(query)?;
            ensure!(status == 400, "{gateway:?} {query:?}: {status} {text}");
        }
    }
    Ok(())
}
