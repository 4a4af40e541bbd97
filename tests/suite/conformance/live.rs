//! Kind `live`: rows land, cycles run, tables and states are looked at.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use domain::{Duration, TableName, items};
use engine::{control, cycle, status::Status};
use object_store::ObjectStoreExt;
use ports::{
    landing::{Append, Appended},
    queue::Announcement,
    state::Key,
};
use serde_json::Value;
use tests::{
    case::{Cells, Columns, Live, ModelText, Range, Step, live_settings},
    rows,
    world::{Adapter, Lab, table},
};

/// A case on its way.
pub(super) struct Replay {
    pub(super) lab: Lab,
    models: Vec<ModelText>,
    landing: BTreeMap<String, Columns>,
    incoming: u32,
}

pub(super) async fn replay(case: &Live, adapter: Adapter) -> Result<()> {
    let mut replay = Replay::start(case, adapter).await?;
    for (at, step) in case.steps.iter().enumerate() {
        replay
            .step(step)
            .await
            .with_context(|| format!("step {} {step:?}", at + 1))?;
    }
    Ok(())
}

impl Replay {
    /// The case's world, its landing tables declared.
    pub(super) async fn start(case: &Live, adapter: Adapter) -> Result<Self> {
        let lab = Lab::open(adapter, &case.models, live_settings(&case.settings)?).await?;
        for (name, columns) in &case.landing {
            let columns: Vec<_> = columns
                .iter()
                .map(|(name, kind)| items::Column {
                    name: name.clone(),
                    kind: kind.clone(),
                })
                .collect();
            lab.world
                .landing
                .declare(&table(name)?, &columns)
                .await
                .map_err(|e| rows::chain(&e))?;
        }
        Ok(Self {
            lab,
            models: case.models.clone(),
            landing: case.landing.clone(),
            incoming: 0,
        })
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        let world = &self.lab.world;
        match step {
            Step::Land {
                table,
                rows,
                advance: true,
            } => {
                let done = self.append(table, rows).await?;
                let announcement = Announcement {
                    table: tests::world::table(table)?,
                    position: done.position,
                };
                world
                    .queue
                    .send(&[announcement])
                    .await
                    .map_err(|e| rows::chain(&e))
            }
            Step::Land {
                table,
                rows,
                advance: false,
            } => self.leave(table, rows).await,
            Step::Advance { source, expect } => {
                let found = control::advance(world, &table(source)?)
                    .await
                    .map_err(|e| rows::chain(&e))?;
                let got = (found.rows > 0).then_some(Range {
                    rows: found.rows,
                    from: found.from,
                    to: found.to,
                });
                ensure!(got == *expect, "got {got:?}, want {expect:?}");
                Ok(())
            }
            Step::Cycle { expect } => self.cycle(expect).await,
            Step::BatchRun {} => self.batch_run().await,
            Step::Clock { advance_seconds } => {
                self.lab
                    .clock
                    .advance(Duration::from_secs_f64(*advance_seconds));
                Ok(())
            }
            Step::Pause { model } => control::set_paused(world, &table(model)?, true)
                .await
                .map_err(|e| rows::chain(&e)),
            Step::Resume { model } => control::set_paused(world, &table(model)?, false)
                .await
                .map_err(|e| rows::chain(&e)),
            Step::RefreshNow { model } => control::refresh_now(world, &table(model)?)
                .await
                .map_err(|e| rows::chain(&e)),
            Step::EditModel {
                name,
                sql,
                config,
                asserts,
            } => {
                let model = self
                    .models
                    .iter_mut()
                    .find(|model| model.name == *name)
                    .context("no such model")?;
                sql.clone_into_some(&mut model.sql);
                config.clone_into_some(&mut model.config);
                asserts.clone_into_some(&mut model.asserts);
                self.lab.set_models(&self.models)
            }
            Step::Deliver { .. } => bail!("`deliver` is a step of kind delivery"),
            other => self.expect(other).await,
        }
    }

