//! Frames: one interface over rows, wherever they are.

mod download;
#[cfg(feature = "sql")]
mod local;
mod lookup;
mod search;
mod selection;

use std::{fmt, sync::Arc};

use domain::{entry::EntryId, items::Column};
use futures::future::{BoxFuture, Shared};
use hyper::Method;
use ports::{columns, query::Parameter};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OnceCell};

use crate::{
    batches::{BatchStream, Batches},
    call::Call,
    client::Client,
    error::{Error, Result},
    held::Held,
    meta::{Meta, OnError, Served},
    registry::{Claimed, Found, Link, Registry, path},
};

pub use lookup::{Lookups, Operand};
pub use search::{Search, VectorSearch};
pub use selection::Selection;

/// An entry on its way into the registry.
pub(crate) type Storing = Shared<BoxFuture<'static, Result<Meta>>>;

/// The result of a call. The same calls work whatever backs it: rows in this process, or an entry of the registry. Cheap to
/// clone; nothing changes it.
#[derive(Clone)]
pub struct MaterializedFrame(Arc<Inner>);

struct Inner {
    client: Client,
    id: EntryId,
    /// How it is computed; none for frames that only read.
    call: Option<Arc<Call>>,
    meta: Meta,
    served: Served,
    rows: Backing,
    /// Of a frame that was computed here: what becomes of storing it.
    storing: Option<Storing>,
}

enum Backing {
    /// Here.
    Held(Held),
    /// In the registry, fetched once somebody wants all of it.
    Remote {
        link: Mutex<Option<Link>>,
        fetched: OnceCell<Held>,
        /// The frame that took its place when its data was gone.
        again: Box<OnceCell<MaterializedFrame>>,
    },
}

impl fmt::Debug for MaterializedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaterializedFrame")
            .field("id", &self.0.id)
            .field("served", &self.0.served)
            .finish_non_exhaustive()
    }
}

impl MaterializedFrame {
    /// A frame of what the registry answered.
    pub(crate) fn found(
        client: &Client,
        id: &EntryId,
        call: Option<&Arc<Call>>,
        found: Found,
    ) -> Self {
        let rows = match found.payload {
            Some(batches) => Backing::Held(Held::Memory(Arc::new(batches))),
            None => Backing::Remote {
                link: Mutex::new(found.link),
                fetched: OnceCell::new(),
                again: Box::default(),
            },
        };
        Self(Arc::new(Inner {
            client: client.clone(),
            id: id.clone(),
            call: call.cloned(),
            meta: found.meta,
            served: if found.stale {
                Served::Stale
            } else {
                Served::Hit
            },
            rows,
            storing: None,
        }))
    }

    /// A frame of what was computed here.
    pub(crate) fn computed(
        client: &Client,
        id: &EntryId,
        call: &Arc<Call>,
        held: Held,
        served: Served,
        storing: Option<Storing>,
    ) -> Self {
        let schema = held.schema();
        let column = |field: &Arc<arrow::datatypes::Field>| Column {
            name: field.name().clone(),
            kind: columns::word(field.data_type()),
        };
        let meta = Meta {
            id: id.to_string(),
            key: call.spec.key.clone(),
            version: call.spec.version,
            created_at: None,
            expires_at: None,
            row_count: held.rows(),
            byte_size: 0,
            generation: None,
            columns: schema.fields().iter().map(column).collect(),
        };
        Self(Arc::new(Inner {
            client: client.clone(),
            id: id.clone(),
            call: Some(call.clone()),
            meta,
            served,
            rows: Backing::Held(held),
            storing,
        }))
    }

    /// What becomes of storing it, while that is under way.
    pub(crate) fn storing(&self) -> Option<Storing> {
        self.0.storing.clone()
    }

    /// What is known of the entry.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// How this frame came about.
    #[must_use]
    pub fn served(&self) -> Served {
        self.0.served
    }

    /// Whether the function did not run for it.
    #[must_use]
    pub fn is_hit(&self) -> bool {
        matches!(self.0.served, Served::Hit | Served::Stale)
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.meta.row_count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows as Arrow, in the order they were computed in.
    ///
    /// # Errors
    /// When they cannot be fetched. Data that is gone is computed anew.
    pub async fn arrow(&self) -> Result<Arc<Batches>> {
        self.held().await?.batches().await
    }

    /// All rows as they come, without holding them in memory.
    ///
    /// # Errors
    /// As [`arrow`](Self::arrow).
    pub async fn stream(&self) -> Result<BatchStream> {
        self.held().await?.stream().await
    }

    /// All rows as values of a type.
    ///
    /// # Errors
    /// As [`arrow`](Self::arrow), and for a row that is no such value.
    pub async fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        self.arrow().await?.rows()
    }

    /// SQL over the rows, which go by the name `this`: the planner resolves it as the table it is.
    ///
    /// # Errors
    /// A statement that is none, writes, or names another table.
    pub async fn sql(&self, sql: &str) -> Result<Batches> {
        self.sql_with(sql, &[]).await
    }

    /// The same with values of `$1`, `$2` and on.
    ///
    /// # Errors
    /// As [`sql`](Self::sql).
    pub async fn sql_with(&self, sql: &str, parameters: &[Parameter]) -> Result<Batches> {
        #[cfg(feature = "sql")]
        if let Backing::Held(held) = &self.0.rows {
            return local::run(held, sql, parameters).await;
        }
        let values: Vec<String> = parameters.iter().map(Parameter::to_json).collect();
        let sql = serde_json::Value::from(sql);
        let body = format!("{{\"sql\":{sql},\"parameters\":[{}]}}", values.join(","));
        self.ask("/query", body, "SQL without the feature `sql`")
            .await
    }

