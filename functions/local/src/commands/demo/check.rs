//! Whether gold is what its query gives from scratch.

use arrow::util::display::{ArrayFormatter, FormatOptions};
use engine::{World, read};
use futures::TryStreamExt;
use ports::{Kind, query::Statement};

use crate::failure::Failure;

/// Gold, as the live models keep it.
const GOLD: &str =
    "SELECT region, orders, revenue FROM gold.revenue WHERE orders > 0 ORDER BY region";

/// The same out of every landing row: the last event of each order, cancelled ones left out. It
/// shares nothing with the models but the input.
const SCRATCH: &str = "
WITH events AS (
  SELECT payload->>'region' AS region, CAST(payload->>'amount' AS DECIMAL(12, 2)) AS amount, payload->>'status' AS status,
         ROW_NUMBER() OVER (PARTITION BY payload->>'order_id' ORDER BY _seq DESC) AS newest
  FROM landing.orders
)
SELECT region, COUNT(*) AS orders, CAST(SUM(amount) AS DECIMAL(18, 2)) AS revenue
FROM events
WHERE newest = 1 AND status <> 'cancelled'
GROUP BY region
ORDER BY region";

/// One group of gold: region, orders, revenue.
pub(super) type Group = Vec<String>;

/// Gold as it is now; empty before its first refresh.
pub(super) async fn gold(world: &World) -> Result<Vec<Group>, Failure> {
    rows(world, GOLD).await
}

/// What gold should be.
pub(super) async fn scratch(world: &World) -> Result<Vec<Group>, Failure> {
    rows(world, SCRATCH).await
}

async fn rows(world: &World, sql: &str) -> Result<Vec<Group>, Failure> {
    let rows = match read::query(world, &Statement::new(sql)).await {
        Ok(rows) => rows,
        Err(error) if error.kind == Kind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let batches: Vec<_> = rows.stream.try_collect().await?;
    let options = FormatOptions::default();
    let mut groups = Vec::new();
    for batch in &batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::defect(error.to_string()))?;
        groups.extend(
            (0..batch.num_rows())
                .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect()),
        );
    }
    Ok(groups)
}
