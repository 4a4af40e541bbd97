@description Delays per carrier and day, in minutes. Flights that never left count as flights and have no delay.
@config materialized=incremental, live=true, incremental_strategy=delete+insert, unique_key=carrier, date

SELECT
    f.carrier,
    f.date,
    COUNT(*) AS flights,
    COUNT(f.dep_delay) AS departed,
    SUM(f.dep_delay) AS dep_delay_total,
    AVG(f.arr_delay) AS arr_delay_mean
FROM silver.flights AS f
JOIN (SELECT DISTINCT carrier, date FROM silver.flights WHERE _seq > {watermark}) AS touched
    ON f.carrier = touched.carrier AND f.date = touched.date
GROUP BY f.carrier, f.date
