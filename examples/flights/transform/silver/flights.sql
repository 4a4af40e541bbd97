@description One row per flight; a flight that is loaded again replaces its row.
@config materialized=incremental, live=true, incremental_strategy=merge, unique_key=time_hour, carrier, flight,
        incremental_filter=WHERE _seq > {watermark}
@assert no_nulls(carrier)

SELECT
    time_hour, carrier, flight, origin, dest,
    make_date(year::INT, month::INT, day::INT) AS date,
    dep_delay, arr_delay, _seq
FROM bronze.flights
