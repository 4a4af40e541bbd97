//! `headwater entries`: what is kept, and what is done about it.

mod search;

use std::io::{self, Write};

use clap::Subcommand;
use domain::{
    Duration,
    duration::parse_duration,
    entry::{EntryId, Mode},
    fingerprint,
};
use engine::entries::{Ask, Asked, Entry, Filter, Found, Ran, Refused, Registry, Shown};
use futures::TryStreamExt;
use ports::{
    query::{Limits, RowOrder, Statement},
    tables::Rows,
};
use serde_json::json;
use web::rows::{self, Format};

use super::{Context, print_json};
use crate::{
    failure::Failure,
    screen::{count, counted, right, say, table, text},
    tables, world,
};

/// Entries of a page of a list.
const PAGE: usize = 500;

/// What to do about entries.
#[derive(Clone, Debug, Subcommand)]
pub enum Entries {
    /// List entries
    List {
        /// Only those of this key
        #[arg(long)]
        key: Option<String>,
        /// Only those of this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Only those that are expired
        #[arg(long)]
        expired: bool,
    },
    /// Show an entry and its rows
    Show {
        /// The entry
        id: String,
    },
    /// Run a statement once and keep its rows; the next time they are served from there
    Run {
        /// One SELECT over the lake
        sql: String,
        /// How long they are good for [default: `materialize.ttl`]
        #[arg(long, value_parser = span, value_name = "SPAN")]
        ttl: Option<Duration>,
        /// What lists show it by; several entries may have the same
        #[arg(long)]
        key: Option<String>,
        /// Whose entry it is: the same statement of another tenant has an entry of its own
        #[arg(long)]
        tenant: Option<String>,
        /// An expired entry is a miss, instead of being served while it is rebuilt
        #[arg(long)]
        strict: bool,
        /// It also goes stale when a table it read moves on
        #[arg(long)]
        on_advance: bool,
        /// What it is searched by
        #[command(flatten)]
        by: search::By,
    },
    /// Have an entry indexed, and wait until it is; without flags, show its indexes
    Index {
        /// The entry
        id: String,
        /// What it is searched by
        #[command(flatten)]
        by: search::By,
    },
    /// Search the rows of an entry: by words, or nearest to a vector
    Search(search::Search),
    /// Run a statement over an entry, which is called `this`
    Query {
        /// The entry
        id: String,
        /// One SELECT from `this`
        sql: String,
    },
    /// Compute an entry anew: a query now, any other when it is next asked for
    Refresh {
        /// The entry
        id: String,
    },
    /// Remove an entry
    Evict {
        /// The entry
        id: String,
    },
    /// Remove what is expired and what it left
    Sweep,
    /// Remove data that no entry names, and entries whose data is gone
    Reconcile,
    /// Print the fingerprint of a call: '{"name": "report", "version": 1, "args": [7], "kwargs": {}}'
    Fingerprint {
        /// The call, as JSON
        call: String,
    },
}

fn span(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Port(error) => error.into(),
            other => Self::project(other.to_string()),
        }
    }
}

/// What a command about entries works with.
struct Desk<'a> {
    context: &'a Context,
    registry: Registry,
    limits: Limits,
}

