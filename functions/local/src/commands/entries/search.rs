//! `headwater entries index` and `search`.

use clap::{Args, ValueEnum};
use domain::{
    Duration,
    entry::{EntryId, IndexSpec, Metric},
};
use engine::entries::{IndexShown, Refused, Sought, Wanted};
use serde_json::json;

use super::{Desk, print_json, span};
use crate::{
    failure::Failure,
    screen::{count, right, say, table, text},
};

/// How long a command waits for indexes that it has begun: they end with its process.
pub(super) const PATIENCE: Duration = Duration::from_secs(3_600);

/// What an entry is searched by.
#[derive(Clone, Debug, Default, Args)]
pub struct By {
    /// Index the words of text columns; several in one index by commas
    #[arg(long = "text", value_name = "COLUMNS")]
    texts: Vec<String>,
    /// Index a column of vectors, or of text that the embedder makes vectors of
    #[arg(long = "vector", value_name = "COLUMN")]
    vectors: Vec<String>,
    /// How near two vectors are
    #[arg(long, value_enum, default_value_t = Near::Cosine)]
    metric: Near,
}

/// How near two vectors are.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Near {
    /// The cosine of their angle
    #[default]
    Cosine,
    /// Their inner product
    Dot,
    /// Their distance
    L2,
}

impl By {
    pub(super) fn specs(&self) -> Vec<IndexSpec> {
        let split = |columns: &String| {
            columns
                .split(',')
                .map(|one| one.trim().to_owned())
                .collect()
        };
        let metric = match self.metric {
            Near::Cosine => Metric::Cosine,
            Near::Dot => Metric::Dot,
            Near::L2 => Metric::L2,
        };
        let texts = self.texts.iter().map(|columns| IndexSpec::Text {
            columns: split(columns),
        });
        let vectors = self.vectors.iter().map(|column| IndexSpec::Vector {
            column: column.clone(),
            metric,
        });
        texts.chain(vectors).collect()
    }
}

/// A search.
#[derive(Clone, Debug, Args)]
pub struct Search {
    /// The entry
    id: String,
    /// Words: `quick -brown "lazy dog" title:fox`
    #[arg(conflicts_with_all = ["near", "like"], required_unless_present_any = ["near", "like"])]
    query: Option<String>,
    /// Columns that words are looked for in, by commas; or the column of the vectors [default: all, or the only one]
    #[arg(long, value_delimiter = ',')]
    columns: Vec<String>,
    /// Rows nearest to this vector: '[0.1, 0.2]'
    #[arg(long, value_name = "VECTOR", conflicts_with = "like")]
    near: Option<String>,
    /// Rows nearest to the vector of this text
    #[arg(long, value_name = "TEXT")]
    like: Option<String>,
    /// A condition on the columns that every hit fulfils: "year > 2000"
    #[arg(long, value_name = "SQL")]
    filter: Option<String>,
    /// Most hits
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Best hits to leave out
    #[arg(long, default_value_t = 0)]
    offset: usize,
    /// Columns to show, by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    select: Vec<String>,
    /// How long to wait for an index that is being built
    #[arg(long, value_parser = span, value_name = "SPAN", default_value = "1h")]
    wait: Duration,
}

impl Search {
    fn sought(&self) -> Result<Sought, Failure> {
        if let Some(query) = &self.query {
            return Ok(Sought::Words {
                query: query.clone(),
                columns: self.columns.clone(),
            });
        }
        let column = match self.columns.as_slice() {
            [] => None,
            [column] => Some(column.clone()),
            _ => {
                let why = "vectors are of one column: name one with --columns";
                return Err(Failure::usage(why));
            }
        };
        match (&self.near, &self.like) {
            (Some(vector), _) => {
                let wrong = |error: serde_json::Error| Failure::usage(format!("--near: {error}"));
                let vector = serde_json::from_str(vector).map_err(wrong)?;
                Ok(Sought::Vector { column, vector })
            }
            (None, like) => Ok(Sought::Like {
                column,
                text: like.clone().unwrap_or_default(),
            }),
        }
    }

    fn wanted(&self, time: Duration) -> Wanted {
        Wanted {
            filter: self.filter.clone(),
            limit: self.limit,
            offset: self.offset,
            select: (!self.select.is_empty()).then(|| self.select.clone()),
            wait: Duration::ZERO,
            time,
        }
    }
}

impl Desk<'_> {
    /// Indexes, waits until that is done, and shows what there is.
    pub(super) async fn index(&self, id: &EntryId, by: &By) -> Result<(), Failure> {
        let specs = by.specs();
        if !specs.is_empty() {
            self.registry.index(id, &specs).await?;
            self.registry.settle(id, PATIENCE).await?;
        }
        let indexes = self.registry.indexes(id).await?;
        if self.context.json {
            print_json(&json!({ "indexes": indexes }))?;
        } else {
            say(&shown(&indexes))?;
        }
        match indexes.iter().find(|index| index.status == "failed") {
            Some(failed) => Err(Refused::IndexFailed(Box::new(failed.clone())).into()),
            None => Ok(()),
        }
    }

    pub(super) async fn search(&self, search: Search) -> Result<(), Failure> {
        let id = self.registry.named(&search.id).await?;
        let (sought, wanted) = (search.sought()?, search.wanted(self.limits.time));
        let found = match self.registry.search(&id, &sought, &wanted).await {
            // Whatever this process has begun ends with it.
            Err(Refused::IndexNotReady(_)) if search.wait > Duration::ZERO => {
                self.registry.settle(&id, search.wait).await?;
                self.registry.search(&id, &sought, &wanted).await
            }
            found => found,
        };
        self.print(found?.rows).await
    }
}

fn shown(indexes: &[IndexShown]) -> String {
    let mut shown = table(&["index", "columns", "status", ">rows", ">bytes", "job"]);
    for index in indexes {
        shown.add_row(vec![
            text(&index.index),
            text(index.spec.columns().join(", ")),
            text(index.status),
            right(count(index.rows_done)),
            right(index.byte_size.map_or_else(String::new, count)),
            text(&index.job),
        ]);
    }
    shown.to_string()
}
