@description Flights as they arrived, with typed delays: `NA` means that the flight never left or never arrived.
@config materialized=incremental, live=true, incremental_strategy=append,
        incremental_filter=WHERE _seq > {watermark}

SELECT
    year, month, day, carrier, flight, origin, dest, time_hour,
    TRY_CAST(dep_delay AS BIGINT) AS dep_delay,
    TRY_CAST(arr_delay AS BIGINT) AS arr_delay,
    _seq
FROM landing.flights
