//! Assertions, asked of the staged table.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use domain::{Model, Severity, TableName};
use futures::TryStreamExt;
use ports::{
    Result,
    query::Statement,
    tables::{Pin, Staged},
};

use super::{
    checks::Check,
    job::{Job, Loaded, Reason},
    make::Stopped,
};
use crate::{
    World, load,
    pins::{self, Reads},
};

/// Runs the assertions on the staged table, if they are due. `None`: not checked.
pub(super) async fn check(
    world: &World,
    job: &Job<'_>,
    loaded: &Loaded,
    staged: &Staged,
) -> Result<Result<Option<Vec<String>>, Stopped>> {
    let model = job.model;
    let interval = world.live.assertion_interval;
    let recent = loaded
        .state
        .asserted_at
        .is_some_and(|at| world.clock.now().since(at) < interval);
    if model.asserts.is_empty() || job.reason == Reason::Live && (recent || !staged.changed) {
        return Ok(Ok(None));
    }
    let mut warnings = Vec::new();
    for (severity, message) in broken(world, model, staged).await? {
        match severity {
            Severity::Error => return Ok(Err(Stopped::Assertion(message))),
            Severity::Warning => warnings.push(message),
        }
    }
    Ok(Ok(Some(warnings)))
}

/// Whether the assertions can be asked of staged rows at all, whatever they answer.
///
/// # Errors
/// How one of them breaks.
pub(super) async fn ask(world: &World, model: &Model, staged: &Staged) -> Result<()> {
    broken(world, model, staged).await.map(drop)
}

/// The assertions that do not hold.
async fn broken(world: &World, model: &Model, staged: &Staged) -> Result<Vec<(Severity, String)>> {
    let table = &model.name;
    let mut checks = Vec::with_capacity(model.asserts.len());
    for assert in &model.asserts {
        checks.push((assert, Check::read(table, assert)?));
    }
    // One scan answers all that can be asked of single rows.
    let measures: Vec<String> = checks
        .iter()
        .filter_map(|(_, check)| match check {
            Check::Rows(predicate) => Some(format!("COUNT(*) FILTER (WHERE {predicate})")),
            Check::RowCount(..) => Some(String::from("COUNT(*)")),
            Check::Count(_) => None,
        })
        .collect();
    let mut scanned = match measures.is_empty() {
        true => Vec::new(),
        false => {
            let sql = format!("SELECT {} FROM {table}", measures.join(", "));
            numbers(world, table, staged, &sql).await?
        }
    }
    .into_iter();
    let mut broken = Vec::new();
    for (assert, check) in &checks {
        let found = match check {
            Check::Rows(_) | Check::RowCount(..) => scanned.next(),
            Check::Count(sql) => numbers(world, table, staged, sql).await?.pop(),
        };
        if let Some(message) = check.verdict(&assert.expression, found.unwrap_or(0)) {
            broken.push((assert.severity, message));
        }
    }
    Ok(broken)
}

/// Assertions of severity error about single rows: as written, and what a row that breaks it meets.
pub(super) fn row_checks(model: &Model) -> Result<Vec<(String, String)>> {
    let mut checks = Vec::new();
    for assert in &model.asserts {
        if let (Severity::Error, Check::Rows(predicate)) =
            (assert.severity, Check::read(&model.name, assert)?)
        {
            checks.push((assert.expression.clone(), predicate));
        }
    }
    Ok(checks)
}

/// The numbers in the first column of a statement over the staged table.
pub(super) async fn numbers_of_rows(
    world: &World,
    table: &TableName,
    staged: &Staged,
    sql: &str,
) -> Result<Vec<u64>> {
    use arrow::{array::AsArray, datatypes::Int64Type};
    let batches = over(world, table, staged, sql).await?;
    let columns = batches
        .iter()
        .filter_map(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let numbers = columns.flat_map(|column| column.iter().flatten());
    Ok(numbers
        .filter_map(|number| u64::try_from(number).ok())
        .collect())
}

/// The numbers in the only row of a statement over the staged table.
async fn numbers(world: &World, table: &TableName, staged: &Staged, sql: &str) -> Result<Vec<u64>> {
    let batches = over(world, table, staged, sql).await?;
    Ok(batches
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .map(counts)
        .unwrap_or_default())
}

/// The rows of a statement over the staged table.
async fn over(
    world: &World,
    table: &TableName,
    staged: &Staged,
    sql: &str,
) -> Result<Vec<RecordBatch>> {
    let own = Pin::Model {
        table: table.clone(),
        snapshot: staged.snapshot.clone(),
    };
    let named = pins::tables(&table.to_string(), sql)?;
    let reads = Reads::of(&world.project, named)?;
    let others: BTreeSet<_> = reads
        .tables
        .iter()
        .filter(|t| *t != table)
        .cloned()
        .collect();
    let heads = load::Items::load(&*world.state, others.iter().map(load::head)).await?;
    let mut pinned = vec![own];
    for other in &others {
        pinned.push(pins::pin(
            &world.project,
            other,
            heads.head(other)?.as_ref(),
            None,
        )?);
    }
    let rows = world
        .query
        .run(&Statement::new(sql), &reads.catalog(pinned))
        .await?;
    rows.stream.try_collect().await
}

/// The first row of a batch of counts.
fn counts(batch: &RecordBatch) -> Vec<u64> {
    use arrow::{array::AsArray, datatypes::Int64Type};
    let count = |array: &arrow::array::ArrayRef| {
        let count = array
            .as_primitive_opt::<Int64Type>()
            .map_or(0, |counts| counts.value(0));
        u64::try_from(count).unwrap_or(0)
    };
    batch.columns().iter().map(count).collect()
}
