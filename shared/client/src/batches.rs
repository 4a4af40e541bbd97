//! Results of functions and rows of frames: Arrow, whatever they come from.

use std::{fmt, sync::Arc};

use arrow::{
    array::RecordBatch,
    compute::concat_batches,
    datatypes::{Schema, SchemaRef},
};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::{BoxError, Error, Result},
    rows,
};

/// Record batches of one schema. No batches are an empty result, which has its columns all the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Batches {
    /// Columns.
    pub schema: SchemaRef,
    /// The batches.
    pub batches: Vec<RecordBatch>,
}

impl Batches {
    /// Batches of a schema.
    #[must_use]
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// Rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.num_rows() == 0
    }

    /// All rows in one batch.
    ///
    /// # Errors
    /// When they are more than one batch holds.
    pub fn one(&self) -> Result<RecordBatch> {
        concat_batches(&self.schema, &self.batches).map_err(Error::unreadable)
    }

    /// All rows as values of a type.
    ///
    /// # Errors
    /// When a row is no such value.
    pub fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        rows::of_batches(self)
    }
}

impl From<RecordBatch> for Batches {
    fn from(batch: RecordBatch) -> Self {
        Self::new(batch.schema(), vec![batch])
    }
}

/// A stream of record batches of one schema, for results that need not fit in memory.
pub struct BatchStream {
    /// Columns.
    pub schema: SchemaRef,
    /// The batches; an error is the function's.
    pub batches: BoxStream<'static, Result<RecordBatch, BoxError>>,
}

impl BatchStream {
    /// A stream of a schema.
    pub fn new<E: Into<BoxError> + 'static>(
        schema: Arc<Schema>,
        batches: impl futures::Stream<Item = Result<RecordBatch, E>> + Send + 'static,
    ) -> Self {
        Self {
            schema,
            batches: batches.map_err(Into::into).boxed(),
        }
    }
}

impl fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// What a function returned, on its way into an entry.
#[derive(Debug)]
pub enum Data {
    /// All of it.
    Batches(Batches),
    /// As it comes.
    Stream(BatchStream),
}

/// What can be an entry: record batches, streams of them, and rows of any type that `serde` writes and reads.
pub trait IntoData {
    /// The data.
    ///
    /// # Errors
    /// Why it cannot be an entry.
    fn into_data(self) -> Result<Data, String>;
}

impl IntoData for Data {
    fn into_data(self) -> Result<Data, String> {
        Ok(self)
    }
}

impl IntoData for Batches {
    fn into_data(self) -> Result<Data, String> {
        Ok(Data::Batches(self))
    }
}

impl IntoData for RecordBatch {
    fn into_data(self) -> Result<Data, String> {
        Ok(Data::Batches(self.into()))
    }
}

impl IntoData for BatchStream {
    fn into_data(self) -> Result<Data, String> {
        Ok(Data::Stream(self))
    }
}

impl<T: Serialize + DeserializeOwned> IntoData for Vec<T> {
    fn into_data(self) -> Result<Data, String> {
        rows::to_batches(&self).map(Data::Batches)
    }
}

/// What a function may return: data, or data unless it failed.
pub trait Outcome {
    /// The data, or why there is none.
    ///
    /// # Errors
    /// The function's own, and why its result cannot be an entry.
    fn outcome(self) -> Result<Data, Failed>;
}

/// Why a function gave no data.
#[derive(Debug)]
pub enum Failed {
    /// It failed.
    Function(BoxError),
    /// Its result cannot be an entry.
    Unfit(String),
}

impl<D: IntoData> Outcome for D {
    fn outcome(self) -> Result<Data, Failed> {
        self.into_data().map_err(Failed::Unfit)
    }
}

impl<D: IntoData, E: Into<BoxError>> Outcome for std::result::Result<D, E> {
    fn outcome(self) -> Result<Data, Failed> {
        match self {
            Ok(data) => data.outcome(),
            Err(error) => Err(Failed::Function(error.into())),
        }
    }
}
