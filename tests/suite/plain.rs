//! Tests from plain and async functions.

use anyhow::{Context, Result};
use libtest_mimic::{Completion, Failed, Trial};

/// A test of a function that returns an error to fail.
pub(crate) fn test(
    name: impl Into<String>,
    run: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    Trial::test(name, move || run().map_err(failed))
}

/// A test of a future, on a runtime of its own.
pub(crate) fn test_async<F>(
    name: impl Into<String>,
    run: impl FnOnce() -> F + Send + 'static,
) -> Trial
where
    F: Future<Output = Result<()>>,
{
    test(name, move || block_on(run()))
}

/// A test on the emulator: ignored when none is named, failing then when it has to be.
pub(crate) fn test_emulated<F>(
    name: impl Into<String>,
    run: impl FnOnce() -> F + Send + 'static,
) -> Trial
where
    F: Future<Output = Result<()>>,
{
    let given = tests::aws::endpoint().is_some() || tests::is_set(tests::aws::REQUIRED);
    test_async(name, run).with_ignored_flag(!given)
}

/// Runs a future to its end.
pub(crate) fn block_on(run: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start a runtime")?
        .block_on(run)
}

/// A test that needs something this machine may lack. Without it the test is skipped and says so, or fails when
/// `required` is set.
pub(crate) fn test_given<T: Send + 'static>(
    name: impl Into<String>,
    required: &'static str,
    given: impl FnOnce() -> Result<T, String> + Send + 'static,
    run: impl FnOnce(T) -> Result<()> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match given() {
        Ok(given) => run(given).map(|()| Completion::Completed).map_err(failed),
        Err(missing) if tests::is_set(required) => {
            Err(Failed::from(format!("{missing}, and {required} is set")))
        }
        Err(missing) => {
            println!("skipped: {missing}");
            Ok(Completion::ignored_with(missing))
        }
    })
}

/// The whole chain on as many lines as it has links.
fn failed(error: anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}
