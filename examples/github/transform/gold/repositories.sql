@description What is known of each repository.
@config materialized=incremental, live=true, incremental_strategy=auto

SELECT
    repository,
    SUM(is_pull_request) AS pull_requests,
    SUM(1 - is_pull_request) AS issues,
    SUM(is_open) AS open
FROM (
    SELECT repository, 1 AS is_pull_request, CASE WHEN state = 'open' THEN 1 ELSE 0 END AS is_open
    FROM silver.pull_requests
    UNION ALL
    SELECT repository, 0 AS is_pull_request, CASE WHEN state = 'open' THEN 1 ELSE 0 END AS is_open
    FROM silver.issues
) AS items
GROUP BY repository
