//! Entries that are queries over the lake: the server makes them by itself, once for all who ask at a time.

use domain::{
    Duration, Timestamp,
    entry::{EntryId, IndexSpec, Mode, QuerySpec, Spec},
    fingerprint::{Call, Value},
};
use ports::{
    Error, Kind,
    query::{Limits, Parameter, Statement},
};

use super::{
    Ask, Claim, Claimed, Commit, Entry, Refused, Registry,
    build::{Built, distinct, set, unavailable},
    contended, payload,
};
use crate::{pins::Reads, read};

/// The function that every query is a call of; raised when the same SQL comes to mean something else.
const FUNCTION: (&str, i64) = ("headwater.query", 1);
/// How often a query is built for one caller whose builds are evicted under way.
const BUILDS: u32 = 3;
/// What a build may take beside running its statement.
pub(super) const MARGIN: Duration = Duration::from_secs(30);

/// A query that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The statement.
    pub sql: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// What people call the entry; the beginning of the statement when none.
    pub key: Option<String>,
    /// Whose it is.
    pub tenant: Option<String>,
    /// How long it is good for; none for ever.
    pub ttl: Option<Duration>,
    /// How it is served once it is expired.
    pub mode: Mode,
    /// Whether it goes stale when a table it read moves on.
    pub on_advance: bool,
    /// How long to wait for somebody else's build.
    pub wait: Duration,
    /// How long the statement may run.
    pub time: Duration,
    /// What the entry is searched by.
    pub indexes: Vec<IndexSpec>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Ran {
    /// It was there.
    Hit(Box<Entry>),
    /// It was there, expired; somebody rebuilds it.
    Stale(Box<Entry>),
    /// It was not there, and was computed.
    Built(Box<Entry>),
    /// Somebody else computes it, and took longer than the caller waits.
    Wait {
        /// The entry.
        id: EntryId,
        /// When they are taken over.
        until: Timestamp,
    },
}

impl Registry {
    /// Serves a query from its entry, or runs it. With `behind` a rebuild of a stale entry happens after the answer.
    ///
    /// A build whose entry is evicted meanwhile, or that was taken over, is none of its caller's doing: it is claimed anew, and
    /// what is served was computed after the eviction.
    ///
    /// # Errors
    /// `Invalid` for a statement that is not one SELECT over the lake; what running it brings. A build that fails leaves
    /// what was there. `Conflict` when the entry is evicted during every one of several builds.
    pub async fn run(&self, asked: &Asked, behind: bool) -> Result<Ran, Refused> {
        let id = self.identify(asked).await?;
        let claim = self.claim_of(asked);
        for _ in 0..BUILDS {
            match self.claim(&id, &claim).await? {
                Claimed::Hit(entry) => return Ok(Ran::Hit(entry)),
                Claimed::Stale(entry, None) => return Ok(Ran::Stale(entry)),
                Claimed::Wait { until } => return Ok(Ran::Wait { id, until }),
                Claimed::Build(granted) => {
                    let built = self.build(&id, granted.token, &claim.spec, asked.time, true);
                    match built.await {
                        Err(error) if is_lost(&error) => {}
                        built => return built.map(|entry| Ran::Built(Box::new(entry))),
                    }
                }
                Claimed::Stale(entry, Some(granted)) if self.world.jobs.is_some() => {
                    self.have_rebuilt(&id, granted.token, asked.time).await;
                    return Ok(Ran::Stale(entry));
                }
                Claimed::Stale(entry, Some(granted)) => {
                    // Fresh rows without an index are better than none: what cannot be indexed says so when it is searched.
                    let build = self.apart(&id, granted.token, &claim.spec, asked.time, false);
                    if behind {
                        return Ok(Ran::Stale(entry));
                    }
                    match joined(&id, build.await) {
                        Ok(entry) => return Ok(Ran::Built(Box::new(entry))),
                        Err(error) if is_lost(&error) => {}
                        Err(error) => {
                            tracing::warn!(entry = %id, error = error.told(), "a rebuild failed; the stale entry is served");
                            return Ok(Ran::Stale(entry));
                        }
                    }
                }
            }
        }
        Err(contended("build entry", &id).into())
    }

