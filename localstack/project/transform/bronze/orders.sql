@description Every order event as it arrived, with typed columns.
@config materialized=incremental, live=true, incremental_strategy=append,
        incremental_filter=WHERE _seq > {watermark}

SELECT
    (payload->>'order_id')::BIGINT AS order_id,
    payload->>'region' AS region,
    payload->>'status' AS status,
    (payload->>'cents')::BIGINT AS cents,
    _seq
FROM landing.orders
