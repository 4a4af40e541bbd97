//! What rows must look like to be stored: their key columns, and columns that came back.

use domain::TableName;
use iceberg::spec::NestedFieldRef;
use ports::{Error, Kind, Result};

use super::{
    columns::{Columns, Incoming, ORIGINS},
    keys::is_key,
    table::Table,
};

/// Positions of the key columns, each of which the rows must have.
pub(crate) fn key_columns(
    table: &TableName,
    key: &[String],
    columns: &Columns,
    incoming: &[Incoming],
) -> Result<Vec<usize>> {
    let find = |name: &String| {
        let at = position(table, "unique_key", name, columns, incoming)?;
        let kind = columns.read.field(at).data_type();
        match is_key(kind) {
            true => Ok(at),
            false => Err(
                Error::new(Kind::Invalid, "find the key of", table).because(format!(
                    "unique_key column `{name}` is a {kind}, which has no order"
                )),
            ),
        }
    };
    key.iter().map(find).collect()
}

/// Position in the table of a column that the setting `what` names and the rows must have.
pub(crate) fn position(
    table: &TableName,
    what: &str,
    name: &str,
    columns: &Columns,
    incoming: &[Incoming],
) -> Result<usize> {
    let own = |column: &&Incoming| column.name != ORIGINS;
    let incoming: Vec<&Incoming> = incoming.iter().filter(own).collect();
    let delivered = |column: &&Incoming| column.name.eq_ignore_ascii_case(name);
    let at = columns.position(name);
    at.filter(|_| incoming.iter().any(delivered))
        .ok_or_else(|| {
            let have = incoming.iter().map(|column| column.name.as_str());
            let have: Vec<_> = have.collect();
            let have = have.join(", ");
            let missing = match at {
                None if incoming.iter().any(delivered) => "the table".to_owned(),
                _ => format!("the query, which yields {have}"),
            };
            Error::new(Kind::Invalid, "store rows of", table)
                .because(format!("{what} column `{name}` is not in {missing}"))
        })
}

/// Whether a new field has the name of a field the table once had: files of old may still hold that one's values.
pub(crate) fn revives(base: &Table, fields: &[NestedFieldRef], last: i32) -> bool {
    let mut new = fields.iter().filter(|field| field.id > last);
    new.any(|field| {
        let mut schemas = base.metadata.schemas_iter();
        schemas.any(|old| {
            let mut fields = old.as_struct().fields().iter();
            fields.any(|old| old.name.eq_ignore_ascii_case(&field.name))
        })
    })
}
