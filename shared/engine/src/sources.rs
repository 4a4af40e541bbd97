//! The columns that settings give a source, held against those that its landing table has: a table's column keeps its
//! type and its spelling, whatever the settings become.

use domain::{TableName, items::Column};
use ports::{Error, Kind, Result, columns};
use settings::{Complaint, FILE, Settings, Source};

use crate::{
    World,
    ingest::CHANGE_COLUMNS,
    load::{self, Items},
};

/// Every column of the settings that its landing table cannot take in, with its place in the file.
///
/// # Errors
/// What the state store answers.
pub async fn check(world: &World, settings: &Settings) -> Result<Vec<Complaint>> {
    let mut tables = Vec::new();
    for (name, source) in settings
        .sources
        .iter()
        .filter(|(_, s)| !s.places.is_empty())
    {
        // What is no name of a table has none.
        if let Ok(table) = TableName::landing(name) {
            tables.push((table, source));
        }
    }
    let keys = tables.iter().map(|(table, _)| load::head(table));
    let items = Items::load(&*world.state, keys).await?;
    let mut complaints = Vec::new();
    for (table, source) in tables {
        if let Some(head) = items.head(&table)? {
            complaints.extend(clashes(source, &table, &head.columns));
        }
    }
    Ok(complaints)
}

/// The error of an append that was refused: when the settings are what does not fit, a sender can do nothing about it
/// but wait and send again.
pub(crate) async fn blame(
    world: &World,
    source: &Source,
    table: &TableName,
    error: Error,
) -> Error {
    if error.kind != Kind::Invalid {
        return error;
    }
    let head = match Items::load(&*world.state, [load::head(table)]).await {
        Ok(items) => items.head(table),
        Err(_) => return error,
    };
    let Ok(Some(head)) = head else { return error };
    let found = clashes(source, table, &head.columns);
    if found.is_empty() {
        return error;
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Error::new(Kind::Unavailable, "append to", table).because(found.join("; "))
}

/// The columns of a source's settings that a table of these columns cannot take in.
fn clashes(source: &Source, table: &TableName, known: &[Column]) -> Vec<Complaint> {
    let text = "VARCHAR";
    let headers = source
        .headers
        .values()
        .map(|column| (column.as_str(), text));
    let typed = source.columns.iter();
    let typed = typed.map(|column| (column.name.as_str(), column.kind.as_str()));
    let mut found = Vec::new();
    let has = |name: &str| known.iter().any(|column| column.name == name);
    let of_changes = CHANGE_COLUMNS.into_iter().all(has);
    for (name, kind) in headers.chain(typed) {
        let same = known.iter().find(|column| column.name == name);
        let alike = || {
            let alike = |column: &&Column| column.name.eq_ignore_ascii_case(name);
            known.iter().find(alike)
        };
        let is_own = |own: &str| own.eq_ignore_ascii_case(name);
        let message = match same {
            _ if of_changes && CHANGE_COLUMNS.into_iter().any(is_own) => {
                format!("changes have a column `{name}` of their own; choose another name")
            }
            Some(column) if columns::data_type(&column.kind) == columns::data_type(kind) => {
                continue;
            }
            Some(column) => format!(
                "column `{name}` is {kind} here and {} in `{table}`, where it keeps its type; write that, or name another \
                 column",
                column.kind
            ),
            None => match alike() {
                Some(column) => format!(
                    "column `{name}` is `{}` in `{table}`, and SQL does not tell the two apart; spell it so",
                    column.name
                ),
                None => continue,
            },
        };
        let place = source.places.get(name);
        let place = place.map_or_else(|| FILE.to_owned(), Clone::clone);
        found.push(Complaint { place, message });
    }
    found
}
