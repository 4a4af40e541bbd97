//! From the runtime's next invocation to its answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws::queue;

use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use serde_json::Value;

use crate::{Event, logs, metrics, trace};

/// What an invocation is answered with.
pub type Answer = Result<Value, Error>;

/// What a deployable does with an invocation.
pub trait Function: Send + Sync {
    /// Handles it. An error makes the service deliver the event again, or answer 500.
    fn handle(&self, event: Event, context: Context) -> impl Future<Output = Answer> + Send;
}

/// Serves invocations until the environment is taken down.
///
/// # Errors
/// When the runtime API fails, or the cold start does.
pub async fn run<F: Function + 'static>(
    cold_start: impl Future<Output = Result<F, Error>>,
) -> Result<(), Error> {
    logs::start();
    let function = Arc::new(cold_start.await?);
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| {
        let function = function.clone();
        async move {
            let LambdaEvent { payload, context } = event;
            let event = Event::read(payload)?;
            let (request, name) = (
                context.request_id.clone(),
                context.env_config.function_name.clone(),
            );
            let trace = trace::of(&event, &context);
            let span = tracing::info_span!(
                "invocation",
                request,
                traceparent = trace.parent,
                batch = trace.batch
            );
            let began = Instant::now();
            let handled = queue::traced(trace, function.handle(event, context));
            let answer = tracing::Instrument::instrument(handled, span).await;
            if let Err(error) = &answer {
                tracing::error!(request, %error, "the invocation failed");
            }
            let failed = if answer.is_err() { 1.0 } else { 0.0 };
            metrics::emit(
                ("function", &name),
                &[
                    (
                        "duration",
                        "Milliseconds",
                        began.elapsed().as_secs_f64() * 1_000.0,
                    ),
                    ("failed", "Count", failed),
                ],
            );
            answer
        }
    }))
    .await
}

/// Time until the invocation's deadline; zero when it is over.
#[must_use]
pub(crate) fn remaining(context: &Context) -> Duration {
    context
        .deadline()
        .duration_since(std::time::SystemTime::now())
        .unwrap_or_default()
}