    /// The entry of a query: its text, its parameters, and the definitions of the views it reads through.
    ///
    /// # Errors
    /// `Invalid` for a statement that is not one SELECT.
    pub async fn identify(&self, asked: &Asked) -> Result<EntryId, Refused> {
        let named = read::named(&asked.sql).await?;
        let reads = Reads::of(&self.world.project, named)?;
        let view = |(name, text): (&domain::TableName, &String)| {
            (Value::from(name.to_string()), Value::from(text.clone()))
        };
        let call = Call::new(FUNCTION.0, FUNCTION.1)
            .with(Value::Query {
                dialect: String::from("headwater"),
                database: String::from("lake"),
                sql: asked.sql.clone(),
                parameters: asked.parameters.iter().map(value).collect(),
            })
            .with(Value::Map(reads.views.iter().map(view).collect()));
        let wrong = |why: String| Refused::invalid("identify", "query", why);
        let print = call
            .fingerprint()
            .map_err(|error| wrong(error.to_string()))?;
        EntryId::new(print, asked.tenant.as_deref()).map_err(|error| wrong(error.to_string()))
    }

    fn claim_of(&self, asked: &Asked) -> Claim {
        let title = || asked.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let key = asked.key.clone().unwrap_or_else(title);
        Claim {
            ask: Ask {
                mode: Some(asked.mode),
                ttl: asked.ttl,
                on_advance: asked.on_advance,
            },
            spec: Spec {
                key: key.chars().take(100).collect(),
                version: 0,
                mode: asked.mode,
                ttl_ms: asked
                    .ttl
                    .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
                query: Some(QuerySpec {
                    sql: asked.sql.clone(),
                    parameters: asked.parameters.iter().map(Parameter::to_json).collect(),
                    on_advance: asked.on_advance,
                }),
                declared: Vec::new(),
                indexes: asked.indexes.clone(),
            },
            holder: String::from("query"),
            lease: Some(asked.time + MARGIN),
            wait: asked.wait,
        }
    }

    /// Builds in a task of its own, so that a caller who hangs up does not leave the others with a dead lease. `checked`
    /// refuses what cannot be indexed before the rows are computed.
    fn apart(
        &self,
        id: &EntryId,
        token: String,
        spec: &Spec,
        time: Duration,
        checked: bool,
    ) -> tokio::task::JoinHandle<Result<Entry, Refused>> {
        let (registry, id, spec) = (self.clone(), id.clone(), spec.clone());
        tokio::spawn(async move {
            let built = registry.compute(&id, &token, &spec, time, checked).await;
            if let Err(error) = &built {
                tracing::warn!(entry = %id, error = error.told(), "a build failed");
                registry.clean_up(&id, &token, error).await;
            }
            built
        })
    }

    pub(super) async fn build(
        &self,
        id: &EntryId,
        token: String,
        spec: &Spec,
        time: Duration,
        checked: bool,
    ) -> Result<Entry, Refused> {
        let ended = self.apart(id, token.clone(), spec, time, checked).await;
        if ended.is_err() {
            // It panicked: nobody else gave the lease back.
            self.give_back(id, &token).await;
        }
        joined(id, ended)
    }

    /// Sees to what a build leaves that came to nothing.
    async fn clean_up(&self, id: &EntryId, token: &str, error: &Refused) {
        match error {
            // It was the entry: whoever rebuilt or evicted it has seen to its data, which readers may still be at.
            Refused::Missing(_) => {}
            // It committed nothing, so nobody reads what it wrote, maybe after the eviction that looked before.
            Refused::Fenced(_) => {
                if let Err(error) = self.discard(id, token).await {
                    tracing::warn!(entry = %id, error = error.told(), "what a lost build wrote is left to reconcile");
                }
            }
            _ => self.give_back(id, token).await,
        }
    }

