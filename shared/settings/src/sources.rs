//! `sources:`: the columns that events and changes are kept in beside their payload.

use std::collections::BTreeMap;

use domain::{items::Column, name::is_identifier};

use crate::{
    Source,
    read::Reader,
    tree::{Node, Value},
    words::{column_kind, names, size},
};

/// Columns every webhook landing table has; a source's own columns are named otherwise.
const RESERVED: [&str; 4] = ["id", "received_at", "payload", domain::SEQUENCE];

/// `sources:` by name.
pub(crate) fn sources(reader: &mut Reader<'_>, node: Option<Node>) -> BTreeMap<String, Source> {
    let mut section = reader.section("sources", node);
    let mut sources = BTreeMap::new();
    for (key, node) in section.take_all() {
        if is_identifier(&key.name) {
            let name = key.name.to_ascii_lowercase();
            if sources.contains_key(&name) {
                let message = format!(
                    "source `{}` is there already: names of sources differ by more than case",
                    key.name
                );
                reader.complain(key.place, message);
                continue;
            }
            let source = source(reader, &key.name, node);
            sources.insert(name, source);
        } else {
            reader.complain(key.place, format!("source `{}` is no identifier", key.name));
        }
    }
    sources
}

fn source(reader: &mut Reader<'_>, name: &str, node: Node) -> Source {
    let path = format!("sources.{name}");
    let mut section = reader.section(&path, Some(node));
    let body_max = reader.value(&mut section, "body_max", Source::default().body_max, size);
    let lsn = reader.value(&mut section, "lsn", None, |path| {
        names(path, '.').map(|names| Some(names.join(".")))
    });
    let key = reader.value(&mut section, "key", Vec::new(), |key| names(key, ','));
    let mut taken = Taken::default();
    let headers = section.take("headers");
    let headers = headers_of(reader, &path, headers, &mut taken);
    let columns = section.take("columns");
    let columns = columns_of(reader, &path, columns, &mut taken);
    reader.finish(section);
    Source {
        headers,
        columns,
        body_max,
        lsn,
        key,
        places: taken.places,
    }
}

/// Columns that a source has names for, and where the file gives them.
#[derive(Default)]
struct Taken {
    places: BTreeMap<String, String>,
}

impl Taken {
    fn has(&self, column: &str) -> bool {
        let own = self.places.keys().map(String::as_str);
        RESERVED
            .into_iter()
            .chain(own)
            .any(|name| name.eq_ignore_ascii_case(column))
    }
}

/// `headers:` as request header to column.
fn headers_of(
    reader: &mut Reader<'_>,
    path: &str,
    node: Option<Node>,
    taken: &mut Taken,
) -> BTreeMap<String, String> {
    let mut section = reader.section(&format!("{path}.headers"), node);
    let mut headers = BTreeMap::new();
    for (key, node) in section.take_all() {
        let Value::Scalar(column) = node.value else {
            reader.complain(
                node.place,
                format!("header `{}` needs the name of a column", key.name),
            );
            continue;
        };
        let name = key.name.to_ascii_lowercase();
        if headers.contains_key(&name) {
            let message = format!(
                "header `{}` is kept already: case does not matter",
                key.name
            );
            reader.complain(key.place, message);
            continue;
        }
        if claim(reader, &node.place, &column, taken) {
            headers.insert(name, column);
        }
    }
    headers
}

/// `columns:` as name to type, in file order.
fn columns_of(
    reader: &mut Reader<'_>,
    path: &str,
    node: Option<Node>,
    taken: &mut Taken,
) -> Vec<Column> {
    let mut section = reader.section(&format!("{path}.columns"), node);
    let mut columns = Vec::new();
    for (key, node) in section.take_all() {
        let Value::Scalar(kind) = node.value else {
            reader.complain(
                node.place,
                format!("column `{}` needs a type, such as `VARCHAR`", key.name),
            );
            continue;
        };
        let free = claim(reader, &key.place, &key.name, taken);
        match column_kind(&kind) {
            Ok(kind) if free => columns.push(Column {
                name: key.name,
                kind,
            }),
            Ok(_) => {}
            Err(message) => reader.complain(node.place, message),
        }
    }
    columns
}

/// Whether `column` can be a column of the source; complains when not.
fn claim(reader: &mut Reader<'_>, place: &str, column: &str, taken: &mut Taken) -> bool {
    if !is_identifier(column) {
        reader.complain(place, format!("column `{column}` is no identifier"));
        return false;
    }
    if taken.has(column) {
        reader.complain(
            place,
            format!("the landing table has a column `{column}` already; choose another name"),
        );
        return false;
    }
    taken.places.insert(column.to_owned(), place.to_owned());
    true
}
