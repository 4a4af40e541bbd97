//! Uploads to an address of the object store: what was sent past us is looked at before it is the entry.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use client::{Http, Transport, full};
use domain::Duration;
use http_body_util::BodyExt;
use hyper::Request;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testkit::{CountedObjects, CountedState, MemoryState};
use tests::{
    addresses::Addresses,
    parquet,
    site::Site,
    world::{Adapter, Lab},
};

use super::{Desk, kind, rows};
use crate::plain::{test_async, test_emulated};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("entries::a_commit_reads_the_end_of_what_was_sent", cost),
        test_async("entries::what_is_sent_past_us_is_looked_at", || async {
            refused(&Bay::new("")?).await
        }),
        test_async(
            "entries::an_address_takes_one_file_of_its_length",
            async || once(&Bay::new("")?).await,
        ),
        test_async("entries::an_address_is_over_after_its_time", over),
        test_async("entries::what_is_sent_late_is_never_seen_and_goes", late),
        test_async("entries::what_is_sent_and_not_committed_goes", abandoned),
        test_async("entries::readers_keep_their_time", graced),
        test_async("entries::without_addresses_files_are_sent_here", here),
        test_emulated(
            "entries::on_aws_what_is_sent_past_us_is_looked_at",
            async || refused(&Bay::emulated().await?).await,
        ),
        test_emulated(
            "entries::on_aws_an_address_takes_one_file_of_its_length",
            async || once(&Bay::emulated().await?).await,
        ),
        test_emulated(
            "entries::on_aws_a_query_stores_a_large_result_by_itself",
            query,
        ),
    ]
}

/// An entry whose data lies in a store that gives addresses.
struct Bay {
    desk: Desk,
    store: Arc<dyn Transport>,
}

impl Bay {
    fn new(settings: &str) -> Result<Self> {
        let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
        Self::on(lab, &format!("materialize:\n  grace: 0s\n{settings}"))
    }

    fn on(mut lab: Lab, settings: &str) -> Result<Self> {
        let store = Addresses::of(lab.objects.clone(), lab.clock.clone());
        lab.world.entries =
            Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(store.clone()));
        let desk = Desk::on(Site::driven(lab, settings)?)?;
        Ok(Self { desk, store })
    }

    async fn emulated() -> Result<Self> {
        let mut lab = Lab::open(Adapter::Aws, &[], domain::LiveSettings::default()).await?;
        let signer = lab.place.as_ref().context("no place")?.s3();
        lab.world.entries = Arc::new(lake::EntryLake::new(lab.objects.clone()).signed_by(signer));
        let desk = Desk::on(Site::driven(lab, "materialize:\n  inline_max: 1B\n")?)?;
        let store = Http::new("http://localhost", None).map_err(|e| anyhow::anyhow!("{e}"))?;
        Ok(Self {
            desk,
            store: Arc::new(store),
        })
    }

    /// Where a file of so many bytes is sent.
    async fn address(&self, token: &str, bytes: usize) -> Result<Value> {
        let body = json!({ "token": token, "bytes": bytes });
        let answer = self.desk.send("POST", "/upload", body).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        let upload = answer.json()?["upload"].clone();
        ensure!(upload["method"] == "PUT", "{upload}");
        Ok(upload)
    }

    /// Sends a file, with the length it has.
    async fn put(&self, upload: &Value, file: &Bytes) -> Result<u16> {
        let href = upload["href"].as_str().context("no address")?;
        let mut request = Request::put(href);
        for (name, value) in upload["headers"].as_object().context("no headers")? {
            if name != "content-length" {
                request = request.header(name, value.as_str().context("no text")?);
            }
        }
        let request = request
            .header("content-length", file.len())
            .body(full(file.clone()))?;
        let answer = self.store.send(request).await;
        let answer = answer.map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(answer.status().as_u16())
    }

    /// Sends a file to an address of its own.
    async fn send(&self, token: &str, file: &Bytes) -> Result<u16> {
        let upload = self.address(token, file.len()).await?;
        self.put(&upload, file).await
    }

    async fn sweep(&self) -> Result<Value> {
        let path = "/api/materialize/sweep";
        self.desk.site.send("POST", path, &[], "").await?.json()
    }

    fn wait(&self, seconds: u64) {
        self.desk
            .site
            .lab
            .clock
            .advance(Duration::from_secs(seconds));
    }
}

