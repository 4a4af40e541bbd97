//! A stub of the service's runtime interface: it hands out one event and writes down what comes back. What else is asked
//! of it, it takes for a question to the state store, and answers that there is nothing.

use std::{
    net::TcpListener,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use serde_json::Value;

/// What the runtime interface begins with.
const INTERFACE: &str = "/2018-06-01/runtime/";

/// What a function told the service.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// It asks for work.
    Next,
    /// It answers.
    Answered(String),
    /// It says that the invocation, or its start, failed.
    Failed(String),
}

/// The stub; it ends with its value.
pub(super) struct Runtime {
    /// Where it listens.
    pub(super) address: String,
    calls: Mutex<Receiver<(Instant, Call)>>,
    _thread: tokio::runtime::Runtime,
}

struct Shared {
    event: Value,
    given: AtomicBool,
    calls: Sender<(Instant, Call)>,
}

impl Runtime {
    /// Listens on a port of its own.
    pub(super) fn start(event: Value) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let (calls, received) = mpsc::channel();
        let shared = Shared {
            event,
            given: AtomicBool::new(false),
            calls,
        };
        let router = Router::new()
            .fallback(answer)
            .with_state(std::sync::Arc::new(shared));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router).await
        });
        Ok(Self {
            address,
            calls: Mutex::new(received),
            _thread: runtime,
        })
    }

    /// The next call, which must be as expected.
    pub(super) fn wait(
        &self,
        most: Duration,
        expected: impl Fn(&Call) -> bool,
    ) -> Result<(Instant, Call)> {
        let calls = self
            .calls
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let (at, call) = calls.recv_timeout(most).context("it never called")?;
        anyhow::ensure!(expected(&call), "it called out of turn: {call:?}");
        Ok((at, call))
    }
}

async fn answer(State(shared): State<std::sync::Arc<Shared>>, request: Request) -> Response {
    let at = Instant::now();
    let path = request.uri().path().to_owned();
    let Some(call) = path.strip_prefix(INTERFACE) else {
        return Response::new(Body::from("{}"));
    };
    if call == "invocation/next" {
        // Nobody listens any more once all was measured.
        let _ = shared.calls.send((at, Call::Next));
        if shared.given.swap(true, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        return event(&shared.event);
    }
    let body = to_bytes(request.into_body(), 1 << 20)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let call = match call.ends_with("/response") {
        true => Call::Answered(text),
        false => Call::Failed(text),
    };
    let _ = shared.calls.send((at, call));
    let mut accepted = Response::new(Body::from("{}"));
    *accepted.status_mut() = axum::http::StatusCode::ACCEPTED;
    accepted
}

/// The event, as the service hands it out.
fn event(event: &Value) -> Response {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let deadline = (now + Duration::from_secs(30)).as_millis().to_string();
    Response::builder()
        .header("content-type", "application/json")
        .header("lambda-runtime-aws-request-id", "1")
        .header("lambda-runtime-deadline-ms", deadline)
        .header(
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:us-east-1:1:function:cold",
        )
        .header(
            "lambda-runtime-trace-id",
            "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=1",
        )
        .body(Body::from(event.to_string()))
        .expect("the headers are plain")
}