/// Does it.
pub(super) async fn entries(context: &Context, what: Entries) -> Result<(), Failure> {
    if let Entries::Fingerprint { call } = &what {
        let wrong = |error: fingerprint::Unencodable| Failure::usage(error.to_string());
        let print = fingerprint::from_json(call)
            .and_then(|call| call.fingerprint())
            .map_err(wrong)?;
        return match context.json {
            true => print_json(&json!({ "fingerprint": print.to_string() })),
            false => Ok(say(&print.to_string())?),
        };
    }
    let settings = context.settings()?;
    let desk = Desk {
        context,
        registry: Registry::new(world::open_any(&settings)?, settings.materialize.clone()),
        limits: Limits {
            time: settings.query.timeout,
            rows: Some(settings.query.rows_max),
        },
    };
    match what {
        Entries::List {
            key,
            tenant,
            expired,
        } => {
            let expired = expired.then_some(true);
            let ready = None;
            desk.list(&Filter {
                key,
                tenant,
                ready,
                expired,
            })
            .await
        }
        Entries::Show { id } => desk.show(&desk.registry.named(&id).await?).await,
        Entries::Run {
            sql,
            ttl,
            key,
            tenant,
            strict,
            on_advance,
            by,
        } => {
            let settings = desk.registry.settings();
            let asked = Asked {
                sql,
                parameters: Vec::new(),
                key,
                tenant,
                ttl: Some(ttl.unwrap_or(settings.ttl)),
                mode: if strict { Mode::Strict } else { settings.mode },
                on_advance,
                wait: settings.wait_max,
                time: desk.limits.time,
                indexes: by.specs(),
            };
            // This process ends with its answer: what is stale is rebuilt before it.
            let ran = desk.registry.run(&asked, false).await?;
            desk.settle(&ran).await?;
            desk.ran(ran).await
        }
        Entries::Index { id, by } => desk.index(&desk.registry.named(&id).await?, &by).await,
        Entries::Search(search) => desk.search(search).await,
        Entries::Query { id, sql } => desk.query(&desk.registry.named(&id).await?, sql).await,
        Entries::Refresh { id } => {
            let id = desk.registry.named(&id).await?;
            let ran = desk.registry.refresh(&id, desk.limits.time).await?;
            desk.settle(&ran).await?;
            desk.refreshed(ran)
        }
        Entries::Evict { id } => {
            let id = desk.registry.named(&id).await?;
            match desk.registry.evict(&id).await? {
                true => desk.told(&id, "evicted"),
                false => Err(Refused::Missing(id).into()),
            }
        }
        Entries::Sweep => desk.sweep().await,
        Entries::Reconcile => desk.reconcile().await,
        Entries::Fingerprint { .. } => Ok(()),
    }
}

