//! Searching entries: the index, the rows that count, the hits, and the rows of these.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Float32Array, RecordBatch},
    datatypes::{DataType, Field, Int64Type, Schema},
};
use domain::{
    Duration,
    entry::{EntryId, IndexSpec},
    sql,
};
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    Error, Kind,
    query::{Limits, ROW, Statement},
    search::{Hit, IndexFile, Near, Words},
    state::{Expect, Write},
    tables::Rows,
};
use roaring::RoaringBitmap;

use super::{
    ATTEMPTS, Entry, Over, Refused, Registry, contended,
    index::{Held, key},
};

/// Most hits that are asked for, those left out at the beginning counted.
pub const HITS_MAX: usize = 10_000;
/// The column that says how good a hit is.
pub const SCORE: &str = "_score";

/// What is asked of any search.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// A condition on the entry's columns that every hit fulfils.
    pub filter: Option<String>,
    /// Most hits.
    pub limit: usize,
    /// Best hits that are left out.
    pub offset: usize,
    /// Columns of the answer; all when none.
    pub select: Option<Vec<String>>,
    /// How long to wait for an index that is being built.
    pub wait: Duration,
    /// How long the filter may take.
    pub time: Duration,
}

/// What is searched for.
#[derive(Clone, Debug, PartialEq)]
pub enum Sought {
    /// Words.
    Words {
        /// The query.
        query: String,
        /// The columns they are looked for in; all of the index when none are named.
        columns: Vec<String>,
    },
    /// The nearest to a vector.
    Vector {
        /// The column; when none is named, the only one that has an index of vectors.
        column: Option<String>,
        /// The vector.
        vector: Vec<f32>,
    },
    /// The nearest to the vector of a text.
    Like {
        /// The column; when none is named, the only one that has an index of vectors.
        column: Option<String>,
        /// The text.
        text: String,
    },
}

