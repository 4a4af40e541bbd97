use super::*;

fn role(table: &TableName) -> Role {
    match table.schema() {
        "view" => Role::View(format!("SELECT id, region AS place FROM silver.{}", table.name())),
        "batch" => Role::Untold("it is built by batch runs only".to_owned()),
        _ => Role::Input,
    }
}

/// Checks the queries of keys, without the names of the rows they read.
fn check(sql: &str, key: &[&str], expect: &[&str]) {
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    let said: Vec<String> = match trace(sql, &key, &role) {
        Ok(trace) => trace.keys.into_iter().map(|(input, text)| {
            let text = text.replace("\"_changes_silver\".\"_changed_", "+").replace("\"_changes_silver\".\"_prior_", "*").replace('"', "");
            format!("{input}: {text}")
        }).collect(),
        Err(error) => vec![error.to_string()],
    };
    assert_eq!(said, expect, "{sql}");
}

#[test]
fn one_input() {
    check("SELECT region, sum(amount) AS total FROM silver.orders WHERE amount > 0 GROUP BY region HAVING count(*) > 1", &[],
        &["silver.orders: SELECT region FROM (SELECT region FROM +orders AS orders WHERE (amount > 0)) AS _c"]);
    check("SELECT upper(o.region) AS r, o.day::DATE, count(*) FROM silver.orders o GROUP BY 1, o.day", &[],
        &["silver.orders: SELECT r, day FROM (SELECT upper(o.region) AS r, o.day::DATE FROM +orders AS o) AS _c"]);
    check("SELECT silver.orders.region, count(*) FROM silver.orders GROUP BY silver.orders.region", &[],
        &["silver.orders: SELECT region FROM (SELECT orders.region FROM +orders AS orders) AS _c"]);
    check("SELECT * FROM silver.orders", &["id"],
        &["silver.orders: SELECT id FROM (SELECT * FROM +orders AS orders) AS _c"]);
    check("SELECT DISTINCT a, b FROM silver.x", &[],
        &["silver.x: SELECT a, b FROM (SELECT a, b FROM +x AS x) AS _c"]);
}
