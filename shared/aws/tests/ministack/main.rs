//! The adapters against an emulator. `HEADWATER_MINISTACK` holds its address, such as `http://127.0.0.1:4566`; without it
//! every test is reported as ignored, or fails when `HEADWATER_EMULATORS_REQUIRED` is 1.

mod objects;
mod queue;

use std::{future::Future, process::ExitCode, time::Duration};

use aws::clients::Clients;
use aws_config::{BehaviorVersion, Region, retry::RetryConfig};
use aws_sdk_s3::config::Credentials;
use libtest_mimic::{Arguments, Trial};

/// Longest that a test may take: what never comes is waited for.
const LIMIT: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = objects::trials();
    trials.extend(queue::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn endpoint() -> Option<String> {
    std::env::var("HEADWATER_MINISTACK")
        .ok()
        .filter(|endpoint| !endpoint.is_empty())
}

/// A test with clients of the emulator.
fn trial<T, W>(name: &'static str, test: T) -> Trial
where
    T: FnOnce(Emulator) -> W + Send + 'static,
    W: Future<Output = ()>,
{
    let endpoint = endpoint();
    let required = std::env::var("HEADWATER_EMULATORS_REQUIRED").is_ok_and(|value| value == "1");
    let ignored = endpoint.is_none() && !required;
    let run = move || {
        let endpoint = endpoint.ok_or("HEADWATER_MINISTACK names no emulator")?;
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let test = test(Emulator::at(&endpoint).await);
            tokio::time::timeout(LIMIT, test).await
        })?;
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

/// The emulator, as a test uses it.
struct Emulator {
    clients: Clients,
    /// For things of this run alone.
    run: String,
}

impl Emulator {
    async fn at(endpoint: &str) -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(endpoint)
            .retry_config(RetryConfig::standard().with_max_attempts(5))
            .load()
            .await;
        Self {
            clients: Clients::new(&config),
            run: format!("hw-{:016x}", rand::random::<u64>()),
        }
    }
}