fn file() -> Result<Bytes> {
    parquet::of_objects(&rows())
}

/// A file of some MB of several row groups, which does not compress.
fn large() -> Result<Bytes> {
    let value = |n: i64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let values = arrow::array::Int64Array::from_iter_values((0..1_000_000).map(value));
    let batch = arrow::array::RecordBatch::try_from_iter([(
        "n",
        Arc::new(values) as arrow::array::ArrayRef,
    )])?;
    parquet::of_batch(&batch)
}

async fn cost() -> Result<()> {
    let state = Arc::new(CountedState::new(Arc::new(MemoryState::new())));
    let memory = Arc::new(object_store::memory::InMemory::new());
    let objects = Arc::new(CountedObjects::new(memory));
    let live = domain::LiveSettings::default();
    let lab = Lab::on(
        state.clone(),
        objects.clone(),
        "memory:///",
        None,
        &[],
        live,
    )?;
    let bay = Bay::on(lab, "")?;
    let answer = bay.desk.send("POST", "/lease", json!({})).await?.json()?;
    ensure!(
        answer["lease"]["upload"]["direct_max"] == 4 << 20,
        "{answer}"
    );
    let token = answer["lease"]["token"].as_str().context("no token")?;
    let file = large()?;
    state.take();
    objects.take();
    let upload = bay.address(token, file.len()).await?;
    let (asked, touched) = (state.take(), objects.take());
    ensure!((asked.gets, asked.transacts) == (1, 1), "{asked:?}");
    ensure!(touched.requests() == 0, "{touched:?}");
    ensure!(bay.put(&upload, &file).await? == 200);
    objects.take();
    let answer = bay.desk.commit(token).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let entry = answer.json()?["entry"].clone();
    ensure!(entry["row_count"] == 1_000_000, "{entry}");
    ensure!(entry["byte_size"] == file.len(), "{entry}");
    let touched = objects.take();
    println!("{} of {} bytes: {touched:?}", touched.bytes_got, file.len());
    ensure!(touched.requests() <= 6, "{touched:?}");
    ensure!(touched.bytes_got * 20 < file.len() as u64, "{touched:?}");
    Ok(())
}

async fn refused(bay: &Bay) -> Result<()> {
    let file = file()?;
    let twins = {
        let batch = parquet::batch(&[json!({ "a": 1, "b": 2 })])?;
        let fields = ["a", "a"].map(|name| batch.schema().field(0).clone().with_name(name));
        let schema = arrow::datatypes::Schema::new(fields.to_vec());
        let batch = arrow::array::RecordBatch::try_new(schema.into(), batch.columns().to_vec())?;
        parquet::of_batch(&batch)?
    };
    let broken = {
        let mut bytes = file.to_vec();
        bytes[4..40].fill(0xFF);
        Bytes::from(bytes)
    };
    let declared = json!({ "columns": [{ "name": "n", "kind": "BIGINT" }] });
    let desk = &bay.desk;
    for (what, spec, sent) in [
        ("no parquet", json!({}), Bytes::from("id,n\n1,2\n")),
        ("nothing", json!({}), Bytes::new()),
        ("without its end", json!({}), file.slice(..file.len() - 8)),
        ("two columns of one name", json!({}), twins),
        ("broken inside", json!({}), broken),
        ("other columns than declared", declared, file.clone()),
    ] {
        let token = desk.lease(spec).await?;
        ensure!(bay.send(&token, &sent).await? == 200, "{what} is not taken");
        let answer = desk.commit(&token).await?;
        ensure!(
            answer.status == 422 && kind(&answer)?.ends_with("upload-refused"),
            "{what}: {}",
            answer.text()
        );
        ensure!(desk.get().await?.status == 404, "{what} leaves a row");
        ensure!(
            desk.listed().await? == 0 && desk.data_sets().await? == 0,
            "{what} leaves something"
        );
        ensure!(
            desk.commit(&token).await?.status == 409,
            "{what} can be committed"
        );
    }
    // Whoever has no lease is told no address.
    for (token, status, says) in [
        (json!({ "bytes": 1 }), 400, "no-lease"),
        (json!({ "bytes": 1, "token": "made up" }), 409, "lease-lost"),
    ] {
        let answer = desk.send("POST", "/upload", token).await?;
        let is_told = answer.status == status && kind(&answer)?.ends_with(says);
        ensure!(is_told, "{}", answer.text());
    }
    let token = desk.lease(json!({})).await?;
    for body in [json!({}), json!({ "bytes": -1 }), json!({ "bytes": "1" })] {
        let mut body = body;
        body["token"] = json!(token);
        ensure!(desk.send("POST", "/upload", body).await?.status == 400);
    }
    // What is too large is told before it is sent, and ends the build.
    let body = json!({ "token": token, "bytes": (4_u64 << 30) + 1 });
    let answer = desk.send("POST", "/upload", body).await?;
    ensure!(answer.status == 413, "{}", answer.text());
    ensure!(desk.listed().await? == 0 && desk.commit(&token).await?.status == 409);
    Ok(())
}

