//! Names of a table's files, and how they read in Iceberg metadata.

use std::sync::Arc;

use domain::TableName;
use ports::{Chance, Clock, Error, Kind, Result};

/// Gives every file of one table a fresh name.
#[derive(Debug)]
pub(crate) struct Names {
    folder: String,
    chance: Arc<dyn Chance>,
    clock: Arc<dyn Clock>,
}

impl Names {
    pub(crate) fn new(table: &TableName, chance: Arc<dyn Chance>, clock: Arc<dyn Clock>) -> Self {
        Self {
            folder: folder(table),
            chance,
            clock,
        }
    }

    /// A fresh id.
    pub(crate) fn id(&self) -> String {
        self.chance.id(self.clock.now())
    }

    /// Path of a new data file.
    pub(crate) fn data(&self) -> String {
        format!("{}/data/{}.parquet", self.folder, self.id())
    }

    /// Path of a new file of position deletes.
    pub(crate) fn deletes(&self) -> String {
        format!("{}/data/{}-deletes.parquet", self.folder, self.id())
    }

    /// Path of a new manifest or manifest list.
    pub(crate) fn manifest(&self, what: &str) -> String {
        format!("{}/metadata/{what}-{}.avro", self.folder, self.id())
    }

    /// Path of the metadata file after `previous`.
    pub(crate) fn metadata(&self, previous: Option<&str>) -> String {
        let version = previous.and_then(version).map_or(0, |version| version + 1);
        format!(
            "{}/metadata/{version:05}-{}.metadata.json",
            self.folder,
            self.id()
        )
    }
}

/// Folder of a table in the warehouse.
pub(crate) fn folder(table: &TableName) -> String {
    format!("tables/{}/{}", table.schema(), table.name())
}

fn version(metadata: &str) -> Option<u64> {
    metadata.rsplit('/').next()?.split('-').next()?.parse().ok()
}

/// The absolute prefix of the locations in Iceberg metadata.
#[derive(Clone, Debug)]
pub(crate) struct Root(String);

impl Root {
    pub(crate) fn new(uri: &str) -> Self {
        Self(uri.trim_end_matches('/').to_owned())
    }

    /// The location of a path.
    pub(crate) fn location(&self, path: &str) -> String {
        format!("{}/{path}", self.0)
    }

    /// The path of a location; `Corrupt` when it lies outside the warehouse.
    pub(crate) fn path(&self, location: &str) -> Result<String> {
        let path = location
            .strip_prefix(&self.0)
            .and_then(|rest| rest.strip_prefix('/'));
        path.map(str::to_owned).ok_or_else(|| {
            Error::new(Kind::Corrupt, "find", location)
                .because(format!(
                    "it is not below {}: the warehouse was written at another place, and tables keep absolute paths; \
                     put it back, or begin with an empty warehouse and state",
                    self.0
                ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_root_and_the_path() {
        let root = Root::new("file:///srv/lake/");
        assert_eq!(root.location("tables/a"), "file:///srv/lake/tables/a");
        assert_eq!(
            root.path("file:///srv/lake/tables/a").ok().as_deref(),
            Some("tables/a")
        );
        assert!(root.path("file:///srv/lake2/tables/a").is_err());
    }

    #[test]
    fn metadata_files_are_numbered() {
        assert_eq!(
            version("tables/a/b/metadata/00041-0190.metadata.json"),
            Some(41)
        );
        assert_eq!(version("elsewhere.json"), None);
    }
}
