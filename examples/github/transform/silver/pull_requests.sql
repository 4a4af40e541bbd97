@description Pull requests as their latest event shows them.
@config materialized=incremental, live=true, incremental_strategy=merge, unique_key=id,
        incremental_filter=WHERE _seq > {watermark}
@col id: GitHub's own number of the pull request
@assert no_nulls(id)

SELECT
    (payload->'pull_request'->>'id')::BIGINT AS id,
    payload->'repository'->>'full_name' AS repository,
    (payload->'pull_request'->>'number')::BIGINT AS number,
    payload->'pull_request'->>'title' AS title,
    payload->'pull_request'->>'state' AS state,
    payload->>'action' AS last_action,
    _seq
FROM landing.github
WHERE event = 'pull_request'
