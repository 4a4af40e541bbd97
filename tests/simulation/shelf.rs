//! What committed transactions did to entries, and the rules they have to keep.
//!
//! * **E-2** a ready row's data exists
//! * **E-3** an entry becomes ready only under the token of the lease that is held on it, and the lease goes with that; an
//!   index only by the job that its item names, and of the generation that is read

use std::collections::BTreeMap;

use domain::entry::{ENTRY, INDEX, Index, IndexState, LEASE, Lease, Row};
use ports::state::{Item, Write};

/// Rows and leases, as they were committed.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Generation of each ready row; none of those that are built for the first time.
    pub(crate) rows: BTreeMap<String, Option<String>>,
    leases: BTreeMap<String, Lease>,
    /// Items of indexes, by entry and name.
    indexes: BTreeMap<(String, String), Index>,
    /// Generations that were committed, of all entries.
    pub(crate) commits: u64,
}

impl Shelf {
    /// Writes a committed transaction down; answers whether it was about entries.
    ///
    /// # Errors
    /// The rule that was broken.
    pub(crate) fn note(&mut self, writes: &[Write]) -> Result<bool, String> {
        let mut about = false;
        for write in writes {
            let key = write.key();
            let Some(id) = key
                .partition
                .strip_prefix("entry#")
                .filter(|_| key.sort == ENTRY)
            else {
                continue;
            };
            match write {
                Write::Put { value, .. } => {
                    about = true;
                    let item = Item {
                        key: key.clone(),
                        version: 0,
                        value: value.clone(),
                    };
                    let (row, _) = item.unpack::<Row>().map_err(|error| error.chain())?;
                    self.row(id, &row, writes)?;
                }
                Write::Delete { .. } => {
                    about = true;
                    self.rows.remove(id);
                }
                Write::Check { .. } => {}
            }
        }
        for write in writes {
            let key = write.key();
            let Some(id) = key
                .partition
                .strip_prefix("lease#entry#")
                .filter(|_| key.sort == LEASE)
            else {
                continue;
            };
            match write {
                Write::Put { value, .. } => {
                    let lease = serde_json::from_slice(value)
                        .map_err(|error| format!("{key:?}: {error}"))?;
                    self.leases.insert(id.to_owned(), lease);
                }
                Write::Delete { .. } => drop(self.leases.remove(id)),
                Write::Check { .. } => {}
            }
        }
        for write in writes {
            about |= self.index(write)?;
        }
        Ok(about)
    }

    /// Whether a write was about an index.
    fn index(&mut self, write: &Write) -> Result<bool, String> {
        let key = write.key();
        let (Some(id), Some(name)) = (
            key.partition.strip_prefix("entry#"),
            key.sort.strip_prefix(INDEX),
        ) else {
            return Ok(false);
        };
        let at = (id.to_owned(), name.to_owned());
        match write {
            Write::Put { value, .. } => {
                let index: Index =
                    serde_json::from_slice(value).map_err(|error| format!("{key:?}: {error}"))?;
                let is_ready = matches!(index.state, IndexState::Ready { .. });
                let before = self.indexes.insert(at, index.clone());
                if !is_ready {
                    return Ok(true);
                }
                let held = before.as_ref().map(|before| (&before.job, &before.state));
                if !matches!(held, Some((job, IndexState::Building { .. })) if *job == index.job) {
                    return Err(format!(
                        "E-3: index {name} of {id} became ready by job {} while it was {before:?}",
                        index.job
                    ));
                }
                match self.rows.get(id) {
                    Some(Some(generation)) if *generation == index.generation => Ok(true),
                    row => Err(format!(
                        "E-3: index {name} of {id} became ready for {} while the row is {row:?}",
                        index.generation
                    )),
                }
            }
            Write::Delete { .. } => {
                self.indexes.remove(&at);
                Ok(true)
            }
            Write::Check { .. } => Ok(false),
        }
    }

    /// Generations that a lease says are being built.
    pub(crate) fn leased(&self) -> Vec<String> {
        let held = self.leases.values().filter(|lease| !lease.resting);
        held.map(|lease| lease.token.clone()).collect()
    }

    /// Files that are named: data of ready rows, and indexes that answer for them.
    pub(crate) fn named(&self) -> Vec<String> {
        let ready = self.rows.iter().filter_map(|(id, generation)| {
            let generation = generation.as_ref()?;
            Some((id, generation))
        });
        let mut named = Vec::new();
        for (id, generation) in ready {
            named.push(format!("entries/{id}/{generation}/data.parquet"));
            let of = |(entry, _): &(&(String, String), &Index)| entry.0 == *id;
            for (_, index) in self.indexes.iter().filter(of) {
                let is_ready = matches!(index.state, IndexState::Ready { .. });
                if is_ready && index.generation == *generation {
                    named.push(format!("entries/{id}/{generation}/{}", index.file()));
                }
            }
        }
        named.sort();
        named
    }

    fn row(&mut self, id: &str, row: &Row, writes: &[Write]) -> Result<(), String> {
        let generation = row.content().map(|content| content.generation.clone());
        let before = self
            .rows
            .insert(id.to_owned(), generation.clone())
            .flatten();
        let Some(generation) = generation.filter(|generation| before.as_ref() != Some(generation))
        else {
            return match before {
                Some(before) if row.content().is_none() => Err(format!(
                    "E-2: {id} was ready with {before} and is built as if it had never been"
                )),
                _ => Ok(()),
            };
        };
        self.commits += 1;
        let held = self.leases.get(id).filter(|lease| !lease.resting);
        if held.is_none_or(|lease| lease.token != generation) {
            return Err(format!(
                "E-3: {id} became {generation} while the lease was {held:?}"
            ));
        }
        let gone = writes.iter().any(|write| {
            matches!(write, Write::Delete { key, .. } if key.partition.strip_prefix("lease#entry#") == Some(id))
        });
        match gone {
            true => Ok(()),
            false => Err(format!(
                "E-3: {id} became {generation} and its lease stayed"
            )),
        }
    }
}
