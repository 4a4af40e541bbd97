//! Kind `materialize`: cached functions of a client that speaks HTTP. It looks up, takes the lease on a miss, serves what
//! the function returned and writes it behind; when the registry does not answer it does without.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use axum::http::StatusCode;
use domain::{Duration, LiveSettings, entry::EntryId, fingerprint};
use engine::entries::{Ask, Found, Registry};
use ports::{Objects, State};
use serde_json::{Map, Value, json};
use testkit::{Fault, Faults, FaultyObjects, FaultyState, MemoryState, Operation};
use tests::{
    case::{EntryStep, Function, Materialize, Served},
    http::Answer,
    parquet, rows,
    site::Site,
    world::{Adapter, Lab, file_uri},
};

/// Superseded data goes with the next sweep, and what is expired is served for a day.
const SETTINGS: &str = "materialize:\n  grace: 0s\n";

struct Replay {
    site: Site,
    faults: Arc<Faults>,
    functions: BTreeMap<String, Function>,
    calls: BTreeMap<String, usize>,
    remembered: BTreeMap<String, u64>,
    inline_max: Option<u64>,
    behind: Vec<Behind>,
    /// The entry of the last call.
    last: Option<EntryId>,
}

/// What is written behind a call.
enum Behind {
    /// These rows, under this lease.
    Persist {
        id: EntryId,
        token: String,
        rows: Vec<Value>,
    },
    /// What the function returns now, under this lease.
    Rebuild {
        id: EntryId,
        token: String,
        function: String,
    },
    /// Nothing: the registry did not give a lease.
    Failed,
}

pub(super) async fn replay(case: &Materialize, adapter: Adapter) -> Result<()> {
    let mut replay = Replay::start(case, adapter).await?;
    for (at, step) in case.steps.iter().enumerate() {
        let done = replay.step(step).await;
        done.with_context(|| format!("step {}: {step:?}", at + 1))?;
    }
    Ok(())
}

impl Replay {
    async fn start(case: &Materialize, adapter: Adapter) -> Result<Self> {
        let faults = Arc::new(Faults::none());
        let mut folder = None;
        let mut place = None;
        let (state, objects, uri): (Arc<dyn State>, Objects, String) = match adapter {
            Adapter::Memory | Adapter::Stepped => (
                Arc::new(MemoryState::new()),
                Arc::new(object_store::memory::InMemory::new()),
                String::from("memory:///"),
            ),
            Adapter::Embedded => {
                let dir = tempfile::tempdir()?;
                let warehouse = dir.path().join("warehouse");
                let state = embedded::SqliteState::open(&dir.path().join("state.db"))?;
                let objects: Objects = embedded::FileObjects::open(&warehouse)?;
                folder = Some(dir);
                (Arc::new(state), objects, file_uri(&warehouse))
            }
            Adapter::Aws => {
                let opened = tests::aws::Place::open().await?;
                let parts: (Arc<dyn State>, Objects, String) =
                    (Arc::new(opened.state()), opened.objects(), opened.uri());
                place = Some(opened);
                parts
            }
        };
        let state = Arc::new(FaultyState::new(state, faults.clone()));
        let objects = Arc::new(FaultyObjects::new(objects, faults.clone()));
        let mut lab = Lab::on(state, objects, &uri, folder, &[], LiveSettings::default())?;
        lab.place = place;
        Ok(Self {
            site: Site::new(lab, SETTINGS)?,
            faults,
            functions: case.functions.clone(),
            calls: BTreeMap::new(),
            remembered: BTreeMap::new(),
            inline_max: None,
            behind: Vec::new(),
            last: None,
        })
    }

    fn registry(&self) -> Registry {
        Registry::new(
            self.site.lab.world.clone(),
            domain::EntrySettings::default(),
        )
    }

    fn function(&self, name: &str) -> Result<&Function> {
        self.functions
            .get(name)
            .with_context(|| format!("no function `{name}`"))
    }

