use std::path::PathBuf;

use super::*;

fn parse(text: &str) -> Result<Settings, Vec<Complaint>> {
    Settings::parse(Path::new("/shop"), text, &BTreeMap::new())
}

fn complaints(text: &str) -> Vec<String> {
    parse(text)
        .expect_err("complaints")
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn an_absent_file_means_defaults_inside_the_project() {
    let settings = parse("").expect("defaults");
    assert_eq!(settings.name, "shop");
    assert_eq!(
        settings.warehouse,
        Warehouse::Folder(PathBuf::from("/shop/.headwater/warehouse"))
    );
    assert_eq!(
        settings.state,
        StateStore::Sqlite(PathBuf::from("/shop/.headwater/state.db"))
    );
    assert_eq!(settings.live, LiveSettings::default());
    assert_eq!(settings.query, QueryLimits::default());
    assert_eq!(parse("# nothing yet\n---\n").expect("defaults"), settings);
}

#[test]
fn every_key_of_the_file_is_read() {
    let settings = parse(concat!(
        "name: corner shop\nwarehouse: memory://\nstate: sqlite://data/s.db\n",
        "live: {enabled: false, min_interval: 2s, debounce: 10ms, max_latency: 1.5s, poll_interval: 1m, log_interval: 0,\n",
        "       backoff_base: 1s, backoff_max: 1h, assertion_interval: 0, profile_interval: 2d, max_lag: 30s}\n",
        "query:\n  memory: 64MB\n  timeout: 5s\n  rows_max: 10\n",
        "sources:\n  GitHub:\n    body_max: 1MB\n    lsn: source.ts_ms\n    key: shop, sku\n    headers:\n      X-GitHub-Event: event\n",
        "    columns:\n      zone: varchar\n      amount: decimal(10,2)\n",
    ))
    .expect("settings");
    assert_eq!(settings.warehouse, Warehouse::Memory);
    assert_eq!(
        settings.state,
        StateStore::Sqlite(PathBuf::from("/shop/data/s.db"))
    );
    assert!(!settings.live.enabled);
    assert_eq!(settings.live.max_latency, Duration::from_millis(1_500));
    assert_eq!(
        settings.query,
        QueryLimits {
            memory: 64 << 20,
            timeout: Duration::from_secs(5),
            rows_max: 10
        }
    );
    let source = settings.source("github");
    assert_eq!(
        source.headers,
        BTreeMap::from([(String::from("x-github-event"), String::from("event"))])
    );
    let columns: Vec<_> = source
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.kind.as_str()))
        .collect();
    assert_eq!(columns, [("zone", "VARCHAR"), ("amount", "DECIMAL(10,2)")]);
    let place = |name: &str| source.places.get(name).map(String::as_str);
    assert_eq!(place("event"), Some("headwater.yml:16:23"));
    assert_eq!(place("amount"), Some("headwater.yml:19:7"));
    assert_eq!(source.body_max, 1 << 20);
    assert_eq!(source.lsn.as_deref(), Some("source.ts_ms"));
    assert_eq!(source.key, ["shop", "sku"]);
    assert_eq!(settings.source("other"), Source::default());
}

#[test]
fn all_complaints_come_at_once_with_their_places() {
    let text = concat!(
        "warehuose: x\n",
        "state: redis://x\n",
        "live:\n  debounce: soon\n  max_lags: 1s\n",
        "sources:\n  or-ders: {}\n  ok:\n    headers:\n      X-Kind: payload\n    columns:\n      a b: BIGINT\n      n: INTEGERS\n",
        "query: 12\n",
    );
    let found = complaints(text);
    let expected = [
        "headwater.yml:2:8: `state`: `redis://x` is no state store",
        "headwater.yml:4:13: `live.debounce`: ",
        "headwater.yml:5:3: unknown key `live.max_lags`; did you mean `max_lag`?",
        "headwater.yml:7:3: source `or-ders` is no identifier",
        "headwater.yml:10:15: the landing table has a column `payload` already",
        "headwater.yml:12:7: column `a b` is no identifier",
        "headwater.yml:13:10: `INTEGERS` is not a column type",
        "headwater.yml:14:8: `query` must hold `key: value` lines",
        "headwater.yml:1:1: unknown key `warehuose`; did you mean `warehouse`?",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn sources_and_headers_that_differ_by_case_only_are_told() {
    let text = concat!(
        "sources:\n  O:\n    columns: {q: BIGINT}\n  o:\n    columns: {r: BIGINT}\n",
        "  z:\n    headers:\n      X-A: a\n      x-a: b\n",
    );
    let found = complaints(text);
    let expected = [
        "headwater.yml:4:3: source `o` is there already",
        "headwater.yml:9:7: header `x-a` is kept already",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn broken_yaml_is_one_complaint_with_a_line() {
    for text in [
        "live: [1, 2",
        "live:\n  debounce: 1s\n debounce: 2s\n",
        "name: a\nname: b\n",
        "- 1\n- 2\n",
    ] {
        let found = complaints(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("headwater.yml:"), "{found:?}");
        assert!(!found[0].contains('\n'), "{found:?}");
    }
}

#[test]
fn variables_override_the_file_and_mistyped_ones_are_told() {
    let var = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let vars = BTreeMap::from([
        var("HEADWATER_LIVE_DEBOUNCE", "10ms"),
        var("HEADWATER_WAREHOUSE", "/data/lake"),
        var("HEADWATER_QUERY_ROWS_MAX", "5"),
        var("HEADWATER_CONFORMANCE", "belongs to somebody else"),
    ]);
    let settings =
        Settings::parse(Path::new("/shop"), "live: {debounce: 1s}", &vars).expect("settings");
    assert_eq!(settings.live.debounce, Duration::from_millis(10));
    assert_eq!(
        settings.warehouse,
        Warehouse::Folder(PathBuf::from("/data/lake"))
    );
    assert_eq!(settings.query.rows_max, 5);
    let vars = BTreeMap::from([
        var("HEADWATER_LIVE_DEBOUNC", "1s"),
        var("HEADWATER_LIVE_ENABLED", "maybe"),
    ]);
    let found = Settings::parse(Path::new("/shop"), "", &vars).expect_err("complaints");
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found[0],
        "HEADWATER_LIVE_ENABLED: `live.enabled`: `maybe` is neither `true` nor `false`"
    );
    assert_eq!(
        found[1],
        "HEADWATER_LIVE_DEBOUNC: no setting `live.debounc`; did you mean `HEADWATER_LIVE_DEBOUNCE`?"
    );
}
