//! Groups brought up to date from what changed alone: no row is read that did not change.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, AsArray, BooleanArray, RecordBatch},
    compute::{filter_record_batch, not},
    datatypes::{DataType, SchemaRef},
};
use domain::{
    TableName, sql,
    sql::trace::{Kind, Sums, Trace},
};
use futures::StreamExt;
use ports::{
    Error, Kind as Fault, Result,
    feed::Feed,
    query::{Catalog, Limits, Statement},
    tables::{Pin, Rows},
};

use super::{KEYS_MAX, Part, collect, plain};
use crate::{
    World,
    refresh::job::{Job, Loaded},
};

/// The groups that changed, when they follow from what they were and the changes of the only input that has any. None:
/// they do not.
pub(super) async fn part(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    trace: &Trace,
    feeds: &BTreeMap<TableName, Arc<Feed>>,
    (text, catalog): (&str, &Catalog),
) -> Result<Option<Part>> {
    let mut changed = feeds.keys();
    let (Some(input), None) = (changed.next(), changed.next()) else {
        return Ok(None);
    };
    // Rows of the input that are left out are changes all the same.
    if catalog.views.contains_key(input) {
        return Ok(None);
    }
    let sums = trace.sums.iter().find(|sums| sums.input == *input);
    let snapshot = loaded.head.as_ref().and_then(|head| head.snapshot.clone());
    let (Some(sums), Some(snapshot), Some(name)) = (sums, snapshot, sql::feed(input)) else {
        return Ok(None);
    };
    let schema = world.query.describe(&Statement::new(text), catalog).await?;
    let Some(casts) = casts(sums, &schema) else {
        return Ok(None);
    };
    let table = &job.model.name;
    let mut catalog = catalog.clone();
    let pin = Pin::Model {
        table: table.clone(),
        snapshot,
    };
    catalog.tables.insert(table.clone(), pin);
    catalog.feeds.insert(name, Arc::clone(&feeds[input]));
    let cast = |name: &str, value: String| match casts.get(name) {
        Some(kind) => format!("arrow_cast({value}, '{kind}')"),
        None => value,
    };
    let statement = Statement {
        limits: Limits {
            rows: Some(KEYS_MAX),
            ..Limits::default()
        },
        ..Statement::new(sums.statement(table, &cast))
    };
    let groups = match collect(world, &statement, &catalog).await {
        Ok(groups) if is_alike(&groups, &schema) => groups,
        Ok(_) => return Ok(None),
        Err(error)
            if matches!(
                error.kind,
                Fault::Invalid | Fault::NotFound | Fault::TooLarge
            ) =>
        {
            tracing::warn!(model = %table, error = error.chain(), "its sums cannot be kept");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match sorted(world, trace, sums, schema, &groups, (text, &catalog)).await {
        Ok(part) => Ok(Some(part)),
        Err(error) if matches!(error.kind, Fault::Invalid | Fault::NotFound) => {
            tracing::warn!(model = %table, error = error.chain(), "its groups in doubt cannot be computed alone");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Groups that are as they must be are taken; of those in doubt the query is run.
async fn sorted(
    world: &World,
    trace: &Trace,
    sums: &Sums,
    schema: SchemaRef,
    groups: &[RecordBatch],
    (text, catalog): (&str, &Catalog),
) -> Result<Part> {
    let width = sums.columns.len();
    let at = |name: &String| sums.columns.iter().position(|column| column.name == *name);
    let key: Vec<usize> = trace.key.iter().filter_map(at).collect();
    let (mut all, mut doubtful, mut made) = (Vec::new(), Vec::new(), Vec::new());
    for batch in groups {
        let keys = batch.project(&key).map_err(failed)?;
        let (sure, there) = (flag(batch, width)?, flag(batch, width + 1)?);
        doubtful.push(filter_record_batch(&keys, &not(&sure).map_err(failed)?).map_err(failed)?);
        let kept = arrow::compute::and(&sure, &there).map_err(failed)?;
        let kept = filter_record_batch(batch, &kept).map_err(failed)?;
        let columns = kept.columns()[..width].to_vec();
        made.push(RecordBatch::try_new(schema.clone(), columns).map_err(failed)?);
        all.push(keys);
    }
    let rest = match doubtful.iter().all(|batch| batch.num_rows() == 0) {
        true => None,
        false => Some(super::rows(world, trace, text, catalog, &doubtful).await?),
    };
    let made = futures::stream::iter(made.into_iter().map(Ok));
    let stream = match rest {
        Some(rest) => made.chain(rest.stream).boxed(),
        None => made.boxed(),
    };
    Ok(Part::Keys {
        key: trace.key.iter().map(|name| plain(name)).collect(),
        keys: all,
        rows: Rows { schema, stream },
    })
}

/// The types of numbers that are computed from others; none when they cannot be without loss, or a part of the key is
/// a number that is not always equal to itself.
fn casts(sums: &Sums, schema: &SchemaRef) -> Option<BTreeMap<String, String>> {
    if schema.fields().len() != sums.columns.len() {
        return None;
    }
    let mut casts = BTreeMap::new();
    for (column, field) in sums.columns.iter().zip(schema.fields()) {
        let kind = field.data_type();
        let fits = match column.kind {
            Kind::Key => !kind.is_floating() && !kind.is_nested(),
            Kind::Rows | Kind::Count => *kind == DataType::Int64,
            Kind::Sum => matches!(kind, DataType::Int64 | DataType::Decimal128(..)),
            Kind::Least | Kind::Most => matches!(
                kind,
                DataType::Int64 | DataType::Int32 | DataType::Date32 | DataType::Utf8
            ),
        };
        if !fits {
            return None;
        }
        if column.kind != Kind::Key {
            casts.insert(column.name.clone(), kind.to_string());
        }
    }
    Some(casts)
}

/// Whether groups have the columns of the query, and two flags.
fn is_alike(groups: &[RecordBatch], schema: &SchemaRef) -> bool {
    let kinds = |schema: &SchemaRef| -> Vec<DataType> {
        let fields = schema.fields().iter();
        fields.map(|field| field.data_type().clone()).collect()
    };
    groups.iter().all(|batch| {
        let mut wanted = kinds(schema);
        wanted.extend([DataType::Boolean, DataType::Boolean]);
        kinds(&batch.schema()) == wanted
    })
}

fn flag(batch: &RecordBatch, at: usize) -> Result<BooleanArray> {
    let column = batch
        .columns()
        .get(at)
        .and_then(|column| column.as_boolean_opt());
    let column = column.filter(|column| column.null_count() == 0).cloned();
    column.ok_or_else(|| Error::new(Fault::Corrupt, "read", "groups"))
}

fn failed(error: arrow::error::ArrowError) -> Error {
    Error::new(Fault::Corrupt, "sort", "groups").because(error)
}
