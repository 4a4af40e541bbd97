//! What committed transactions did to entries, and the rules they have to keep.
//!
//! * **E-2** a ready row's data exists
//! * **E-3** an entry becomes ready only under the token of the lease that is held on it, and the lease goes with that

use std::collections::BTreeMap;

use domain::entry::{ENTRY, LEASE, Lease, Row};
use ports::state::{Item, Write};

/// Rows and leases, as they were committed.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Generation of each ready row; none of those that are built for the first time.
    pub(crate) rows: BTreeMap<String, Option<String>>,
    leases: BTreeMap<String, Lease>,
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
        Ok(about)
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
