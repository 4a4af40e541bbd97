//! `/metrics`: Prometheus text about tables, models, the runner and requests.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::header::CONTENT_TYPE,
    middleware::Next,
    response::{IntoResponse, Response},
};
use engine::status::{self, Status};

use crate::{Shared, problem::Answer};

/// Requests answered so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: Mutex<BTreeMap<Labels, Served>>,
}

/// Method, route (its pattern, so that labels stay few) and status.
type Labels = (String, String, u16);

#[derive(Clone, Copy, Debug, Default)]
struct Served {
    count: u64,
    seconds: f64,
}

/// Counts requests and the time to their response head.
pub(crate) async fn count(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", MatchedPath::as_str)
        .to_owned();
    let method = request.method().as_str().to_owned();
    let response = next.run(request).await;
    let labels = (method, route, response.status().as_u16());
    let mut requests = shared
        .counters
        .requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let served = requests.entry(labels).or_default();
    served.count += 1;
    served.seconds += started.elapsed().as_secs_f64();
    response
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(shared): State<Shared>) -> Answer<Response> {
    let status = status::status(&shared.world, Some(shared.runner.status())).await?;
    let requests = shared
        .counters
        .requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let text = render(&status, &requests);
    Ok((
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response())
}

fn render(status: &Status, requests: &BTreeMap<Labels, Served>) -> String {
    let mut page = Page::default();
    let runner = status.runner.clone().unwrap_or_default();
    page.plain(
        "headwater_runner_running",
        "gauge",
        "Whether the live runner runs.",
        f64::from(runner.running),
    );
    page.plain(
        "headwater_runner_cycles_total",
        "counter",
        "Cycles since the runner started.",
        number(runner.cycles),
    );
    let sources = || {
        status
            .sources
            .iter()
            .map(|source| source.source.to_string())
    };
    let of = |values: Vec<u64>| values.into_iter().map(number).collect::<Vec<_>>();
    let source =
        |pick: fn(&status::SourceStatus) -> u64| of(status.sources.iter().map(pick).collect());
    page.family(
        "headwater_source_sequence",
        "gauge",
        "Last sequence of a landing table.",
        "source",
        sources(),
        source(|s| s.watermark),
    );
    page.family(
        "headwater_source_rows",
        "gauge",
        "Rows of a landing table.",
        "source",
        sources(),
        source(|s| s.rows),
    );
    let models = || status.models.iter().map(|model| model.model.to_string());
    let model =
        |pick: fn(&status::ModelStatus) -> u64| of(status.models.iter().map(pick).collect());
    let lag = status
        .models
        .iter()
        .map(|model| model.behind_seconds)
        .collect();
    page.family(
        "headwater_model_lag_seconds",
        "gauge",
        "Age of the oldest landing data not yet applied.",
        "model",
        models(),
        lag,
    );
    page.lags(status);
    let targets = || {
        status
            .models
            .iter()
            .filter(|model| model.target_seconds.is_some())
    };
    let targeted = || targets().map(|model| model.model.to_string());
    page.family(
        "headwater_model_target_lag_seconds",
        "gauge",
        "The target_lag of the model.",
        "model",
        targeted(),
        targets().filter_map(|model| model.target_seconds).collect(),
    );
    page.family(
        "headwater_model_target_met",
        "gauge",
        "Whether the lag now and the 95th percentile of the last hour are within target_lag.",
        "model",
        targeted(),
        targets()
            .map(|model| f64::from(model.target_met.unwrap_or(true)))
            .collect(),
    );
    page.family(
        "headwater_model_fresh",
        "gauge",
        "Whether the lag is within max_lag.",
        "model",
        models(),
        model(|m| u64::from(m.fresh)),
    );
    page.family(
        "headwater_model_paused",
        "gauge",
        "Whether the model is paused.",
        "model",
        models(),
        model(|m| u64::from(m.paused)),
    );
    page.family(
        "headwater_model_watermark",
        "gauge",
        "Published watermark.",
        "model",
        models(),
        model(|m| m.watermark),
    );
    page.family(
        "headwater_model_rows",
        "gauge",
        "Rows in the table.",
        "model",
        models(),
        model(|m| m.rows),
    );
    page.family(
        "headwater_model_refreshes_total",
        "counter",
        "Refreshes that succeeded.",
        "model",
        models(),
        model(|m| m.refreshes),
    );
    page.family(
        "headwater_model_rows_written_total",
        "counter",
        "Rows those refreshes wrote.",
        "model",
        models(),
        model(|m| m.rows_written),
    );
    page.family(
        "headwater_model_failures",
        "gauge",
        "Failures since the last success.",
        "model",
        models(),
        model(|m| u64::from(m.consecutive_failures)),
    );
    page.family(
        "headwater_model_late_after_gc_total",
        "counter",
        "Change events quarantined since their key's tombstone may be gone.",
        "model",
        models(),
        model(|m| m.late_after_gc),
    );
    page.family(
        "headwater_model_unordered_events_total",
        "counter",
        "Change events quarantined since they had no sequence.",
        "model",
        models(),
        model(|m| m.unordered_events),
    );
    page.family(
        "headwater_model_quarantined_rows",
        "gauge",
        "Rows of the inputs that are in quarantine.",
        "model",
        models(),
        model(|m| m.quarantined),
    );
    page.family(
        "headwater_model_unavailable_values_total",
        "counter",
        "Values of change events that had not changed and were not there to be kept.",
        "model",
        models(),
        model(|m| m.unavailable_values),
    );
    page.requests(requests);
    page.text
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles")]
fn number(value: u64) -> f64 {
    value as f64
}

/// Text exposition format, growing.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn plain(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        let _ = writeln!(self.text, "{name} {value}");
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        subjects: impl Iterator<Item = String>,
        values: Vec<f64>,
    ) {
        self.head(name, kind, help);
        for (subject, value) in subjects.zip(values) {
            let _ = writeln!(self.text, "{name}{{{label}=\"{subject}\"}} {value}");
        }
    }

    /// Lags that refreshes removed: quantiles of the last hour, sum and count of all time.
    fn lags(&mut self, status: &Status) {
        let name = "headwater_model_applied_lag_seconds";
        let help = "Age of the oldest landing data that a refresh applied, when it committed.";
        self.head(name, "summary", help);
        let seconds = |ms: u64| number(ms) / 1_000.0;
        for model in &status.models {
            let subject = &model.model;
            let hour = model
                .lag_hour
                .map(|hour| [hour.p50_ms, hour.p95_ms, hour.max_ms].map(seconds));
            // What nothing is known of is no number: a summary over an empty stretch says NaN.
            let values = hour.unwrap_or([f64::NAN; 3]);
            for (quantile, value) in ["0.5", "0.95", "1"].iter().zip(values) {
                let labels = format!("model=\"{subject}\",quantile=\"{quantile}\"");
                let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
            }
            let total = seconds(model.lag_total_ms);
            let _ = writeln!(self.text, "{name}_sum{{model=\"{subject}\"}} {total}");
            let _ = writeln!(
                self.text,
                "{name}_count{{model=\"{subject}\"}} {}",
                model.lag_count
            );
        }
    }

    fn requests(&mut self, requests: &BTreeMap<Labels, Served>) {
        let labels = |(method, route, status): &Labels| {
            format!("{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}")
        };
        self.head(
            "headwater_http_requests_total",
            "counter",
            "Requests answered.",
        );
        for (key, served) in requests {
            let _ = writeln!(
                self.text,
                "headwater_http_requests_total{} {}",
                labels(key),
                served.count
            );
        }
        self.head(
            "headwater_http_seconds_total",
            "counter",
            "Time from a request to the head of its response.",
        );
        for (key, served) in requests {
            let _ = writeln!(
                self.text,
                "headwater_http_seconds_total{} {:.6}",
                labels(key),
                served.seconds
            );
        }
    }
}
