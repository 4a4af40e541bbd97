//! Text: a tantivy index of one segment, packed into one object.

mod build;
mod directory;
mod query;

use std::sync::Arc;

use ports::{Error, Kind, Result, search::Hit, search::Words};
use tantivy::{
    Index, IndexReader, ReloadPolicy, TantivyError,
    schema::{Field, Schema},
};

use crate::{
    bundle::{Content, Footer},
    source::Source,
};

pub(crate) use build::build;

/// The field that holds a document's row.
const ROW: &str = "_headwater_row";
/// The tokenizer: words of letters and digits in lower case; longer ones than 40 bytes are left out.
const TOKENIZER: &str = "default";

/// An open index.
#[derive(Clone)]
pub(crate) struct TextIndex {
    source: Arc<Source>,
    index: Index,
    reader: IndexReader,
    columns: Vec<(String, Field)>,
}

impl std::fmt::Debug for TextIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextIndex")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// What tantivy says of an index that is read.
fn unread(source: &Source, error: TantivyError) -> Error {
    // The store's own errors come through it unchanged.
    let inner = match &error {
        TantivyError::IoError(inner) => inner.get_ref(),
        TantivyError::OpenReadError(tantivy::directory::error::OpenReadError::IoError {
            io_error,
            ..
        }) => io_error.get_ref(),
        _ => None,
    };
    match inner.and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(port) => Error::new(port.kind, "read index", "text").because(port.chain()),
        None => source.corrupt(error.to_string()),
    }
}

fn fields(schema: &Schema, columns: &[String]) -> Option<Vec<(String, Field)>> {
    let field = |column: &String| Some((column.clone(), schema.get_field(column).ok()?));
    columns.iter().map(field).collect()
}

impl TextIndex {
    /// Opens what the tail of a source describes, mostly from the tail itself.
    pub(crate) async fn open(source: Source, footer: Footer) -> Result<Self> {
        let Content::Text { files, columns } = footer.content else {
            return Err(source.corrupt("it is no text index"));
        };
        let source = Arc::new(source);
        let directory = directory::Packed::new(source.clone(), files);
        blocking(source.clone(), move |source| {
            let failed = |error| unread(source, error);
            let index = Index::open(directory).map_err(failed)?;
            let reader = index
                .reader_builder()
                .reload_policy(ReloadPolicy::Manual)
                .try_into()
                .map_err(failed)?;
            let columns = fields(&index.schema(), &columns)
                .ok_or_else(|| source.corrupt("it lacks a column"))?;
            Ok(Self {
                source: source.clone(),
                index,
                reader,
                columns,
            })
        })
        .await
    }
}

/// Searches words.
pub(crate) async fn search(text: Arc<TextIndex>, words: Words) -> Result<Vec<Hit>> {
    blocking(text.source.clone(), move |_| query::run(&text, words)).await
}

/// Work that reads as it goes. What was stored and is not what was written may end it in a panic.
async fn blocking<T: Send + 'static>(
    source: Arc<Source>,
    work: impl FnOnce(&Arc<Source>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let told = source.clone();
    let ended = tokio::task::spawn_blocking(move || work(&source)).await;
    ended.unwrap_or_else(|error| Err(told.corrupt(error.to_string())))
}

/// An error of building.
fn unbuilt(name: &str, error: TantivyError) -> Error {
    Error::new(Kind::Unavailable, "build index", name).because(error)
}