async fn once(bay: &Bay) -> Result<()> {
    let (file, desk) = (file()?, &bay.desk);
    let token = desk.lease(json!({})).await?;
    let upload = bay.address(&token, file.len()).await?;
    // Cut short by its sender, or longer than it said: the signature is over the length.
    for other in [file.slice(..50), [&file[..], b"more"].concat().into()] {
        let status = bay.put(&upload, &other).await?;
        ensure!(status == 403, "{} bytes: {status}", other.len());
    }
    let answer = desk.commit(&token).await?;
    ensure!(
        answer.status == 409 && kind(&answer)?.ends_with("nothing-uploaded"),
        "{}",
        answer.text()
    );
    // The lease is there still, and so is the address.
    ensure!(bay.put(&upload, &file).await? == 200);
    let other = parquet::of_objects(&[json!({ "channel": "forged", "n": 1 })])?;
    let second = bay.address(&token, other.len()).await?;
    ensure!(bay.put(&second, &other).await? == 412);
    ensure!(desk.commit(&token).await?.status == 200);
    // Whoever kept an address changes nothing of what was committed.
    ensure!(bay.put(&second, &other).await? == 412);
    ensure!(bay.put(&upload, &file).await? == 412);
    ensure!(desk.query("SELECT sum(n) AS n FROM this").await? == json!([{ "n": 17 }]));
    let late = desk.send("POST", "/upload", json!({ "token": token, "bytes": 1 }));
    ensure!(late.await?.status == 409);
    ensure!(desk.data_sets().await? == 1);
    Ok(())
}

async fn over() -> Result<()> {
    let (bay, file) = (Bay::new("")?, file()?);
    let token = bay.desk.lease(json!({ "lease": 3_600 })).await?;
    let upload = bay.address(&token, file.len()).await?;
    bay.wait(900);
    ensure!(bay.put(&upload, &file).await? == 403);
    ensure!(bay.send(&token, &file).await? == 200);
    // Whoever has a lease keeps what was sent under it.
    bay.wait(1_000);
    for _ in 0..3 {
        ensure!(bay.sweep().await?["superseded"] == 0);
    }
    ensure!(bay.desk.commit(&token).await?.status == 200);
    Ok(())
}

async fn late() -> Result<()> {
    let (bay, file) = (Bay::new("")?, file()?);
    let desk = &bay.desk;
    let old = desk.lease(json!({ "lease": 10, "ttl": null })).await?;
    let address = bay.address(&old, file.len()).await?;
    bay.wait(10);
    let new = desk.lease(json!({ "ttl": null })).await?;
    // The one that was taken over sends after all.
    ensure!(bay.put(&address, &file).await? == 200);
    let answer = desk.commit(&old).await?;
    ensure!(
        answer.status == 409 && kind(&answer)?.ends_with("lease-lost"),
        "{}",
        answer.text()
    );
    let other = parquet::of_objects(&[json!({ "n": 2 })])?;
    ensure!(bay.send(&new, &other).await? == 200);
    ensure!(desk.commit(&new).await?.status == 200);
    ensure!(desk.query("SELECT n FROM this").await? == json!([{ "n": 2 }]));
    ensure!(desk.data_sets().await? == 2);
    bay.wait(900);
    bay.sweep().await?;
    bay.wait(1);
    ensure!(bay.sweep().await?["superseded"] == 1);
    ensure!(desk.data_sets().await? == 1);
    ensure!(desk.query("SELECT n FROM this").await? == json!([{ "n": 2 }]));
    Ok(())
}

