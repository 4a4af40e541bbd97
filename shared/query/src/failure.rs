//! DataFusion's errors as the port's: what the caller should do, what was being done, to which statement, and why.

use std::collections::BTreeSet;

use datafusion::{
    arrow::error::ArrowError, common::DataFusionError, parquet::errors::ParquetError,
};
use domain::{TableName, sql};
use ports::{
    Error, Kind,
    query::Catalog,
    tables::{self, Pin},
};

/// Most characters of a statement quoted in a message.
const QUOTED_MAX: usize = 100;

/// What was being done, and to which statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing<'a> {
    pub(crate) action: &'static str,
    pub(crate) sql: &'a str,
    /// Bytes that all statements may use together.
    pub(crate) memory: usize,
}

impl Doing<'_> {
    /// An error of this action.
    pub(crate) fn error(self, kind: Kind) -> Error {
        Error::new(kind, self.action, quoted(self.sql))
    }

    /// Turns DataFusion's error into ours. An error of a port that only travelled through comes out as it was.
    pub(crate) fn failed(self, error: DataFusionError) -> Error {
        let error = match unwrap(error) {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => return *ours,
                Err(other) => DataFusionError::External(other),
            },
            other => other,
        };
        let kind = kind(&error);
        let mut text = readable(&error);
        if kind == Kind::TooLarge {
            text = format!("memory limit of {} bytes reached: {text}", self.memory);
        }
        if text.contains("Placeholder '?'") {
            text.push_str("; write `$1`, `$2` and on where parameters go");
        }
        self.error(kind).because(text)
    }
}

/// The error of a damaged file, with the command that builds the table anew of which it is. Files of other than models'
/// tables are not built, and stay without one.
pub(crate) fn with_remedy(error: Error, catalog: &Catalog) -> Error {
    if error.kind != Kind::Corrupt {
        return error;
    }
    let models = catalog.tables.values().filter_map(|pin| match pin {
        Pin::Model { table, .. } => Some(table),
        Pin::Landing { .. } => None,
    });
    let fed = catalog.feeds.keys().filter_map(sql::fed_by);
    let models: BTreeSet<TableName> = models
        .cloned()
        .chain(fed.filter(|table| !table.is_landing()))
        .collect();
    let chain = error.chain();
    let is_of =
        |table: &&TableName| chain.contains(&format!("/{}/{}/", table.schema(), table.name()));
    if let Some(table) = models.iter().find(is_of) {
        return tables::damaged(error, table);
    }
    // The file is not named where its pages are read; those of landing tables are.
    let unnamed = error.action != FILE;
    match models.first() {
        Some(only) if unnamed && models.len() == 1 => tables::damaged(error, only),
        _ => error,
    }
}

/// What was being done to a file that an error names.
pub(crate) const FILE: &str = "read file";

fn quoted(sql: &str) -> String {
    let mut words = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(QUOTED_MAX) {
        words.truncate(end);
        words.push_str("..");
    }
    words
}

/// Takes off the layers that only add context.
fn unwrap(error: DataFusionError) -> DataFusionError {
    match error {
        DataFusionError::Context(context, inner) => match unwrap(*inner) {
            ours @ DataFusionError::External(_) => ours,
            other => DataFusionError::Context(context, Box::new(other)),
        },
        DataFusionError::Diagnostic(_, inner) => unwrap(*inner),
        DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
            Ok(inner) => unwrap(inner),
            Err(shared) => again(shared),
        },
        DataFusionError::External(inner) => match inner.downcast::<DataFusionError>() {
            Ok(inner) => unwrap(*inner),
            Err(other) => DataFusionError::External(other),
        },
        DataFusionError::ParquetError(inner) => match *inner {
            ParquetError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => DataFusionError::External(ours),
                Err(other) => {
                    DataFusionError::ParquetError(Box::new(ParquetError::External(other)))
                }
            },
            other => DataFusionError::ParquetError(Box::new(other)),
        },
        DataFusionError::ArrowError(inner, backtrace) => match *inner {
            ArrowError::ExternalError(inner) => unwrap(DataFusionError::External(inner)),
            other => DataFusionError::ArrowError(Box::new(other), backtrace),
        },
        other => other,
    }
}

/// An error that several readers of one plan share: ours is told again, another's stays shared.
fn again(shared: std::sync::Arc<DataFusionError>) -> DataFusionError {
    let ours = match shared.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref::<Error>(),
        DataFusionError::ParquetError(inner) => match inner.as_ref() {
            ParquetError::External(inner) => inner.downcast_ref::<Error>(),
            _ => None,
        },
        _ => None,
    };
    let Some(ours) = ours else {
        return DataFusionError::Shared(shared);
    };
    let mut copy = Error::new(ours.kind, ours.action, &ours.subject);
    if let Some(source) = std::error::Error::source(ours) {
        copy = copy.because(ports::error::chain(source));
    }
    DataFusionError::External(Box::new(copy))
}

fn kind(error: &DataFusionError) -> Kind {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => Kind::TooLarge,
        DataFusionError::ParquetError(error) => match error.as_ref() {
            ParquetError::External(inner) => match inner.downcast_ref::<object_store::Error>() {
                Some(error) => object(error),
                None => Kind::Corrupt,
            },
            _ => Kind::Corrupt,
        },
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::ParquetError(_) => Kind::Corrupt,
            _ => Kind::Invalid,
        },
        DataFusionError::ObjectStore(error) => object(error),
        DataFusionError::IoError(_) => Kind::Unavailable,
        DataFusionError::External(inner) => match inner.downcast_ref::<object_store::Error>() {
            Some(error) => object(error),
            None => Kind::Invalid,
        },
        _ => Kind::Invalid,
    }
}

/// A file a snapshot names must exist.
fn object(error: &object_store::Error) -> Kind {
    match error {
        object_store::Error::NotFound { .. } | object_store::Error::InvalidPath { .. } => {
            Kind::Corrupt
        }
        _ => Kind::Unavailable,
    }
}

/// The message without what only a developer of DataFusion can use.
fn readable(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let text = text
        .split("\nThis issue was likely caused by a bug in DataFusion")
        .next();
    text.unwrap_or_default().trim().to_owned()
}
