//! The ports of one life of one process, each call through the scheduler.

use std::{fmt, io, sync::Arc};

use async_trait::async_trait;
use domain::Timestamp;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Stored,
    path::Path,
};
use ports::{
    Clock, Error, Kind, Objects, Result, State,
    state::{Item, Key, Outcome, Span, Write, validate},
};

use crate::scheduler::{Call, Life, Scheduler, Verdict};

/// Where a process meets the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) life: Arc<Life>,
}

impl Gate {
    pub(crate) async fn enter(&self, call: Call, subject: String) -> Verdict {
        self.scheduler.enter(&self.life, call, subject).await
    }

    /// Does a call, or not, as its turn says. `work` does nothing before it is awaited.
    pub(crate) async fn call<T, E>(
        &self,
        call: Call,
        subject: String,
        error: fn() -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match self.enter(call, subject).await {
            Verdict::Go => work.await,
            Verdict::Lost | Verdict::Conflict => Err(error()),
            Verdict::Unknown => {
                work.await?;
                Err(error())
            }
            Verdict::DieBefore | Verdict::DieAfter => {
                let _ = work.await;
                self.scheduler.kill(&self.life);
                std::future::pending().await
            }
        }
    }
}

/// No answer, from any port but the objects.
pub(crate) fn silence() -> Error {
    Error::new(Kind::Unavailable, "reach", "world").because("no answer (injected fault)")
}

fn no_object() -> object_store::Error {
    object_store::Error::Generic {
        store: "gated",
        source: Box::new(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
    }
}

/// State behind the gate.
#[derive(Debug)]
pub(crate) struct GatedState {
    pub(crate) inner: Arc<dyn State>,
    pub(crate) gate: Gate,
}

fn keys<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
    let mut text = String::new();
    for (index, key) in keys.enumerate() {
        match index {
            0..4 => text.push_str(&format!("{}/{} ", key.partition, key.sort)),
            4 => text.push_str(".."),
            _ => break,
        }
    }
    text
}

#[async_trait]
impl State for GatedState {
    async fn get_many(&self, wanted: &[Key]) -> Result<Vec<Option<Item>>> {
        let work = self.inner.get_many(wanted);
        self.gate
            .call(Call::Get, keys(wanted.iter()), silence, work)
            .await
    }

    async fn query(&self, span: &Span) -> Result<Vec<Item>> {
        let subject = format!("{}/{}", span.partition, span.from);
        self.gate
            .call(Call::Query, subject, silence, self.inner.query(span))
            .await
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<Outcome> {
        validate(&writes)?;
        let subject = keys(writes.iter().map(Write::key));
        match self.gate.enter(Call::Transact, subject).await {
            Verdict::Go => self.inner.transact(writes).await,
            Verdict::Conflict => Ok(Outcome::Conflict(Vec::new())),
            Verdict::Lost => Err(silence()),
            Verdict::Unknown => {
                self.inner.transact(writes).await?;
                Err(silence())
            }
            Verdict::DieBefore | Verdict::DieAfter => {
                let _ = self.inner.transact(writes).await;
                self.gate.scheduler.kill(&self.gate.life);
                std::future::pending().await
            }
        }
    }

    async fn change_counter(&self) -> Result<Option<u64>> {
        if self.gate.life.is_dead() {
            return std::future::pending().await;
        }
        self.inner.change_counter().await
    }
}

/// Objects behind the gate.
#[derive(Clone, Debug)]
pub(crate) struct GatedObjects {
    pub(crate) inner: Objects,
    pub(crate) gate: Gate,
}

impl fmt::Display for GatedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gated {}", self.inner)
    }
}

impl GatedObjects {
    async fn call<T>(
        &self,
        call: Call,
        subject: impl fmt::Display,
        work: impl Future<Output = Stored<T>>,
    ) -> Stored<T> {
        self.gate
            .call(call, subject.to_string(), no_object, work)
            .await
    }
}

#[async_trait]
impl ObjectStore for GatedObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Stored<PutResult> {
        let work = self.inner.put_opts(location, payload, options);
        self.call(Call::PutObject, location, work).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Stored<Box<dyn MultipartUpload>> {
        let work = self.inner.put_multipart_opts(location, options);
        self.call(Call::PutObject, location, work).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Stored<GetResult> {
        let work = self.inner.get_opts(location, options);
        self.call(Call::GetObject, location, work).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Stored<Path>>,
    ) -> BoxStream<'static, Stored<Path>> {
        let store = self.clone();
        locations
            .and_then(move |location| {
                let store = store.clone();
                async move {
                    let work = store.inner.delete(&location);
                    store.call(Call::DeleteObject, &location, work).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listing = async move {
            let work = async { Ok(store.inner.list(prefix.as_ref())) };
            let subject = prefix.as_ref().map(ToString::to_string).unwrap_or_default();
            store.call(Call::ListObjects, subject, work).await
        };
        futures::stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        let work = self.inner.list_with_delimiter(prefix);
        let subject = prefix.map(ToString::to_string).unwrap_or_default();
        self.call(Call::ListObjects, subject, work).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Stored<()> {
        let work = self.inner.copy_opts(from, to, options);
        self.call(Call::PutObject, to, work).await
    }
}

/// A clock that is off.
#[derive(Debug)]
pub(crate) struct SkewedClock {
    pub(crate) inner: Arc<dyn Clock>,
    pub(crate) skew: i64,
}

#[async_trait]
impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.inner.now().0 + self.skew)
    }

    async fn sleep_until(&self, moment: Timestamp) {
        self.inner
            .sleep_until(Timestamp(moment.0.saturating_sub(self.skew)))
            .await;
    }
}
