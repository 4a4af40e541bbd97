//! The metadata a commit starts from: of a new table, or of the base with its columns as they will be.

use std::collections::HashMap;

use domain::TableName;
use iceberg::spec::{
    FormatVersion, NestedFieldRef, PartitionSpec, Schema, SortOrder, TableMetadata,
    TableMetadataBuilder,
};
use ports::{Error, Kind, Result};

use super::{
    columns::Columns,
    names::{Names, Root, folder},
    table::Table,
};

/// Entries of the metadata log: one per commit, for readers that look back.
const METADATA_LOG: &str = "50";

/// Metadata before the snapshot is added.
#[derive(Debug)]
pub(crate) struct Draft {
    /// To add the snapshot to.
    pub builder: TableMetadataBuilder,
    /// What it would build now: columns and partition spec are final.
    pub metadata: TableMetadata,
    /// Its columns.
    pub columns: Columns,
}

impl Draft {
    /// Of a table that does not exist yet.
    pub(crate) fn create(
        table: &TableName,
        root: &Root,
        names: &Names,
        fields: Vec<NestedFieldRef>,
    ) -> Result<Self> {
        let properties = [("write.metadata.previous-versions-max", METADATA_LOG)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let builder = schema(table, fields).and_then(|schema| {
            TableMetadataBuilder::new(
                schema,
                PartitionSpec::unpartition_spec(),
                SortOrder::unsorted_order(),
                root.location(&folder(table)),
                FormatVersion::V2,
                HashMap::from(properties),
            )
            .map_err(|e| failed(table, e))
        })?;
        Self::new(table, builder.assign_uuid(uuid(&names.id())))
    }

    /// Of the table's next snapshot, with other columns if `fields` is given.
    pub(crate) fn change(
        table: &TableName,
        root: &Root,
        base: &Table,
        fields: Option<Vec<NestedFieldRef>>,
    ) -> Result<Self> {
        let previous = root.location(&base.snapshot.metadata);
        let builder = base.metadata.as_ref().clone().into_builder(Some(previous));
        let builder = match fields {
            None => builder,
            Some(fields) => {
                let schema = schema(table, fields)?;
                builder
                    .add_current_schema(schema)
                    .map_err(|e| failed(table, e))?
            }
        };
        Self::new(table, builder)
    }

    /// The same with other columns.
    pub(crate) fn with(&self, table: &TableName, fields: Vec<NestedFieldRef>) -> Result<Self> {
        let builder = self.builder.clone();
        let builder = builder.add_current_schema(schema(table, fields)?);
        Self::new(table, builder.map_err(|e| failed(table, e))?)
    }

    fn new(table: &TableName, builder: TableMetadataBuilder) -> Result<Self> {
        let metadata = builder
            .clone()
            .build()
            .map_err(|e| failed(table, e))?
            .metadata;
        let columns = Columns::new(table, metadata.current_schema().clone())?;
        Ok(Self {
            builder,
            metadata,
            columns,
        })
    }
}

fn schema(table: &TableName, fields: Vec<NestedFieldRef>) -> Result<Schema> {
    Schema::builder()
        .with_fields(fields)
        .build()
        .map_err(|e| Error::new(Kind::Invalid, "store columns of", table).because(e))
}

pub(crate) fn failed(table: &TableName, error: iceberg::Error) -> Error {
    Error::new(Kind::Corrupt, "build metadata of", table).because(error)
}

/// An id as a UUID; one that is none is hashed.
fn uuid(id: &str) -> uuid::Uuid {
    uuid::Uuid::parse_str(id).unwrap_or_else(|_| {
        let hash = *blake3::hash(id.as_bytes()).as_bytes();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    })
}

/// A fresh snapshot id: positive, as all readers want it, and not in the metadata yet.
pub(crate) fn snapshot_id(names: &Names, metadata: &TableMetadata) -> i64 {
    loop {
        let (high, low) = uuid(&names.id()).as_u64_pair();
        let id = ((high ^ low) & (u64::MAX >> 1)).cast_signed();
        if id != 0 && metadata.snapshot_by_id(id).is_none() {
            return id;
        }
    }
}
