//! The catalog for readers: pointers of the catalog as items of PyIceberg's DynamoDB catalog.
//!
//! Items are what counts and rows follow them, in the same transaction. The row of a table is written by nobody but the
//! writer of its pointer, so it adds no conflicts. The row of a namespace would: every table of it would write the same one.
//! So it is made before the transaction, once per process, and stays when the last table goes. A reader sets `table-name`
//! to the table's and opens `load_catalog(name, type="dynamodb")`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, Delete, TransactWriteItem, Update},
};
use domain::{Timestamp, items::Pointed};
use ports::{Result, state::Write};
use uuid::Uuid;

use super::{
    failure::{self, Failure},
    item::number,
    keys::Attributes,
};

/// Hash key: `schema.table`, or [`NAMESPACE_ROW`].
pub(super) const IDENTIFIER: &str = "identifier";
/// Range key: the schema.
pub(super) const NAMESPACE: &str = "namespace";
/// Index by namespace, which lists its tables.
pub(super) const INDEX: &str = "namespace-identifier";
/// Identifier of the rows that say that a namespace exists.
const NAMESPACE_ROW: &str = "NAMESPACE";

/// All but the keys; `created_at` stays what it was.
const UPDATE: &str = "SET #v = :v, #updated = :now, #type = :type, #location = :location, \
     #previous = :previous, #created = if_not_exists(#created, :now)";
const NAMES: [(&str, &str); 6] = [
    ("#v", "v"),
    ("#updated", "updated_at"),
    ("#created", "created_at"),
    ("#type", "p.table_type"),
    ("#location", "p.metadata_location"),
    ("#previous", "p.previous_metadata_location"),
];

/// The table that PyIceberg reads.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    pub(super) table: Arc<str>,
    /// Namespaces that are known to have their row.
    namespaces: Arc<Mutex<BTreeSet<String>>>,
}

/// What a write does to the mirror.
#[derive(Clone, Debug)]
pub(super) struct Row(Pointed);

impl Row {
    /// The row for a write, if it is one to the catalog.
    pub(super) fn of(write: &Write) -> Result<Option<Self>> {
        let pointed = write.pointed()?;
        Ok(pointed.map(Self))
    }

    /// The part of the transaction that brings the row in line.
    pub(super) fn action(&self, catalog: &str, commit: Uuid, now: Timestamp) -> TransactWriteItem {
        match &self.0 {
            Pointed::To {
                table,
                location,
                previous,
            } => {
                let mut update = Update::builder()
                    .table_name(catalog)
                    .set_key(Some(key(&table.to_string(), table.schema())))
                    .update_expression(UPDATE)
                    .expression_attribute_values(":v", text(commit))
                    .expression_attribute_values(":now", number(now.as_millis()))
                    .expression_attribute_values(":type", text("ICEBERG"))
                    .expression_attribute_values(":location", text(location))
                    .expression_attribute_values(
                        ":previous",
                        text(previous.as_deref().unwrap_or_default()),
                    );
                for (placeholder, name) in NAMES {
                    update = update.expression_attribute_names(placeholder, name);
                }
                let update = update.build().expect("table, key and expression are set");
                TransactWriteItem::builder().update(update).build()
            }
            Pointed::Nowhere { table } => {
                let delete = Delete::builder()
                    .table_name(catalog)
                    .set_key(Some(key(&table.to_string(), table.schema())))
                    .build()
                    .expect("table and key are set");
                TransactWriteItem::builder().delete(delete).build()
            }
        }
    }
}

impl Catalog {
    pub(super) fn new(table: String) -> Self {
        Self {
            table: table.into(),
            namespaces: Arc::default(),
        }
    }

    /// Sees to it that the namespaces of the rows have their own.
    pub(super) async fn ensure_namespaces(
        &self,
        client: &Client,
        rows: &[Row],
        commit: Uuid,
        now: Timestamp,
    ) -> Result<()> {
        let needed: BTreeSet<&str> = rows
            .iter()
            .filter_map(|row| match &row.0 {
                Pointed::To { table, .. } => Some(table.schema()),
                Pointed::Nowhere { .. } => None,
            })
            .collect();
        for name in needed {
            let known = || {
                self.namespaces
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
            };
            if known().contains(name) {
                continue;
            }
            let put = client
                .put_item()
                .table_name(&*self.table)
                .set_item(Some(namespace(name, commit, now)))
                .condition_expression("attribute_not_exists(#identifier)")
                .expression_attribute_names("#identifier", IDENTIFIER);
            match put.send().await.map_err(|error| failure::of(&error)) {
                Ok(_) | Err(Failure::Unmet(_)) => {}
                Err(failed) => return Err(failed.into_error("write catalog namespace", name)),
            }
            known().insert(name.to_owned());
        }
        Ok(())
    }
}

fn namespace(name: &str, commit: Uuid, now: Timestamp) -> Attributes {
    let mut row = key(NAMESPACE_ROW, name);
    row.insert("v".to_owned(), text(commit));
    row.insert("created_at".to_owned(), number(now.as_millis()));
    row.insert("updated_at".to_owned(), number(now.as_millis()));
    row
}

fn key(identifier: &str, namespace: &str) -> Attributes {
    Attributes::from([
        (IDENTIFIER.to_owned(), text(identifier)),
        (NAMESPACE.to_owned(), text(namespace)),
    ])
}

fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}
