//! The client: looks up, computes what is not there, stores it behind, and does without a registry that is away.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::entry::EntryId;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use crate::{
    behind::{Behind, Flushed},
    breaker::Breaker,
    call::Call,
    error::{BoxError, Error, Result},
    frame::MaterializedFrame,
    held::Held,
    meta::{Meta, OnError, Served, Spec},
    registry::{Claimed, Found, Lease, Registry},
    transport::{Http, Transport},
};

/// What a client is told. The defaults suit a service beside its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whose entries these are; none when they are everybody's. Tenants share nothing.
    pub tenant: Option<String>,
    /// How long an answer that is only looked up may take before the registry counts as away.
    pub timeout: Duration,
    /// How long an answer that is computed may take, an upload to be taken, and a download to go on.
    pub patience: Duration,
    /// How long a caller waits for somebody else's build before it computes by itself.
    pub wait: Duration,
    /// How long a registry that does not answer is left alone.
    pub rest: Duration,
    /// Whether results are stored behind their callers' backs.
    pub background: bool,
    /// What is done when the registry is away.
    pub on_error: OnError,
    /// Most bytes of a result that are held in memory; what is larger goes into a temporary file.
    pub memory: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tenant: None,
            timeout: Duration::from_secs(2),
            patience: Duration::from_secs(300),
            wait: Duration::from_secs(5),
            rest: Duration::from_secs(10),
            background: true,
            on_error: OnError::Fallback,
            memory: 64 << 20,
        }
    }
}

/// A client of one registry. Cheap to clone; clones share connections, and calls that are under way.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
    breaker: Breaker,
    behind: Arc<Behind>,
    flights: Mutex<HashMap<EntryId, Flight>>,
    count: AtomicU64,
}

/// A call under way, or computed and not stored yet.
#[derive(Clone, Debug)]
struct Flight {
    number: u64,
    outcome: Shared<BoxFuture<'static, Result<MaterializedFrame>>>,
}

/// Takes a call off the list when it is over, however it ends: one that stayed would answer its callers for ever.
struct Landing {
    client: Client,
    id: EntryId,
    number: u64,
    /// Whether somebody else takes it off.
    passed_on: bool,
}

impl Landing {
    fn of(client: &Client, id: &EntryId, number: u64) -> Self {
        Self {
            client: client.clone(),
            id: id.clone(),
            number,
            passed_on: false,
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.passed_on {
            self.client.landed(&self.id, self.number);
        }
    }
}

static INSTALLED: OnceLock<Client> = OnceLock::new();

impl Client {
    /// A client over any transport.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, settings: Settings) -> Self {
        let registry = Registry {
            transport,
            timeout: settings.timeout,
            patience: settings.patience,
        };
        Self(Arc::new(Parts {
            registry,
            breaker: Breaker::new(settings.rest),
            settings,
            behind: Arc::default(),
            flights: Mutex::default(),
            count: AtomicU64::new(0),
        }))
    }

    /// A client of `headwater serve`, or of the deployed control function.
    ///
    /// # Errors
    /// When the address is none, or the system's certificates cannot be read.
    pub fn connect(address: &str, token: Option<&str>) -> Result<Self, BoxError> {
        Ok(Self::new(
            Arc::new(Http::new(address, token)?),
            Settings::default(),
        ))
    }

    /// Makes this the client of every `#[materialize]` that names none. The first one stays.
    pub fn install(self) {
        let _ = INSTALLED.set(self);
    }

    /// The installed client.
    ///
    /// # Errors
    /// [`Error::NoClient`] when none was.
    pub fn installed() -> Result<Self> {
        INSTALLED.get().cloned().ok_or(Error::NoClient)
    }

    /// Waits for everything that is written behind, and counts what became of it since the last time.
    pub async fn flush(&self) -> Flushed {
        self.0.behind.flush().await
    }

    /// The entry of a call.
    ///
    /// # Errors
    /// An argument that has no encoding; a tenant that is none.
    pub fn id(&self, call: &Call) -> Result<EntryId> {
        let print = call.identity.fingerprint()?;
        EntryId::new(print, self.0.settings.tenant.as_deref()).map_err(|error| Error::Refused {
            status: 400,
            kind: String::from("tenant"),
            detail: error.to_string(),
        })
    }