    /// The steps that only look.
    pub(super) async fn expect(&self, step: &Step) -> Result<()> {
        match step {
            Step::ExpectTable {
                table,
                columns,
                order_by,
                rows,
            } => self.expect_table(table, columns, order_by, rows).await,
            Step::ExpectAbsent { table } => {
                let pin = self
                    .lab
                    .world
                    .tables
                    .pin(&tests::world::table(table)?)
                    .await
                    .map_err(|e| rows::chain(&e))?;
                ensure!(pin.is_none(), "`{table}` exists: {pin:?}");
                ensure!(
                    rows::query(&self.lab.world, &format!("SELECT * FROM {table}"))
                        .await
                        .is_err(),
                    "it reads"
                );
                Ok(())
            }
            Step::ExpectWatermarks { values } => {
                for (name, want) in values {
                    let name = table(name)?;
                    let head: Option<items::Head> = self
                        .item(items::table(&name), items::HEAD.to_owned())
                        .await?;
                    let got = head.map_or(0, |head| head.position.sequence);
                    ensure!(got == *want, "watermark of `{name}` is {got}, not {want}");
                }
                Ok(())
            }
            Step::ExpectConsumed { values } => {
                for (model, inputs) in values {
                    for (input, want) in inputs {
                        self.expect_consumed(&table(model)?, &table(input)?, *want)
                            .await?;
                    }
                }
                Ok(())
            }
            Step::ExpectStatus { models } => {
                let status = serde_json::to_value(self.status().await?)?;
                for (model, want) in models {
                    let got = status["models"]
                        .as_array()
                        .and_then(|all| all.iter().find(|m| m["model"] == **model));
                    let got = got.with_context(|| format!("no `{model}` in the status"))?;
                    rows::subset(got, &Value::Object(want.clone()), model)?;
                }
                Ok(())
            }
            Step::ExpectFresh { models } => {
                let status = self.status().await?;
                for (model, want) in models {
                    let got = status
                        .models
                        .iter()
                        .find(|m| m.model.to_string() == *model)
                        .map(|m| m.fresh);
                    ensure!(got == Some(*want), "`{model}` fresh: {got:?}, not {want}");
                }
                Ok(())
            }
            Step::ExpectAlerts { alerts } => {
                let got = self.lab.alerts.all().into_iter();
                let got: Result<Vec<(String, String)>> = got
                    .map(|alert| {
                        Ok((
                            serde_json::from_value(serde_json::to_value(alert.kind)?)?,
                            alert.model.to_string(),
                        ))
                    })
                    .collect();
                let got = got?;
                ensure!(got == *alerts, "alerts are {got:?}, not {alerts:?}");
                Ok(())
            }
            Step::ExpectTombstones {
                model,
                columns,
                rows,
            } => {
                let tombstones = format!("{model}__tombstones");
                self.expect_table(&tombstones, columns, columns, rows).await
            }
            other => bail!("{other:?} does not only look"),
        }
    }

    /// Commits rows.
    pub(super) async fn append(&self, name: &str, cells: &Cells) -> Result<Appended> {
        let append = Append {
            table: table(name)?,
            rows: rows::batch(self.columns(name)?, cells)?,
            origin_at: self.lab.world.clock.now(),
            key: None,
        };
        self.lab
            .world
            .landing
            .append(append)
            .await
            .map_err(|e| rows::chain(&e))
    }

    /// Leaves rows as another writer would: a parquet object that nobody announced.
    async fn leave(&mut self, name: &str, cells: &Cells) -> Result<()> {
        let batch = rows::batch(self.columns(name)?, cells)?;
        let mut bytes = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None)?;
        writer.write(&batch)?;
        writer.close()?;
        self.incoming += 1;
        let path = format!(
            "landing/{}/incoming/{:04}.parquet",
            table(name)?.name(),
            self.incoming
        );
        self.lab.objects.put(&path.into(), bytes.into()).await?;
        Ok(())
    }

    fn columns(&self, name: &str) -> Result<&Columns> {
        self.landing
            .get(name)
            .with_context(|| format!("`{name}` is not declared"))
    }

    pub(super) async fn cycle(&self, expect: &BTreeMap<String, String>) -> Result<()> {
        let report = self.lab.cycle().await?;
        for (model, want) in expect {
            let how = serde_json::to_value(report.models.get(&table(model)?))?;
            ensure!(
                how["outcome"] == **want,
                "`{model}` ended {how}, not {want}"
            );
        }
        Ok(())
    }

    async fn batch_run(&self) -> Result<()> {
        let report = engine::batch::run(&self.lab.world, &[], false, &cycle::Silent).await;
        for (model, how) in report.map_err(|e| rows::chain(&e))?.models {
            let how = serde_json::to_value(how)?;
            ensure!(
                how["outcome"] == "built" || how["outcome"] == "idle",
                "`{model}` ended {how}"
            );
        }
        Ok(())
    }

    async fn expect_table(
        &self,
        name: &str,
        columns: &[String],
        order_by: &[String],
        want: &Cells,
    ) -> Result<()> {
        let order: Option<Vec<usize>> = order_by
            .iter()
            .map(|order| columns.iter().position(|column| column == order))
            .collect();
        let order = order.context("every column of order_by is one of columns")?;
        let got = rows::query(
            &self.lab.world,
            &format!("SELECT {} FROM {name}", columns.join(", ")),
        )
        .await?;
        rows::compare(name, got, want, &order)
    }

    async fn expect_consumed(&self, model: &TableName, input: &TableName, want: u64) -> Result<()> {
        let mark: Option<items::Consumed> = self
            .item(items::model(model), items::consumed(input))
            .await?;
        let got = mark.unwrap_or_default().position.sequence;
        ensure!(
            got == want,
            "`{model}` consumed `{input}` up to {got}, not {want}"
        );
        Ok(())
    }

    async fn status(&self) -> Result<Status> {
        engine::status::status(&self.lab.world, None)
            .await
            .map_err(|e| rows::chain(&e))
    }

    async fn item<T: serde::de::DeserializeOwned>(
        &self,
        partition: String,
        sort: String,
    ) -> Result<Option<T>> {
        let item = self
            .lab
            .world
            .state
            .get(&Key::new(partition, sort))
            .await
            .map_err(|e| rows::chain(&e))?;
        item.map(|item| item.decode())
            .transpose()
            .map_err(|e| rows::chain(&e))
    }
}

/// Replaces a value by one that may be there.
trait CloneIntoSome<T> {
    fn clone_into_some(&self, target: &mut T);
}

impl<T: Clone> CloneIntoSome<T> for Option<T> {
    fn clone_into_some(&self, target: &mut T) {
        if let Some(value) = self {
            target.clone_from(value);
        }
    }
}
