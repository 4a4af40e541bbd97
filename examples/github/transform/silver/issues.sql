@description Issues as their latest event, or comment, shows them.
@config materialized=incremental, live=true, incremental_strategy=merge, unique_key=id,
        incremental_filter=WHERE _seq > {watermark}
@col id: GitHub's own number of the issue
@assert no_nulls(id)

SELECT
    (payload->'issue'->>'id')::BIGINT AS id,
    payload->'repository'->>'full_name' AS repository,
    (payload->'issue'->>'number')::BIGINT AS number,
    payload->'issue'->>'title' AS title,
    payload->'issue'->>'state' AS state,
    payload->>'action' AS last_action,
    _seq
FROM landing.github
WHERE event IN ('issues', 'issue_comment')