    /// The frame of a call: from the registry, or computed. Callers of one call at once share one look-up and one computation,
    /// which goes on when they go away.
    ///
    /// # Errors
    /// What the function says; with `on_error = "raise"` that the registry is away, or that somebody else is still building.
    pub async fn get(&self, call: Call) -> Result<MaterializedFrame> {
        let id = self.id(&call)?;
        let outcome = {
            let mut flights = self.flights();
            match flights.get(&id) {
                Some(flight) => flight.outcome.clone(),
                None => {
                    let number = self.0.count.fetch_add(1, Ordering::Relaxed);
                    let job = self.clone().fly(id.clone(), Arc::new(call), number);
                    let outcome = shared(job);
                    let flight = Flight {
                        number,
                        outcome: outcome.clone(),
                    };
                    flights.insert(id, flight);
                    outcome
                }
            }
        };
        outcome.await
    }

    fn flights(&self) -> std::sync::MutexGuard<'_, HashMap<EntryId, Flight>> {
        self.0
            .flights
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn landed(&self, id: &EntryId, number: u64) {
        let mut flights = self.flights();
        if flights
            .get(id)
            .is_some_and(|flight| flight.number == number)
        {
            flights.remove(id);
        }
    }

    async fn fly(self, id: EntryId, call: Arc<Call>, number: u64) -> Result<MaterializedFrame> {
        let mut landing = Landing::of(&self, &id, number);
        let outcome = self.fetch(&id, &call, number).await;
        // Until it is stored, callers here are served what is here.
        landing.passed_on = matches!(&outcome, Ok(frame) if frame.storing().is_some());
        outcome
    }

    fn on_error(&self, spec: &Spec) -> OnError {
        spec.on_error.unwrap_or(self.0.settings.on_error)
    }

    /// Asks the registry, unless it is being left alone.
    async fn claim(&self, id: &EntryId, spec: &Spec) -> Result<Claimed> {
        if !self.0.breaker.allows() {
            let why = "it did not answer a moment ago, and is left alone for a while";
            return Err(Error::Away(why.to_owned()));
        }
        let claimed = self.0.registry.claim(id, spec, self.0.settings.wait).await;
        match &claimed {
            Err(Error::Away(_)) => self.0.breaker.failed(),
            _ => self.0.breaker.answered(),
        }
        claimed
    }

    async fn fetch(
        &self,
        id: &EntryId,
        call: &Arc<Call>,
        number: u64,
    ) -> Result<MaterializedFrame> {
        match self.claim(id, &call.spec).await {
            Ok(Claimed::Entry(found)) => Ok(self.found(id, call, *found)),
            Ok(Claimed::Build(lease)) => self.build(id, call, Some((lease, number))).await,
            Ok(Claimed::Wait) => match self.on_error(&call.spec) {
                OnError::Raise => Err(Error::Building(call.spec.key.clone())),
                OnError::Fallback => self.build(id, call, None).await,
            },
            Err(error) => match self.on_error(&call.spec) {
                OnError::Raise => Err(error),
                OnError::Fallback => {
                    tracing::warn!(
                        key = call.spec.key,
                        error = error.chain(),
                        "computing without the registry"
                    );
                    self.build(id, call, None).await
                }
            },
        }
    }

    /// A frame of what was found; whoever got the lease with it rebuilds it behind.
    fn found(&self, id: &EntryId, call: &Arc<Call>, mut found: Found) -> MaterializedFrame {
        if let Some(lease) = found.lease.take() {
            let (client, id, call) = (self.clone(), id.clone(), call.clone());
            let pending = self.0.behind.begin();
            tokio::spawn(async move {
                match client.rebuild(&id, &call, &lease).await {
                    Ok(_) => pending.stored(),
                    Err(error) => {
                        tracing::warn!(
                            key = call.spec.key,
                            error = error.chain(),
                            "a stale entry was not rebuilt"
                        );
                    }
                }
            });
        }
        MaterializedFrame::found(self, id, Some(call), found)
    }

