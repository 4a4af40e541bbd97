@description Orders and revenue per region, in cents; cancelled orders earn nothing.
@config materialized=incremental, live=true, incremental_strategy=delete+insert, unique_key=region

SELECT
    o.region,
    COUNT(*) AS orders,
    SUM(CASE WHEN o.status = 'cancelled' THEN 0 ELSE o.cents END) AS cents
FROM silver.orders AS o
JOIN (SELECT DISTINCT region FROM silver.orders WHERE _seq > {watermark}) AS touched
    ON o.region = touched.region
GROUP BY o.region
