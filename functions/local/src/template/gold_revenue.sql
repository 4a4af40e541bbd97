@config materialized=incremental, live=true, incremental_strategy=delete+insert, unique_key=region
@description Orders and revenue per region, cancelled orders left out.

-- Recomputes the regions that changed: those that an order changed since the last refresh is in now, or was in before.
WITH touched AS (
  SELECT DISTINCT region
  FROM bronze.orders
  WHERE order_id IN (SELECT order_id FROM silver.orders WHERE _seq > {watermark:silver.orders})
)
SELECT touched.region AS region,
       COUNT(o.order_id) AS orders,
       CAST(COALESCE(SUM(o.amount), 0) AS DECIMAL(18, 2)) AS revenue
FROM touched
LEFT JOIN silver.orders AS o ON o.region = touched.region AND o.status <> 'cancelled'
GROUP BY touched.region
