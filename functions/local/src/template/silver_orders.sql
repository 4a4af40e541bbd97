@config materialized=incremental, live=true, incremental_strategy=merge, unique_key=order_id,
        incremental_filter=WHERE _seq > {watermark}
@description Every order as it is now: the last event of each wins.
@assert no_nulls(order_id)
@assert unique(order_id)

SELECT order_id, region, amount, status, received_at AS changed_at, _seq
FROM bronze.orders
WHERE order_id IS NOT NULL
