//! One call: what identifies it, what is said of its result, and how it is computed.

use std::{fmt, sync::Arc};

use domain::{
    Fingerprint,
    fingerprint::{self, Unencodable, Value},
};
use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;

use crate::{
    batches::{Data, Failed, Outcome},
    error::{Error, Result},
    meta::Spec,
};

type Compute = Arc<dyn Fn() -> BoxFuture<'static, Result<Data, Failed>> + Send + Sync>;

/// What identifies a call.
///
/// ```
/// use client::Identity;
/// let call = |days: i64| Identity::new("shop::revenue", 2).argument("days", &days);
/// assert_eq!(call(7)?.fingerprint()?, call(7)?.fingerprint()?);
/// assert_ne!(call(7)?.fingerprint()?, call(8)?.fingerprint()?);
/// # Ok::<(), client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Identity(fingerprint::Call);

impl Identity {
    /// A function, by its full name, and its version.
    #[must_use]
    pub fn new(name: &str, version: i64) -> Self {
        Self(fingerprint::Call::new(name, version))
    }

    /// A function by where it is written. `here` is the path of something within it; a function that is not its module's own may
    /// share that path with another, so that its `code` tells them apart.
    #[doc(hidden)]
    #[must_use]
    pub fn of(here: &str, path: &str, code: &str, version: i64) -> Self {
        let rest = here.strip_prefix(path).unwrap_or("::elsewhere");
        match rest
            .split("::")
            .all(|step| step.is_empty() || step == "{{closure}}")
        {
            true => Self::new(path, version),
            false => Self::new(&format!("{here}#{code}"), version),
        }
    }

    /// The same with an argument.
    ///
    /// # Errors
    /// What has no encoding, by its path.
    pub fn argument<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Result<Self> {
        let value = fingerprint::to_value(&format!("kwargs.{name}"), value)?;
        Ok(self.value(name, value))
    }

    /// The same with an argument of a type that only fingerprints have: a date, a decimal, a query.
    #[must_use]
    pub fn value(self, name: &str, value: Value) -> Self {
        Self(self.0.with_named(name, value))
    }

    /// The fingerprint.
    ///
    /// # Errors
    /// What has no encoding, by its path.
    pub fn fingerprint(&self) -> Result<Fingerprint, Unencodable> {
        self.0.fingerprint()
    }
}

/// A call: its identity, what is said of its result, and how it is computed.
#[derive(Clone)]
pub struct Call {
    pub(crate) identity: Identity,
    pub(crate) spec: Spec,
    compute: Compute,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("identity", &self.identity)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Call {
    /// A call that `compute` computes: once on a miss, again behind a stale answer or when a frame is refreshed.
    pub fn new<F, Fut>(identity: Identity, spec: Spec, compute: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        Self {
            identity,
            spec,
            compute: Arc::new(move || {
                let computing = compute();
                async move { computing.await.outcome() }.boxed()
            }),
        }
    }

    /// Computes it. A panic is a failure of the function like any other.
    pub(crate) async fn run(&self) -> Result<Data, Failed> {
        let computed = std::panic::AssertUnwindSafe(async { (self.compute)().await });
        computed.catch_unwind().await.unwrap_or_else(|cause| {
            let text = cause
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| cause.downcast_ref::<&str>().copied());
            let why = format!("it panicked: {}", text.unwrap_or("unknown cause"));
            Err(Failed::Function(why.into()))
        })
    }

    /// Why there is no result, as the caller is told.
    pub(crate) fn failed(&self, failed: Failed) -> Error {
        let key = self.spec.key.clone();
        match failed {
            Failed::Function(source) => Error::Function {
                key,
                source: source.into(),
            },
            Failed::Unfit(why) => Error::Unfit { key, why },
        }
    }
}
