//! Which calls agree, and which do not.

use super::*;

fn print(json: &str) -> Result<Fingerprint, Unencodable> {
    from_json(json)?.fingerprint()
}

fn of(argument: &str) -> Result<Fingerprint, Unencodable> {
    print(&format!(r#"{{"name": "f", "args": [{argument}]}}"#))
}

#[test]
fn published_vectors_agree() {
    #[derive(Deserialize)]
    struct Vector<'a> {
        title: String,
        #[serde(borrow)]
        call: &'a serde_json::value::RawValue,
        encoding: String,
        fingerprint: String,
    }
    let text = include_str!("../../../../examples/fingerprints/vectors.json");
    let vectors: Vec<Vector<'_>> = serde_json::from_str(text).expect("vectors");
    assert!(vectors.len() >= 40);
    let mut seen = std::collections::BTreeMap::new();
    for vector in vectors {
        let call = from_json(vector.call.get()).expect(&vector.title);
        let hex: String = call
            .encoding()
            .expect(&vector.title)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, vector.encoding, "{}", vector.title);
        let print = call.fingerprint().expect(&vector.title).to_string();
        assert_eq!(print, vector.fingerprint, "{}", vector.title);
        // A title may end in a number: variants of one call.
        let name = vector
            .title
            .split('#')
            .next()
            .unwrap_or_default()
            .to_owned();
        let other = seen.insert(print, name.clone());
        assert!(other.is_none_or(|other| other == name), "{name} collides");
    }
}

#[test]
fn types_never_collide() {
    let arguments = [
        "null",
        "true",
        "false",
        "1",
        "0",
        "1.0",
        "0.0",
        r#""""#,
        r#""1""#,
        r#""null""#,
        "[]",
        "{}",
        r#"{"$set": []}"#,
        r#"{"$tuple": []}"#,
        "[[]]",
        "[null]",
        r#"{"$decimal": "1"}"#,
        r#"{"$decimal": "1.5"}"#,
        r#""decimal:1.5""#,
        r#""1.5""#,
        r#"{"$bytes": "31"}"#,
        r#"{"1": "a"}"#,
        r#"{"$map": [[1, "a"]]}"#,
        r#"{"$map": [[true, 1]]}"#,
        r#"{"true": 1}"#,
        r#"{"$map": [[1, 1]]}"#,
        r#"{"$date": "1970-01-02"}"#,
        r#"{"$datetime": "1970-01-02T00:00:00"}"#,
        r#"{"$datetime": "1970-01-02T00:00:00Z"}"#,
        r#"{"$duration": "86400"}"#,
        r#"{"$time": "00:00:01"}"#,
        r#"{"$uuid": "12345678-1234-5678-1234-567812345678"}"#,
        r#""12345678-1234-5678-1234-567812345678""#,
        r#"{"$record": {"name": "P", "fields": {"x": 1}}}"#,
        r#"{"x": 1}"#,
        r#"{"$float": "NaN"}"#,
        r#"{"$query": {"dialect": "postgresql", "database": "a", "sql": "SELECT 1"}}"#,
        r#"{"$query": {"dialect": "postgresql", "database": "b", "sql": "SELECT 1"}}"#,
        r#"{"$query": {"dialect": "mysql", "database": "a", "sql": "SELECT 1"}}"#,
        r#""SELECT 1""#,
    ];
    let mut prints: Vec<Fingerprint> = arguments.iter().map(|a| of(a).expect(a)).collect();
    prints.push(print(r#"{"name": "f"}"#).expect("no arguments"));
    prints.push(print(r#"{"name": "f", "kwargs": {"a": 1}}"#).expect("a named one"));
    prints.push(print(r#"{"name": "f", "version": 1, "args": [null]}"#).expect("a version"));
    prints.push(print(r#"{"name": "g", "args": [null]}"#).expect("a name"));
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
}

#[test]
fn equal_values_of_one_type_agree() {
    for (a, b) in [
        (r#"{"$decimal": "1.50"}"#, r#"{"$decimal": "1.5"}"#),
        ("0.0", "-0.0"),
        (r#"{"$float": "NaN"}"#, r#"{"$float": "-NaN"}"#),
        ("-0", "0"),
        (
            r#"{"$datetime": "2026-01-01T01:00:00+01:00"}"#,
            r#"{"$datetime": "2026-01-01T00:00:00Z"}"#,
        ),
        (r#"{"$set": [1, 2, 2]}"#, r#"{"$set": [2, 1]}"#),
        (
            r#"{"x": 1, "y": {"p": 1, "q": 2}}"#,
            r#"{"y": {"q": 2, "p": 1}, "x": 1}"#,
        ),
        (r#"{"$map": [["x", 1]]}"#, r#"{"x": 1}"#),
        (r#""\u00e9""#, "\"é\""),
    ] {
        assert_eq!(of(a).expect(a), of(b).expect(b), "{a} {b}");
    }
    // Every digit counts.
    let (a, b) = (
        "1000000000000000000000000000000",
        "1000000000000000000000000000001",
    );
    assert_ne!(of(a), of(b));
}

#[test]
fn what_cannot_be_encoded_is_named_by_its_path() {
    let at = |json: &str| print(json).expect_err(json).path;
    assert_eq!(
        at(r#"{"name": "f", "args": [1, {"x": [{"$opaque": true}]}]}"#),
        "args[1].x[0]"
    );
    assert_eq!(
        at(r#"{"name": "f", "kwargs": {"since": {"$date": "yesterday"}}}"#),
        "kwargs.since"
    );
    assert_eq!(
        at(r#"{"name": "f", "args": [{"a": 1, "a": 2}]}"#),
        "args[0].a"
    );
    assert_eq!(
        at(r#"{"name": "f", "args": [{"$decimal": "NaN"}]}"#),
        "args[0]"
    );
    assert_eq!(at(r#"{"name": "f", "args": [1e999]}"#), "args[0]");
    let opaque = Call::new("f", 0).with_named("db", Value::Opaque(String::from("Connection")));
    let error = opaque.fingerprint().expect_err("no value");
    assert!(
        error
            .to_string()
            .starts_with("`kwargs.db` is a `Connection`"),
        "{error}"
    );
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| {
        let inner = (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        Call::new("f", 0).with(inner).fingerprint()
    };
    assert!(nested(DEPTH_MAX - 1).is_ok());
    assert!(nested(DEPTH_MAX + 5).is_err());
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(of(&deep).is_err());
}

#[test]
fn a_fingerprint_is_64_digits() {
    let print = Call::new("f", 0).fingerprint().expect("encodes");
    assert_eq!(print.to_string().parse(), Ok(print));
    let upper = print.to_string().to_uppercase();
    for bad in ["", "abc", &upper[..], &"g".repeat(64), &"é".repeat(32)] {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
}