    fn id(&self, name: &str, args: &[Value], kwargs: &Map<String, Value>) -> Result<EntryId> {
        let version = self.function(name)?.version;
        let call = json!({ "name": name, "version": version, "args": args, "kwargs": kwargs });
        let call = fingerprint::from_json(&call.to_string())?;
        Ok(EntryId::new(call.fingerprint()?, None)?)
    }

    fn id_of(&self, name: &str, args: &[Value]) -> Result<EntryId> {
        self.id(name, args, &Map::new())
    }

    async fn step(&mut self, step: &EntryStep) -> Result<()> {
        match step {
            EntryStep::Call {
                function,
                args,
                kwargs,
                expect,
            } => {
                let id = self.id(function, args, kwargs)?;
                self.last = Some(id.clone());
                self.call(function, &id, expect).await
            }
            EntryStep::Flush { expect_errors } => self.flush(*expect_errors).await,
            EntryStep::ExpectRegistry {
                function,
                args,
                row,
            } => {
                let id = self.id_of(function, args)?;
                self.expect_row(&id, row.as_ref()).await
            }
            EntryStep::ExpectDataSets { count } => {
                let sets = self.site.lab.world.entries.list().await?;
                ensure!(sets.len() == *count, "{} data sets: {sets:?}", sets.len());
                Ok(())
            }
            EntryStep::SetFunction {
                function,
                version,
                result,
            } => {
                let found = self
                    .functions
                    .get_mut(function)
                    .context("no such function")?;
                found.version = version.unwrap_or(found.version);
                found.result = result.clone().unwrap_or_else(|| found.result.clone());
                Ok(())
            }
            EntryStep::SetConfig {
                inline_threshold_bytes,
            } => {
                self.inline_max = Some(self.number(inline_threshold_bytes)?);
                Ok(())
            }
            EntryStep::RememberInlineLength { name } => {
                let id = self.last.clone().context("nothing was called")?;
                let shown = self.shown(&id).await?.context("no row")?;
                let length = shown["inline_length"].as_u64().context("not inline")?;
                self.remembered.insert(name.clone(), length);
                Ok(())
            }
            EntryStep::Clock { advance_seconds } => {
                self.site
                    .lab
                    .clock
                    .advance(Duration::from_secs_f64(*advance_seconds));
                Ok(())
            }
            EntryStep::Fault { op, times } => {
                let operation = operation(op)?;
                (0..*times).for_each(|_| self.faults.inject(operation, 0, Fault::Before));
                Ok(())
            }
            EntryStep::DeleteData { function, args } => {
                let id = self.id_of(function, args)?;
                for set in self.site.lab.world.entries.list().await? {
                    if set.id == id {
                        self.site.lab.world.entries.delete(&set).await?;
                    }
                }
                Ok(())
            }
            EntryStep::Evict {
                function,
                args,
                expect_error,
            } => {
                let id = self.id_of(function, args)?;
                let answer = self.send("DELETE", &format!("/{id}"), json!({})).await?;
                ensure!(
                    (answer.status == 503) == *expect_error,
                    "{} {}",
                    answer.status,
                    answer.text()
                );
                ensure!(*expect_error || answer.status == 200, "{}", answer.text());
                Ok(())
            }
            EntryStep::Sweep { expect } => self.maintain("/sweep", expect).await,
            EntryStep::Reconcile { expect } => self.maintain("/reconcile", expect).await,
            EntryStep::ListExpired { expect } => {
                let answer = self.send("GET", "?expired=true", json!({})).await?.json()?;
                let entries = answer["entries"].as_array().context("no entries")?;
                let keys: Vec<&str> = entries
                    .iter()
                    .filter_map(|entry| entry["key"].as_str())
                    .collect();
                ensure!(keys == *expect, "{keys:?}");
                Ok(())
            }
            EntryStep::PlantRow { function, args, .. } => {
                // As another process would: it has the lease, and builds.
                let id = self.id_of(function, args)?;
                let spec = self.spec(function)?;
                let answer = self.send("POST", &format!("/{id}/lease"), spec).await?;
                ensure!(answer.status == 201, "{}", answer.text());
                Ok(())
            }
        }
    }