    /// Gives the lease of a build back that ended nobody knows where. One that is gone may have been lost, or committed without
    /// an answer: what was written goes after the time that readers have.
    async fn give_back(&self, id: &EntryId, token: &str) {
        let left = match self.abort(id, token).await {
            Ok(()) => Ok(()),
            Err(Refused::Fenced(_)) => self.let_go(id, token).await,
            Err(error) => Err(error),
        };
        if let Err(error) = left {
            tracing::warn!(entry = %id, error = error.told(), "a build that failed is left to its deadline and to reconcile");
        }
    }

    async fn let_go(&self, id: &EntryId, token: &str) -> Result<(), Refused> {
        if !self.is_entry(id, token).await? {
            self.transact(vec![self.leaving(id, token)]).await?;
        }
        Ok(())
    }

    async fn discard(&self, id: &EntryId, token: &str) -> Result<(), Refused> {
        if !self.is_entry(id, token).await? {
            self.world.entries.delete(&set(id, token)).await?;
        }
        Ok(())
    }

    /// Whether a generation is what the entry holds.
    async fn is_entry(&self, id: &EntryId, token: &str) -> Result<bool, Refused> {
        let row = self.row(id).await?;
        let content = row.as_ref().and_then(|stored| stored.row.content());
        Ok(content.is_some_and(|content| content.generation == token))
    }

    pub(super) async fn compute(
        &self,
        id: &EntryId,
        token: &str,
        spec: &Spec,
        time: Duration,
        checked: bool,
    ) -> Result<Entry, Refused> {
        let Some(query) = &spec.query else {
            return Err(Refused::invalid(
                "rebuild",
                id,
                "its function runs elsewhere",
            ));
        };
        let mut statement = Statement::new(query.sql.clone());
        for text in &query.parameters {
            let parameter = Parameter::from_json(text)
                .map_err(|why| Error::new(Kind::Corrupt, "read parameters of", id).because(why))?;
            statement.parameters.push(parameter);
        }
        statement.limits = Limits { time, rows: None };
        let (catalog, watermarks) = read::pinned(&self.world, &statement.sql).await?;
        let rows = self.world.query.run(&statement, &catalog).await?;
        distinct(&rows.schema).map_err(|why| Refused::invalid("store rows of", "query", why))?;
        if checked {
            let fits = |spec| self.fits(&rows.schema, spec);
            let checked = spec.indexes.iter().try_for_each(fits);
            checked.map_err(|why| Refused::invalid("index", "query", why))?;
        }
        let (rows, kept) = payload::keep(rows);
        let stored = self.world.entries.write(&set(id, token), rows).await?;
        let payload = kept.payload(&stored.schema);
        let built = Built {
            stored,
            payload,
            watermarks,
        };
        self.finish(id, token, built, Commit::default()).await
    }
}

/// Whether a build came to nothing because somebody else disposed of its entry: it was evicted, or taken over.
pub(super) fn is_lost(error: &Refused) -> bool {
    matches!(error, Refused::Fenced(_) | Refused::Missing(_))
}

fn joined(
    id: &EntryId,
    ended: Result<Result<Entry, Refused>, tokio::task::JoinError>,
) -> Result<Entry, Refused> {
    ended.unwrap_or_else(|error| Err(unavailable("build entry", id, error).into()))
}

fn value(parameter: &Parameter) -> Value {
    match parameter {
        Parameter::Null => Value::Null,
        Parameter::Boolean(value) => Value::Bool(*value),
        Parameter::Integer(value) => Value::from(*value),
        Parameter::Float(value) => Value::Float(*value),
        Parameter::Text(value) => Value::from(value.clone()),
    }
}