async fn abandoned() -> Result<()> {
    let (bay, file) = (Bay::new("")?, file()?);
    let desk = &bay.desk;
    let token = desk.lease(json!({ "lease": 10 })).await?;
    let address = bay.address(&token, file.len()).await?;
    bay.wait(10);
    // The row of the build goes before anything was sent.
    let swept = bay.sweep().await?;
    ensure!(swept["abandoned"] == 1, "{swept}");
    ensure!(bay.put(&address, &file).await? == 200);
    ensure!(desk.listed().await? == 0 && desk.data_sets().await? == 1);
    ensure!(desk.get().await?.status == 404);
    bay.wait(900);
    bay.sweep().await?;
    bay.wait(1);
    let swept = bay.sweep().await?;
    ensure!(swept["superseded"] == 1, "{swept}");
    ensure!(desk.data_sets().await? == 0);
    // The list is worked off.
    bay.wait(10_000);
    ensure!(bay.sweep().await?["superseded"] == 0);
    Ok(())
}

async fn graced() -> Result<()> {
    let lab = Lab::new(Adapter::Memory, &[], domain::LiveSettings::default())?;
    let (bay, file) = (Bay::on(lab, "materialize:\n  grace: 600s\n")?, file()?);
    let desk = &bay.desk;
    let first = desk.lease(json!({ "ttl": 1_400 })).await?;
    ensure!(bay.send(&first, &file).await? == 200);
    ensure!(desk.commit(&first).await?.status == 200);
    // Superseded shortly before the list comes to the address that it was sent to.
    bay.wait(1_490);
    let second = desk.lease(json!({ "ttl": null })).await?;
    ensure!(desk.upload(&second, file).await?.status == 200);
    ensure!(desk.commit(&second).await?.status == 200);
    bay.wait(11);
    bay.sweep().await?;
    ensure!(desk.data_sets().await? == 2, "a reader's data went early");
    bay.wait(601);
    bay.sweep().await?;
    ensure!(desk.data_sets().await? == 1);
    ensure!(desk.query("SELECT sum(n) AS n FROM this").await? == json!([{ "n": 17 }]));
    Ok(())
}

async fn here() -> Result<()> {
    let desk = Desk::new()?;
    let answer = desk.send("POST", "/lease", json!({})).await?.json()?;
    ensure!(answer["lease"].get("upload").is_none(), "{answer}");
    let token = answer["lease"]["token"].as_str().context("no token")?;
    let file = file()?;
    let body = json!({ "token": token, "bytes": file.len() });
    let answer = desk.send("POST", "/upload", body).await?.json()?;
    let upload = &answer["upload"];
    let (href, shown) = (&upload["href"], &upload["headers"]["headwater-lease"]);
    let path = href.as_str().context("no address")?;
    let headers = [("headwater-lease", shown.as_str().context("no token")?)];
    let sent = desk.site.send("PUT", path, &headers, file).await?;
    ensure!(sent.status == 200, "{}", sent.text());
    ensure!(desk.commit(token).await?.status == 200);
    Ok(())
}

async fn query() -> Result<()> {
    let bay = Bay::emulated().await?;
    let sql = "SELECT n, md5(CAST(n AS VARCHAR)) AS a FROM generate_series(1, 600000) AS t(n)";
    let body = json!({ "sql": sql, "ttl": null }).to_string();
    for served in ["built", "hit"] {
        let path = "/api/materialize/query";
        let answer = bay.desk.site.send("POST", path, &[], body.clone()).await?;
        ensure!(
            answer.header("headwater-entry") == served,
            "{}",
            answer.text()
        );
        let shown = answer.json()?;
        ensure!(shown["entry"]["row_count"] == 600_000, "{shown}");
        // More than a function answers with: it is stored by the function, and read by a link.
        let bytes = shown["entry"]["byte_size"].as_u64().unwrap_or(0);
        ensure!(bytes > 6 << 20 && answer.body.len() < 10_000, "{bytes}");
        let href = shown["url"]["href"].as_str().context("no link")?;
        let got = bay
            .store
            .send(Request::get(href).body(client::empty())?)
            .await;
        let wrong = |error: client::BoxError| anyhow::anyhow!("{error}");
        let body = got.map_err(wrong)?.into_body().collect().await;
        let length = body.map_err(wrong)?.to_bytes().len();
        ensure!(length as u64 == bytes, "{length} of {bytes} bytes");
    }
    Ok(())
}
