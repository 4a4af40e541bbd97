@config materialized=incremental, live=true, incremental_strategy=append, on_bad_row=quarantine,
        incremental_filter=WHERE _seq > {watermark}
@description Every order event, typed.

SELECT CAST(payload->>'order_id' AS BIGINT) AS order_id,
       payload->>'region' AS region,
       CAST(payload->>'amount' AS DECIMAL(12, 2)) AS amount,
       payload->>'status' AS status,
       received_at,
       _seq
FROM landing.orders
