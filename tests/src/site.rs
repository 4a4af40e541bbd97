//! The program's routes over a world, called without a socket.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Result, anyhow, bail};
use axum::{
    Router,
    body::{Body, to_bytes},
};
use engine::runner::Runner;
use hyper::Request;
use serde_json::Value;
use settings::Settings;
use tower::ServiceExt;

use crate::{
    case::{Cells, ModelText},
    http::Answer,
    rows,
    world::{Adapter, Lab},
};

/// Largest answer that is read.
const ANSWER_MAX: usize = 256 << 20;

/// Routes over a world.
#[derive(Debug)]
pub struct Site {
    /// The world.
    pub lab: Lab,
    /// Its runner, not started.
    pub runner: Runner,
    router: Router,
}

impl Site {
    /// Routes over a world, under the settings of a `headwater.yml`.
    ///
    /// # Errors
    /// All complaints about the settings.
    pub fn new(lab: Lab, settings: &str) -> Result<Self> {
        Self::open(lab, settings, false)
    }

    /// The same of a deployment, where functions that the queue tells run the models.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn driven(lab: Lab, settings: &str) -> Result<Self> {
        Self::open(lab, settings, true)
    }

    fn open(lab: Lab, settings: &str, driven: bool) -> Result<Self> {
        let settings = Settings::parse("project".as_ref(), settings, &BTreeMap::new())
            .map_err(|all| anyhow!("settings: {all:?}"))?;
        let runner = Runner::new(lab.world.clone());
        let app = web::App {
            driven,
            world: lab.world.clone(),
            runner: runner.clone(),
            settings: Arc::new(settings),
        };
        Ok(Self {
            lab,
            runner,
            router: web::router(app),
        })
    }

    /// Routes over a fresh world in memory.
    ///
    /// # Errors
    /// As [`Site::new`], and for models that do not load.
    pub fn in_memory(models: &[ModelText], settings: &str) -> Result<Self> {
        Self::new(
            Lab::new(Adapter::Memory, models, domain::LiveSettings::default())?,
            settings,
        )
    }

    /// The routes.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Sends one request.
    ///
    /// # Errors
    /// When the request cannot be built.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self
            .router
            .clone()
            .oneshot(request.body(body.into())?)
            .await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Ok(Answer {
            status,
            headers,
            body: to_bytes(response.into_body(), ANSWER_MAX).await?,
        })
    }

    /// Posts one event to a webhook and asks for 202.
    ///
    /// # Errors
    /// When the answer is another one.
    pub async fn event(&self, source: &str, body: impl Into<Body>) -> Result<Value> {
        let answer = self.webhook(source, body).await?;
        if answer.status != 202 {
            bail!("answered {} {}", answer.status, answer.text());
        }
        answer.json()
    }

    /// Posts one event to a webhook.
    ///
    /// # Errors
    /// When the request cannot be built.
    pub async fn webhook(&self, source: &str, body: impl Into<Body>) -> Result<Answer> {
        let path = format!("/api/ingest/webhook/{source}");
        self.send("POST", &path, &[("content-type", "application/json")], body)
            .await
    }

    /// Reads with `POST /api/query`.
    ///
    /// # Errors
    /// When the request cannot be built.
    pub async fn query(&self, sql: &str) -> Result<Answer> {
        let body = serde_json::json!({ "sql": sql }).to_string();
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json"),
        ];
        self.send("POST", "/api/query", &headers, body).await
    }

    /// Reads as cells.
    ///
    /// # Errors
    /// What the engine answers.
    pub async fn cells(&self, sql: &str) -> Result<Cells> {
        rows::query(&self.lab.world, sql).await
    }

    /// Runs one cycle and asks that no model failed.
    ///
    /// # Errors
    /// The models that failed.
    pub async fn cycle(&self) -> Result<()> {
        let report = self.lab.cycle().await?;
        for (model, how) in report.models {
            let how = serde_json::to_value(how)?;
            if how["outcome"] != "built" && how["outcome"] != "idle" {
                bail!("`{model}` ended {how}");
            }
        }
        Ok(())
    }
}