    fn number(&self, value: &Value) -> Result<u64> {
        if let Some(number) = value.as_u64() {
            return Ok(number);
        }
        let text = value.as_str().context("no number")?;
        let (name, minus) = text.split_once('-').unwrap_or((text, "0"));
        let number = self
            .remembered
            .get(name)
            .context("nothing of this name is remembered")?;
        Ok(number - minus.parse::<u64>()?)
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Answer> {
        let path = format!("/api/materialize{path}");
        self.site.send(method, &path, &[], body.to_string()).await
    }

    fn spec(&self, name: &str) -> Result<Value> {
        let function = self.function(name)?;
        let mode = function.mode.as_deref().unwrap_or("strict");
        Ok(json!({ "key": name, "version": function.version, "ttl": function.ttl, "mode": mode }))
    }

    /// Runs the function; none when it fails.
    fn run(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        *self.calls.entry(name.to_owned()).or_default() += 1;
        Ok(self.function(name)?.result.as_array().cloned())
    }

    async fn call(&mut self, name: &str, id: &EntryId, expect: &Served) -> Result<()> {
        let (cached, stale, rows) = self.served(name, id).await?;
        let calls = self.calls.get(name).copied().unwrap_or(0);
        ensure!(rows.is_none() == expect.error, "error: {}", rows.is_none());
        ensure!(
            expect.calls.is_none_or(|want| want == calls),
            "calls: {calls}"
        );
        ensure!(
            expect.error || expect.cached.is_none_or(|want| want == cached),
            "cached: {cached}"
        );
        ensure!(
            expect.stale.is_none_or(|want| want == stale),
            "stale: {stale}"
        );
        if let (Some(want), Some(got)) = (&expect.rows, &rows) {
            rows::subset(
                &Value::Array(got.clone()),
                &Value::Array(want.clone()),
                "rows",
            )?;
            ensure!(got == want, "rows: {got:?}");
        }
        if let Some(sql) = &expect.sql {
            let answer = self
                .send("POST", &format!("/{id}/query"), json!({ "sql": sql }))
                .await?;
            ensure!(answer.status == 200, "{}", answer.text());
            let got = answer.json()?["rows"].clone();
            let want = Value::from(expect.sql_rows.clone().unwrap_or_default());
            ensure!(got == want, "`{sql}` gives {got}");
        }
        Ok(())
    }

    /// What a caller gets: whether it was there, whether it was stale, and the rows unless the function failed.
    async fn served(
        &mut self,
        name: &str,
        id: &EntryId,
    ) -> Result<(bool, bool, Option<Vec<Value>>)> {
        let found = self.send("GET", &format!("/{id}"), json!({})).await?;
        match found.status {
            200 => {}
            // Nobody knows: do without.
            503 => return Ok((false, false, self.run(name)?)),
            404 | 202 => return self.missed(name, id).await,
            other => bail!("look-up answered {other} {}", found.text()),
        }
        let Some(rows) = self.rows(id, &found.json()?).await? else {
            // The data is gone.
            return self.missed(name, id).await;
        };
        let stale = found.json()?["entry"]["expired"] == true;
        if stale {
            let answer = self
                .send("POST", &format!("/{id}/lease"), self.spec(name)?)
                .await?;
            if let Some(token) = answer.json()?["lease"]["token"].as_str() {
                self.behind.push(Behind::Rebuild {
                    id: id.clone(),
                    token: token.to_owned(),
                    function: name.to_owned(),
                });
            }
        }
        Ok((true, stale, Some(rows)))
    }

    /// The rows of an entry, in the answer or asked for.
    async fn rows(&self, id: &EntryId, answer: &Value) -> Result<Option<Vec<Value>>> {
        if let Some(rows) = answer["rows"].as_array() {
            return Ok(Some(rows.clone()));
        }
        let path = format!("/api/materialize/{id}");
        let headers = [("accept", "application/vnd.apache.arrow.stream")];
        let answer = self.site.send("GET", &path, &headers, "").await?;
        match answer.status {
            200 => parquet::objects_of_stream(&answer.body).map(Some),
            404 => Ok(None),
            other => bail!("rows answered {other} {}", answer.text()),
        }
    }

    async fn missed(
        &mut self,
        name: &str,
        id: &EntryId,
    ) -> Result<(bool, bool, Option<Vec<Value>>)> {
        let answer = self
            .send("POST", &format!("/{id}/lease"), self.spec(name)?)
            .await?;
        let token = match answer.status {
            201 => answer.json()?["lease"]["token"].as_str().map(str::to_owned),
            202 | 503 => None,
            other => bail!("lease answered {other} {}", answer.text()),
        };
        let rows = self.run(name)?;
        match (token, &rows) {
            (Some(token), Some(rows)) => self.behind.push(Behind::Persist {
                id: id.clone(),
                token,
                rows: rows.clone(),
            }),
            (Some(token), None) => self.abort(id, &token).await?,
            (None, _) if answer.status == 503 => self.behind.push(Behind::Failed),
            (None, _) => {}
        }
        Ok((false, false, rows))
    }

    async fn abort(&self, id: &EntryId, token: &str) -> Result<()> {
        let answer = self
            .send("POST", &format!("/{id}/abort"), json!({ "token": token }))
            .await?;
        ensure!(answer.status == 200, "abort: {}", answer.text());
        Ok(())
    }

    /// Waits for what is written behind, and for what that superseded.
    async fn flush(&mut self, expected: usize) -> Result<()> {
        let mut errors = 0;
        for behind in std::mem::take(&mut self.behind) {
            let (id, token, rows) = match behind {
                Behind::Persist { id, token, rows } => (id, token, Some(rows)),
                Behind::Rebuild {
                    id,
                    token,
                    function,
                } => (id, token, self.run(&function)?),
                Behind::Failed => {
                    errors += 1;
                    continue;
                }
            };
            let kept = match &rows {
                Some(rows) => self.persist(&id, &token, rows).await?,
                None => false,
            };
            if !kept {
                errors += 1;
                self.abort(&id, &token).await?;
            }
        }
        ensure!(errors == expected, "{errors} errors");
        self.send("POST", "/sweep", json!({})).await?;
        Ok(())
    }

    async fn persist(&self, id: &EntryId, token: &str, rows: &[Value]) -> Result<bool> {
        let file = parquet::of_objects(rows)?;
        let path = format!("/api/materialize/{id}/upload");
        let headers = [("headwater-lease", token)];
        let answer = self.site.send("PUT", &path, &headers, file).await?;
        if answer.status != StatusCode::OK.as_u16() {
            return Ok(false);
        }
        let body = json!({ "token": token, "inline_max": self.inline_max });
        let answer = self.send("POST", &format!("/{id}/commit"), body).await?;
        Ok(answer.status == 200)
    }

    async fn shown(&self, id: &EntryId) -> Result<Option<Value>> {
        let ask = Ask {
            mode: Some(domain::entry::Mode::Swr),
            ..Ask::default()
        };
        Ok(match self.registry().lookup(id, ask).await? {
            Found::Hit(entry) | Found::Stale(entry) => {
                Some(serde_json::to_value(self.registry().shown(&entry))?)
            }
            Found::Building => Some(json!({ "status": "building" })),
            Found::Miss => None,
        })
    }

    async fn expect_row(&self, id: &EntryId, row: Option<&Value>) -> Result<()> {
        match (self.shown(id).await?, row) {
            (None, None) => Ok(()),
            (Some(shown), Some(row)) => rows::subset(&shown, row, "row"),
            (Some(shown), None) => bail!("there is a row: {shown}"),
            (None, Some(_)) => bail!("there is no row"),
        }
    }

    async fn maintain(&self, path: &str, expect: &BTreeMap<String, u64>) -> Result<()> {
        let answer = self.send("POST", path, json!({})).await?.json()?;
        rows::subset(&answer, &serde_json::to_value(expect)?, "report")
    }
}

fn operation(op: &str) -> Result<Operation> {
    Ok(match op {
        "registry_read" => Operation::Get,
        "registry_write" => Operation::Transact,
        "data_write" => Operation::PutObject,
        "data_read" => Operation::GetObject,
        "data_delete" => Operation::DeleteObject,
        other => bail!("no operation `{other}`"),
    })
}