impl Desk<'_> {
    async fn list(&self, filter: &Filter) -> Result<(), Failure> {
        let mut all: Vec<Shown> = Vec::new();
        let mut after = None;
        loop {
            let page = self.registry.list(filter, after.as_deref(), PAGE).await?;
            all.extend(
                page.entries
                    .iter()
                    .map(|one| self.registry.listed(&one.id, &one.summary)),
            );
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if self.context.json {
            return print_json(&all);
        }
        let mut shown = table(&[
            "entry", "key", "status", ">rows", ">bytes", "created", "expires",
        ]);
        for entry in &all {
            let expires = match (&entry.expires_at, entry.expired) {
                (None, _) => String::from("never"),
                (Some(at), true) => format!("{at} (expired)"),
                (Some(at), false) => at.clone(),
            };
            shown.add_row(vec![
                text(short(&entry.id)),
                text(&entry.key),
                text(entry.status),
                right(count(entry.row_count)),
                right(count(entry.byte_size)),
                text(&entry.created_at),
                text(expires),
            ]);
        }
        say(&shown.to_string())?;
        Ok(say(
            &counted(all.len() as u64, "entry").replace("entrys", "entries")
        )?)
    }

    async fn show(&self, id: &EntryId) -> Result<(), Failure> {
        let ask = Ask {
            mode: Some(Mode::Swr),
            ..Ask::default()
        };
        match self.registry.lookup(id, ask).await? {
            Found::Hit(entry) | Found::Stale(entry) => {
                if self.context.json {
                    return print_json(&self.registry.shown(&entry));
                }
                let shown = self.registry.shown(&entry);
                let mut about = table(&["what", "value"]);
                let object = serde_json::to_value(&shown).unwrap_or_default();
                for (name, value) in object.as_object().into_iter().flatten() {
                    let plain = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    about.add_row(vec![text(name), text(plain)]);
                }
                say(&about.to_string())?;
                self.rows(&entry).await
            }
            Found::Building => self.told(id, "building"),
            Found::Miss => Err(Refused::Missing(id.clone()).into()),
        }
    }

    async fn rows(&self, entry: &Entry) -> Result<(), Failure> {
        match self.registry.rows(entry).await? {
            Some(rows) => self.print(rows).await,
            None => Err(Refused::Missing(entry.id.clone()).into()),
        }
    }

    async fn print(&self, rows: Rows) -> Result<(), Failure> {
        if self.context.json {
            let mut encoded = rows::encode(rows, Format::Json);
            while let Some(piece) = encoded.try_next().await? {
                io::stdout().write_all(&piece)?;
            }
            return Ok(io::stdout().flush()?);
        }
        let schema = rows.schema.clone();
        let batches: Vec<_> = rows.stream.try_collect().await?;
        Ok(say(&tables::rows(&schema, &batches)?.to_string())?)
    }

    async fn query(&self, id: &EntryId, sql: String) -> Result<(), Failure> {
        let statement = Statement {
            order: RowOrder::Any,
            watermarks: None,
            sql,
            parameters: Vec::new(),
            limits: self.limits,
        };
        let over = self.registry.over(id, &statement).await?;
        self.print(over.rows).await
    }

    /// Waits for indexes that this process has begun: they end with it.
    async fn settle(&self, ran: &Ran) -> Result<(), Failure> {
        match ran {
            Ran::Built(entry) if !entry.row.spec.indexes.is_empty() => {
                Ok(self.registry.settle(&entry.id, search::PATIENCE).await?)
            }
            _ => Ok(()),
        }
    }

    async fn ran(&self, ran: Ran) -> Result<(), Failure> {
        let (entry, how) = match ran {
            Ran::Hit(entry) => (entry, "hit"),
            Ran::Stale(entry) => (entry, "stale"),
            Ran::Built(entry) => (entry, "built"),
            Ran::Wait { id, until } => {
                return Err(Failure::unavailable(format!(
                    "`{id}` is being computed by another process, until {until} at the latest"
                )));
            }
        };
        if self.context.json {
            return print_json(&json!({ "served": how, "entry": self.registry.shown(&entry) }));
        }
        self.rows(&entry).await?;
        Ok(say(&format!("{how}: {}", short(&entry.id.to_string())))?)
    }

    fn refreshed(&self, ran: Ran) -> Result<(), Failure> {
        match ran {
            Ran::Built(entry) | Ran::Hit(entry) => self.told(&entry.id, "rebuilt"),
            Ran::Stale(entry) => {
                self.told(&entry.id, "expired: whoever asks for it next builds it")
            }
            Ran::Wait { id, .. } => self.told(&id, "being rebuilt by somebody else"),
        }
    }

    fn told(&self, id: &EntryId, what: &str) -> Result<(), Failure> {
        match self.context.json {
            true => print_json(&json!({ "id": id.to_string(), "status": what })),
            false => Ok(say(&format!("{} {what}", short(&id.to_string())))?),
        }
    }

    async fn sweep(&self) -> Result<(), Failure> {
        let swept = self.registry.sweep().await?;
        if self.context.json {
            print_json(&swept)?;
        } else {
            self.counts(&[
                ("expired entries evicted", swept.evicted),
                ("builds given up", swept.abandoned),
                ("superseded generations removed", swept.superseded),
            ])?;
        }
        match swept.errors.first() {
            None => Ok(()),
            Some(error) => Err(Failure::unavailable(format!("sweep: {error}"))),
        }
    }

    async fn reconcile(&self) -> Result<(), Failure> {
        let done = self.registry.reconcile().await?;
        if self.context.json {
            return print_json(&done);
        }
        self.counts(&[
            ("data sets removed that nothing named", done.deleted),
            ("entries removed whose data was gone", done.lost),
            (
                "indexes removed that nothing named, or without a file",
                done.indexes,
            ),
        ])
    }

    fn counts(&self, counts: &[(&str, u64)]) -> Result<(), Failure> {
        let mut shown = table(&["what was done", ">how many"]);
        for (what, number) in counts {
            shown.add_row(vec![text(what), right(count(*number))]);
        }
        Ok(say(&shown.to_string())?)
    }
}

/// The beginning of a name, which is enough for people.
fn short(id: &str) -> String {
    match id.split_once('@') {
        Some((print, tenant)) => format!("{}@{tenant}", print.get(..12).unwrap_or(print)),
        None => id.get(..12).unwrap_or(id).to_owned(),
    }
}