    /// Computes and stores under a lease, and waits for both.
    pub(crate) async fn rebuild(
        &self,
        id: &EntryId,
        call: &Call,
        lease: &Lease,
    ) -> Result<(Held, Meta)> {
        let held = self.compute(id, call, Some(lease)).await?;
        let meta = self.store(id, call, lease, &held).await?;
        Ok((held, meta))
    }

    /// Runs the function; a lease that it fails under is given back.
    async fn compute(&self, id: &EntryId, call: &Call, lease: Option<&Lease>) -> Result<Held> {
        let held = match call.run().await {
            Ok(data) => Held::take(data, self.0.settings.memory).await,
            Err(failed) => Err(failed),
        };
        match held {
            Ok(held) => Ok(held),
            Err(failed) => {
                if let Some(lease) = lease {
                    self.give_back(id, lease).await;
                }
                Err(call.failed(failed))
            }
        }
    }

    async fn give_back(&self, id: &EntryId, lease: &Lease) {
        if let Err(error) = self.0.registry.abort(id, &lease.token).await {
            tracing::warn!(entry = %id, error = error.chain(), "a lease is left to its deadline");
        }
    }

    /// Uploads and commits. What fails leaves no row and no data that a row names.
    async fn store(&self, id: &EntryId, call: &Call, lease: &Lease, held: &Held) -> Result<Meta> {
        let registry = &self.0.registry;
        let stored = async {
            let file = held.encoded().await.map_err(|error| Error::Unfit {
                key: call.spec.key.clone(),
                why: error.to_string(),
            })?;
            registry.upload(id, lease, &file).await?;
            registry.commit(id, &lease.token).await
        }
        .await;
        if stored.is_err() {
            self.give_back(id, lease).await;
        }
        stored
    }

    /// Computes; under a lease the result is stored, behind the caller or before it. The number is that of the call under way.
    async fn build(
        &self,
        id: &EntryId,
        call: &Arc<Call>,
        lease: Option<(Lease, u64)>,
    ) -> Result<MaterializedFrame> {
        let held = self
            .compute(id, call, lease.as_ref().map(|(lease, _)| lease))
            .await?;
        let Some((lease, number)) = lease else {
            return Ok(MaterializedFrame::computed(
                self,
                id,
                call,
                held,
                Served::Alone,
                None,
            ));
        };
        let pending = self.0.behind.begin();
        let storing = {
            let (client, id, call, held) = (self.clone(), id.clone(), call.clone(), held.clone());
            shared(async move {
                let landing = Landing::of(&client, &id, number);
                let stored = client.store(&id, &call, &lease, &held).await;
                // Before whoever flushes goes on: the next call asks the registry.
                drop(landing);
                match &stored {
                    Ok(_) => pending.stored(),
                    Err(error) => {
                        tracing::warn!(key = call.spec.key, entry = %id, error = error.chain(), "a result was not stored");
                    }
                }
                stored
            })
        };
        let background = call.spec.background.unwrap_or(self.0.settings.background);
        if !background
            && let Err(error) = storing.clone().await
            && self.on_error(&call.spec) == OnError::Raise
        {
            return Err(error);
        }
        Ok(MaterializedFrame::computed(
            self,
            id,
            call,
            held,
            Served::Built,
            Some(storing),
        ))
    }

    /// Whether what went wrong is the registry's, as far as the breaker is concerned.
    pub(crate) fn note(&self, error: &Error) {
        if matches!(error, Error::Away(_)) {
            self.0.breaker.failed();
        }
    }
}

/// Runs a job whoever waits for it, for all who do.
pub(crate) fn shared<T: Clone + Send + Sync + 'static>(
    job: impl Future<Output = Result<T>> + Send + 'static,
) -> Shared<BoxFuture<'static, Result<T>>> {
    let job = tokio::spawn(job);
    let outcome = async move {
        job.await.unwrap_or_else(|error| {
            Err(Error::Away(format!(
                "the task that asked was ended: {error}"
            )))
        })
    };
    outcome.boxed().shared()
}