impl Registry {
    /// Searches an entry: its rows with [`SCORE`], best first. An expired entry will do, as for a statement over it.
    ///
    /// # Errors
    /// [`Refused::Missing`] for an entry that is not there, [`Refused::NotIndexed`] for a column without index,
    /// [`Refused::IndexNotReady`] and [`Refused::IndexFailed`] with the job; `Invalid` for what cannot be searched.
    pub async fn search(
        &self,
        id: &EntryId,
        sought: &Sought,
        wanted: &Wanted,
    ) -> Result<Over, Refused> {
        check(id, wanted)?;
        let give_up = self.now() + wanted.wait.min(self.settings.wait_max);
        for _ in 0..ATTEMPTS {
            let entry = self.current(id).await?;
            let spec = chosen(&entry, sought)?.clone();
            let columns = columns(&entry, wanted)?;
            let left = give_up.since(self.now());
            let Some(held) = self.ready_index(&entry, &spec, left).await? else {
                continue;
            };
            let found = self.find(&entry, &held, sought, wanted, &columns).await;
            match found {
                Ok(rows) => {
                    let entry = Box::new(entry);
                    return Ok(Over { entry, rows });
                }
                Err(error) if error.kind == Kind::NotFound => {
                    self.missed(&entry, &held).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended("search", id).into())
    }

    async fn find(
        &self,
        entry: &Entry,
        held: &Held,
        sought: &Sought,
        wanted: &Wanted,
        columns: &[String],
    ) -> ports::Result<Rows> {
        let among = match &wanted.filter {
            Some(filter) => Some(self.counting(entry, filter, wanted.time).await?),
            None => None,
        };
        let Some(file) = file(entry, held) else {
            return Err(contended("search", &entry.id));
        };
        let hits = self.hits(&file, sought, wanted, among).await?;
        let numbers: Vec<u32> = hits.iter().map(|hit| hit.row).collect();
        if columns.is_empty() {
            return scored(&RecordBatch::new_empty(Arc::new(Schema::empty())), &hits);
        }
        let (set, bytes) = (entry.set(), entry.content.bytes);
        let picked = self.world.entries.pick(&set, bytes, &numbers, columns);
        scored(&picked.await?, &hits)
    }

    async fn hits(
        &self,
        file: &IndexFile,
        sought: &Sought,
        wanted: &Wanted,
        among: Option<RoaringBitmap>,
    ) -> ports::Result<Vec<Hit>> {
        let searching = &self.world.searching;
        let vector = match sought {
            Sought::Words { query, columns } => {
                let words = Words {
                    query: query.clone(),
                    columns: columns.clone(),
                    among,
                    offset: wanted.offset,
                    limit: wanted.limit,
                };
                return searching.indexes.words(file, &words).await;
            }
            Sought::Vector { vector, .. } => vector.clone(),
            Sought::Like { text, .. } => searching.embedder.embed_query(text).await?,
        };
        let near = Near {
            vector,
            among,
            limit: wanted.offset + wanted.limit,
        };
        let mut hits = searching.indexes.near(file, &near).await?;
        Ok(hits.split_off(wanted.offset.min(hits.len())))
    }

    /// Rows that fulfil a condition.
    async fn counting(
        &self,
        entry: &Entry,
        filter: &str,
        time: Duration,
    ) -> ports::Result<RoaringBitmap> {
        let condition = sql::condition(filter)
            .map_err(|error| Error::new(Kind::Invalid, "read filter", filter).because(error))?;
        let statement = Statement {
            limits: Limits { time, rows: None },
            ..Statement::new(format!("SELECT \"{ROW}\" FROM this WHERE {condition}"))
        };
        let Some(scan) = self.numbered(entry).await? else {
            return Err(Error::new(Kind::NotFound, "read entry", &entry.id));
        };
        let mut rows = self.world.query.over(&statement, &scan).await?.stream;
        let mut among = RoaringBitmap::new();
        while let Some(batch) = rows.try_next().await? {
            let numbers = batch.column(0).as_primitive_opt::<Int64Type>();
            let numbers = numbers.map(|numbers| numbers.values().iter());
            let numbers = numbers.into_iter().flatten();
            among.extend(numbers.filter_map(|row| u32::try_from(*row - 1).ok()));
        }
        Ok(among)
    }

    /// Data or index are not where the items say: what names them goes, unless it has moved on.
    async fn missed(&self, entry: &Entry, held: &Held) -> Result<(), Refused> {
        if self.world.entries.find(&entry.set()).await?.is_none() {
            self.lost(entry).await?;
            return Ok(());
        }
        tracing::warn!(entry = %entry.id, index = held.index.spec.name(), "the file of an index is gone");
        let delete = Write::Delete {
            key: key(&entry.id, &held.index.spec),
            expect: Expect::Version(held.version),
        };
        self.transact(vec![delete]).await?;
        Ok(())
    }
}

/// The file of a ready index.
fn file(entry: &Entry, held: &Held) -> Option<IndexFile> {
    let domain::entry::IndexState::Ready { bytes, tail, .. } = held.index.state else {
        return None;
    };
    Some(IndexFile {
        set: entry.set(),
        name: held.index.file(),
        bytes,
        tail,
    })
}

fn check(id: &EntryId, wanted: &Wanted) -> Result<(), Refused> {
    let last = wanted.offset.checked_add(wanted.limit);
    if wanted.limit == 0 || last.is_none_or(|last| last > HITS_MAX) {
        let why =
            format!("a search has a limit from 1 on, and limit and offset are {HITS_MAX} at most");
        return Err(Refused::invalid("search", id, why));
    }
    Ok(())
}

/// The index that answers.
fn chosen<'a>(entry: &'a Entry, sought: &Sought) -> Result<&'a IndexSpec, Refused> {
    let specs = &entry.row.spec.indexes;
    let known = |column: &String| {
        let columns = &entry.content.columns;
        match columns.iter().any(|known| known.name == *column) {
            true => Ok(()),
            false => Err(unknown(entry, column)),
        }
    };
    let not_indexed = |what: String| Err(Refused::NotIndexed(entry.id.clone(), what));
    match sought {
        Sought::Words { columns, .. } => {
            columns.iter().try_for_each(known)?;
            let covers = |spec: &&IndexSpec| match spec {
                IndexSpec::Text { columns: indexed } => {
                    columns.iter().all(|column| indexed.contains(column))
                }
                IndexSpec::Vector { .. } => false,
            };
            // Of several the one over most columns; of these the first.
            let found = specs.iter().rev().filter(covers);
            match found.max_by_key(|spec| spec.columns().len()) {
                Some(spec) => Ok(spec),
                None if columns.is_empty() => not_indexed(String::from("words")),
                None => not_indexed(format!("words of {}", columns.join(", "))),
            }
        }
        Sought::Vector { column, .. } | Sought::Like { column, .. } => {
            column.iter().try_for_each(known)?;
            of_vectors(entry, column.as_deref())
        }
    }
}

