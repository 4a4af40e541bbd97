//! SQL over an entry, which goes by the name `this`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use domain::entry::{EntryId, Mode};
use futures::TryStreamExt;
use ports::{
    Error, Kind,
    query::{ROW, Statement},
    tables::{FilePart, Part, Rows, Scan},
};

use super::{Ask, Entry, Found, Refused, Registry, payload};

/// Rows of a statement over an entry.
#[derive(Debug)]
pub struct Over {
    /// The entry it read.
    pub entry: Box<Entry>,
    /// The rows.
    pub rows: Rows,
}

impl Registry {
    /// Runs a statement over an entry as it is; an expired one will do, as it would for a frame that somebody holds.
    ///
    /// # Errors
    /// [`Refused::Missing`] when there is no such entry, and what the query engine says of the statement.
    pub async fn over(&self, id: &EntryId, statement: &Statement) -> Result<Over, Refused> {
        let ask = Ask {
            mode: Some(Mode::Swr),
            ..Ask::default()
        };
        let entry = match self.lookup(id, ask).await? {
            Found::Hit(entry) | Found::Stale(entry) => entry,
            Found::Building | Found::Miss => return Err(Refused::Missing(id.clone())),
        };
        let Some(scan) = self.scan(&entry).await? else {
            self.lost(&entry).await?;
            return Err(Refused::Missing(id.clone()));
        };
        let rows = self.world.query.over(statement, &scan).await?;
        Ok(Over { entry, rows })
    }

    /// What a statement reads; none when the data is gone.
    async fn scan(&self, entry: &Entry) -> ports::Result<Option<Scan>> {
        if let Some(payload) = &entry.payload {
            let rows = payload::decode(&entry.id, payload)?;
            let schema = rows.schema.clone();
            let batches: Vec<_> = rows.stream.try_collect().await?;
            let parts = batches.into_iter().map(Part::Memory).collect();
            return Ok(Some(Scan { schema, parts }));
        }
        let set = entry.set();
        match self.world.entries.find(&set).await? {
            Some(stored) => Ok(Some(self.world.entries.scan(&set, &stored).await?)),
            None => Ok(None),
        }
    }

    /// The same with the number of each row, in the column [`ROW`].
    pub(super) async fn numbered(&self, entry: &Entry) -> ports::Result<Option<Scan>> {
        let set = entry.set();
        let Some(stored) = self.world.entries.find(&set).await? else {
            return Ok(None);
        };
        let mut scan = self.world.entries.scan(&set, &stored).await?;
        if scan.schema.column_with_name(ROW).is_some() {
            let why = format!("it has a column `{ROW}` of its own");
            return Err(Error::new(Kind::Invalid, "filter", &entry.id).because(why));
        }
        let mut fields: Vec<_> = scan.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW, DataType::Int64, false)));
        scan.schema = Arc::new(Schema::new(fields));
        for part in &mut scan.parts {
            if let Part::File(file) = part {
                let mut counted = FilePart::clone(file);
                counted.first_sequence = Some(1);
                *file = Arc::new(counted);
            }
        }
        Ok(Some(scan))
    }
}