    /// Sends a call on the entry itself.
    async fn ask(&self, call: &str, body: String, what: &'static str) -> Result<Batches> {
        self.stored(what).await?;
        let client = &self.0.client;
        let mut frame = self.clone();
        // Once: what is gone again after it was computed anew is somebody's doing.
        for _ in 0..2 {
            match client.0.registry.rows(&frame.0.id, call, &body).await {
                Err(Error::Missing(_)) => {
                    frame = self.recovered().await?;
                    frame.stored(what).await?;
                }
                other => return other,
            }
        }
        Err(Error::Missing(self.0.id.to_string()))
    }

    /// Waits until the entry is stored, if it is on its way.
    async fn stored(&self, what: &'static str) -> Result<()> {
        let not_stored = |why: String| Error::NotStored {
            key: self.0.meta.key.clone(),
            why,
            what,
        };
        match (&self.0.storing, self.0.served) {
            (Some(storing), _) => match storing.clone().await {
                Ok(_) => Ok(()),
                Err(error) => Err(not_stored(error.chain())),
            },
            (None, Served::Alone) => Err(not_stored(String::from(
                "it was away, or somebody else was building, when this was computed",
            ))),
            (None, _) => Ok(()),
        }
    }

    /// The rows, here.
    async fn held(&self) -> Result<Held> {
        match &self.0.rows {
            Backing::Held(held) => Ok(held.clone()),
            Backing::Remote {
                link,
                fetched,
                again,
            } => {
                if let Some(frame) = again.get() {
                    return Box::pin(frame.held()).await;
                }
                let held = fetched.get_or_try_init(|| {
                    download::fetch(&self.0.client, &self.0.id, &self.0.meta, link)
                });
                match held.await {
                    Ok(held) => Ok(held.clone()),
                    Err(Error::Missing(_)) => {
                        let frame = self.recovered().await?;
                        match &frame.0.rows {
                            Backing::Held(held) => Ok(held.clone()),
                            // Once: what is gone again is somebody's doing.
                            Backing::Remote { link, .. } => {
                                download::fetch(&frame.0.client, &frame.0.id, &frame.0.meta, link)
                                    .await
                            }
                        }
                    }
                    Err(error) => self.without(error).await,
                }
            }
        }
    }

    /// The frame of the call made again, once the data of this one is gone.
    async fn recovered(&self) -> Result<Self> {
        let Some(call) = &self.0.call else {
            return Err(Error::Missing(self.0.id.to_string()));
        };
        let call = Call::clone(call);
        match &self.0.rows {
            Backing::Remote { again, .. } => {
                let frame = again.get_or_try_init(|| Box::pin(self.0.client.get(call)));
                frame.await.cloned()
            }
            Backing::Held(_) => Box::pin(self.0.client.get(call)).await,
        }
    }

    /// The registry went away between the look-up and the rows: the function runs.
    async fn without(&self, error: Error) -> Result<Held> {
        self.0.client.note(&error);
        let raise = |call: &Call| {
            let on_error = call.spec.on_error;
            on_error.unwrap_or(self.0.client.0.settings.on_error) == OnError::Raise
        };
        match &self.0.call {
            Some(call) if error.is_registry() && !raise(call) => {
                tracing::warn!(
                    key = call.spec.key,
                    error = error.chain(),
                    "computing what cannot be fetched"
                );
                let data = call.run().await.map_err(|failed| call.failed(failed))?;
                let memory = self.0.client.0.settings.memory;
                Held::take(data, memory)
                    .await
                    .map_err(|failed| call.failed(failed))
            }
            _ => Err(error),
        }
    }

    /// Computes the entry anew, now, and stores it. Others are served what there was until then.
    ///
    /// # Errors
    /// What the function or the registry says; [`Error::Building`] while somebody else builds it.
    pub async fn refresh(&self) -> Result<Self> {
        let Inner {
            client, id, call, ..
        } = &*self.0;
        let Some(call) = call else {
            return Err(Error::Missing(id.to_string()));
        };
        if let Some(storing) = &self.0.storing {
            let _ = storing.clone().await;
        }
        let registry = &client.0.registry;
        let path = path(id, "/refresh");
        let expired = registry.json(
            Method::POST,
            &path,
            &serde_json::Value::Null,
            registry.timeout,
        );
        match expired.await {
            Ok(_) | Err(Error::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        let lease = match registry
            .claim(id, &call.spec, client.0.settings.wait)
            .await?
        {
            Claimed::Entry(mut found) => found.lease.take(),
            Claimed::Build(lease) => Some(lease),
            Claimed::Wait => None,
        };
        let lease = lease.ok_or_else(|| Error::Building(call.spec.key.clone()))?;
        let (held, meta) = client.rebuild(id, call, &lease).await?;
        Ok(Self(Arc::new(Inner {
            client: client.clone(),
            id: id.clone(),
            call: Some(call.clone()),
            meta,
            served: Served::Built,
            rows: Backing::Held(held),
            storing: None,
        })))
    }

    /// Removes the entry: the next call computes it. Answers whether there was one.
    ///
    /// # Errors
    /// What the registry says.
    pub async fn invalidate(&self) -> Result<bool> {
        if let Some(storing) = &self.0.storing {
            let _ = storing.clone().await;
        }
        let registry = &self.0.client.0.registry;
        let request = Registry::plain(Method::DELETE, &path(&self.0.id, ""))?;
        match registry
            .send(request, registry.timeout, &self.0.id.to_string())
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Columns, in SQL words.
    fn columns(&self) -> &[Column] {
        &self.0.meta.columns
    }
}
