@description One row per order, as its latest event shows it.
@config materialized=incremental, live=true, incremental_strategy=merge, unique_key=order_id,
        incremental_filter=WHERE _seq > {watermark}
@assert no_nulls(order_id)

SELECT order_id, region, status, cents, _seq
FROM bronze.orders