/// The index over the vectors of a column, or of the only one that has any.
fn of_vectors<'a>(entry: &'a Entry, column: Option<&str>) -> Result<&'a IndexSpec, Refused> {
    let of = |spec: &&IndexSpec| match spec {
        IndexSpec::Vector { column: of, .. } => column.is_none_or(|column| column == of),
        IndexSpec::Text { .. } => false,
    };
    let found: Vec<&IndexSpec> = entry.row.spec.indexes.iter().filter(of).collect();
    match (found.as_slice(), column) {
        ([], None) => Err(Refused::NotIndexed(
            entry.id.clone(),
            String::from("vectors"),
        )),
        ([], Some(column)) => Err(Refused::NotIndexed(
            entry.id.clone(),
            format!("vectors of {column}"),
        )),
        ([_, _, ..], None) => {
            let columns = found.iter().flat_map(|spec| spec.columns());
            let columns: Vec<&str> = columns.map(String::as_str).collect();
            let why = format!(
                "several columns have vectors: name one of {}",
                columns.join(", ")
            );
            Err(Refused::invalid("search", &entry.id, why))
        }
        ([first, ..], _) => Ok(first),
    }
}

fn unknown(entry: &Entry, column: &str) -> Refused {
    let known = entry.content.columns.iter();
    let known: Vec<&str> = known.map(|column| column.name.as_str()).collect();
    let why = format!(
        "there is no column `{column}`; there are {}",
        known.join(", ")
    );
    Refused::invalid("search", &entry.id, why)
}

/// Columns of the answer.
fn columns(entry: &Entry, wanted: &Wanted) -> Result<Vec<String>, Refused> {
    let all = || {
        entry
            .content
            .columns
            .iter()
            .map(|column| column.name.clone())
    };
    let columns: Vec<String> = match &wanted.select {
        Some(select) => select.clone(),
        None => all().collect(),
    };
    if let Some(column) = columns
        .iter()
        .find(|column| !all().any(|known| known == **column))
    {
        return Err(unknown(entry, column));
    }
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].contains(column) {
            let why = format!("`select` names `{column}` twice");
            return Err(Refused::invalid("search", &entry.id, why));
        }
    }
    if columns.iter().any(|column| column == SCORE) {
        let why =
            format!("it has a column `{SCORE}` of its own: name the columns you want in `select`");
        return Err(Refused::invalid("search", &entry.id, why));
    }
    Ok(columns)
}

fn scored(rows: &RecordBatch, hits: &[Hit]) -> ports::Result<Rows> {
    let corrupt = |error| Error::new(Kind::Corrupt, "read", "hits").because(error);
    let mut fields: Vec<Arc<Field>> = rows.schema_ref().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(SCORE, DataType::Float32, false)));
    let schema = Arc::new(Schema::new(fields));
    let scores: Float32Array = hits.iter().map(|hit| Some(hit.score)).collect();
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(scores));
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(corrupt)?;
    Ok(Rows {
        schema,
        stream: stream::iter([Ok(batch)]).boxed(),
    })
}
