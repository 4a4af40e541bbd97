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
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        found[0],
        "HEADWATER_LIVE_ENABLED: `live.enabled`: `maybe` is neither `true` nor `false`"
    );
    assert_eq!(
        found[1],
        "HEADWATER_LIVE_DEBOUNC: no setting `live.debounc`; did you mean `HEADWATER_LIVE_DEBOUNCE`?"
    );
}

/// A slow reader makes its statement last five times as long as it may run.
#[test]
fn objects_stay_for_as_long_as_a_statement_may_read_them() {
    for text in [
        "query:\n  timeout: 3m\n",
        "maintenance:\n  grace: 1m\n",
        "maintenance:\n  grace: 299s\nquery:\n  timeout: 1m\n",
    ] {
        let told = complaints(text);
        assert!(
            told.iter().any(|told| told.contains("query.timeout")),
            "{text}: {told:?}"
        );
    }
    for text in [
        "query:\n  timeout: 2m\n",
        "maintenance:\n  grace: 1m\nquery:\n  timeout: 12s\n",
        "maintenance:\n  grace: 1h\nquery:\n  timeout: 10m\n",
    ] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn a_variable_that_is_all_but_a_key_of_the_top_is_told() {
    let told = |name: &str| {
        let vars = BTreeMap::from([(name.to_owned(), String::from("1s"))]);
        let found = Settings::parse(Path::new("/shop"), "", &vars).err();
        let found = found.unwrap_or_default();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (name, meant) in [
        ("HEADWATER_WAREHOSE", "HEADWATER_WAREHOUSE"),
        ("HEADWATER_STATES", "HEADWATER_STATE"),
        ("HEADWATER_LIVES_DEBOUNCE", "HEADWATER_LIVE_DEBOUNCE"),
        (
            "HEADWATER_MATERIALISE_INLINE_MAX",
            "HEADWATER_MATERIALIZE_INLINE_MAX",
        ),
    ] {
        let expected = format!("{name}: it sets nothing; did you mean `{meant}`?");
        assert_eq!(told(name), [expected], "{name}");
    }
    for name in [
        "HEADWATER_SEEDS",
        "HEADWATER_DATA",
        "HEADWATER_LOG",
        "HEADWATER_BIN",
        "HEADWATER_PEER_PYTHON",
        "HEADWATER_GATEWAY_AUTH",
    ] {
        assert!(told(name).is_empty(), "{name}: {:?}", told(name));
    }
}

#[test]
fn what_is_beyond_a_limit_is_told_with_its_line() {
    let found = complaints(concat!(
        "materialize:\n  inline_max: 400KB\n",
        "live:\n  poll_interval: 1ms\n",
        "maintenance:\n  grace: 1s\n",
        "embedder:\n  url: https://host/v1\n",
    ));
    for (found, (place, part)) in found.iter().zip([
        (
            "headwater.yml:6:",
            "`maintenance.grace` must be at least 1m",
        ),
        (
            "headwater.yml:4:18: ",
            "`live.poll_interval`: it must be at least 10ms",
        ),
        (
            "headwater.yml:2:15: ",
            "`materialize.inline_max`: `400KB` is more than 320KB",
        ),
        (
            "headwater.yml:8:",
            "`embedder.url` of a service needs `embedder.model`",
        ),
    ]) {
        assert!(found.starts_with(place) && found.contains(part), "{found}");
    }
    assert_eq!(found.len(), 4, "{found:?}");
}
