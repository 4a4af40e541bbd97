use super::*;

/// The changes of an envelope as `op lsn payload`.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    check_with(text, &Reading::default(), expected);
}

#[track_caller]
fn check_with(text: &str, reading: &Reading<'_>, expected: &[&str]) {
    let found = decode(text, reading).unwrap_or_else(|refusal| panic!("{refusal}: {text}"));
    let found: Vec<_> = found
        .iter()
        .map(|change| {
            let (op, payload) = (change.op.letter(), change.payload.unwrap_or("-"));
            format!("{op} {} {payload}", change.lsn)
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[track_caller]
fn check_refused(text: &str, field: &str, reason: &str) {
    check_refused_with(text, &Reading::default(), field, reason);
}

#[track_caller]
fn check_refused_with(text: &str, reading: &Reading<'_>, field: &str, reason: &str) {
    let refusal = decode(text, reading).expect_err(text);
    assert_eq!(refusal.field, field, "{refusal}");
    assert!(refusal.reason.contains(reason), "{refusal}");
}

#[test]
fn plain_envelopes() {
    check(
        r#"{"op":"I","lsn":1,"payload":{"id":1}}"#,
        &[r#"I 1 {"id":1}"#],
    );
    let spellings = [
        ("insert", "I"),
        ("C", "I"),
        (" update ", "U"),
        ("DELETE", "D"),
        ("r", "R"),
    ];
    for (spelling, letter) in spellings {
        let text = format!(r#"{{"op":"{spelling}","lsn":"7","payload":{{}}}}"#);
        check(&text, &[&format!("{letter} 7 {{}}")]);
    }
    check(r#"{"op":"T","lsn":9}"#, &["T 9 -"]);
    check(r#"{"op":"truncate","lsn":9,"payload":{}}"#, &["T 9 -"]);
    let sent = r#"{"op":"U","lsn":2,"received_at":"1970-01-01T00:00:01+00:00","payload":{}}"#;
    let found = decode(sent, &Reading::default()).expect("a change");
    assert_eq!(found[0].received_at, Some(Timestamp(1_000_000)));
}

#[test]
fn debezium_envelopes_alone_and_wrapped() {
    let cases = [
        (
            r#"{"before":null,"after":{"id":1},"source":{"lsn":5},"op":"c","ts_ms":1}"#,
            r#"I 5 {"id":1}"#,
        ),
        (
            r#"{"before":null,"after":{"id":1},"source":{"lsn":5},"op":"u"}"#,
            r#"U 5 {"id":1}"#,
        ),
        (
            r#"{"before":{"id":1,"v":null},"after":null,"source":{"lsn":5},"op":"d"}"#,
            r#"D 5 {"id":1,"v":null}"#,
        ),
        (
            r#"{"before":null,"after":{"id":1},"source":{"lsn":5,"snapshot":"first"},"op":"r"}"#,
            r#"R 5 {"id":1}"#,
        ),
        (
            r#"{"before":null,"after":null,"source":{"lsn":5},"op":"t"}"#,
            "T 5 -",
        ),
    ];
    for (text, expected) in cases {
        check(text, &[expected]);
        check(
            &format!(r#"{{"schema":{{"type":"struct"}},"payload":{text}}}"#),
            &[expected],
        );
        check(&format!(r#" {{"payload": {text} }} "#), &[expected]);
    }
}

#[test]
fn each_database_has_its_number() {
    let debezium =
        |source: &str| format!(r#"{{"op":"c","after":{{}},"before":null,"source":{source}}}"#);
    for (source, lsn) in [
        (r#"{"lsn":24023128}"#, "24023128"),
        (r#"{"lsn":"0/16B3748"}"#, "23803720"),
        (r#"{"lsn":"16/B374D848"}"#, "97500059720"),
        (r#"{"scn":"2122185","lsn":null}"#, "2122185"),
        (
            r#"{"change_lsn":"00000027:00000758:0005","commit_lsn":"00000027:00000758:0006"}"#,
            "10977524214923269",
        ),
        (
            r#"{"change_lsn":null,"commit_lsn":"00000000:00000000:0001"}"#,
            "1",
        ),
        (
            r#"{"file":"mysql-bin.000003","pos":154,"row":2}"#,
            "105553117528066",
        ),
        (r#"{"file":"binlog.000000","pos":1}"#, "8192"),
    ] {
        check(&debezium(source), &[&format!("I {lsn} {{}}")]);
    }
    let order = [
        r#"{"file":"a.000009","pos":4294967295,"row":8191}"#,
        r#"{"file":"a.000010","pos":0,"row":0}"#,
        r#"{"file":"a.000010","pos":0,"row":1}"#,
        r#"{"file":"a.000010","pos":1}"#,
        r#"{"file":"a.262143","pos":4294967295,"row":8191}"#,
        r#"{"file":"a.262144","pos":0}"#,
    ];
    let numbers: Vec<_> = order
        .iter()
        .map(|source| {
            let text = debezium(source);
            let found = decode(&text, &Reading::default()).expect("a change");
            let Lsn::Number(number) = found[0].lsn else {
                panic!("no number: {text}");
            };
            number
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(Lsn::Number(numbers[4]).bigint(), Some(i64::MAX));
    assert_eq!(Lsn::Number(numbers[5]).bigint(), None);
    for (source, field, reason) in [
        (r#"{"file":"binlog","pos":1}"#, "source.file", "number"),
        (
            r#"{"file":"a.1","pos":4294967296}"#,
            "source.pos",
            "4294967295",
        ),
        (r#"{"file":"a.1","pos":1,"row":8192}"#, "source.row", "8191"),
        (r#"{"lsn":"later"}"#, "source.lsn", "later"),
        (r#"{"ts_ms":1}"#, "lsn", "put in order"),
        ("\"x\"", "lsn", "put in order"),
    ] {
        check_refused(&debezium(source), field, reason);
    }
}

#[test]
fn a_change_without_order_is_refused() {
    for (text, field) in [
        (r#"{"op":"U","payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":null,"payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":"abc","payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":1.5,"payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":"","payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":true,"payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"U","lsn":[1],"payload":{"id":1}}"#, "lsn"),
        (r#"{"op":"T"}"#, "lsn"),
        (
            r#"{"payload":{"op":"c","after":{},"source":{"lsn":null}}}"#,
            "payload.lsn",
        ),
    ] {
        check_refused(text, field, "order");
    }
    let nines = "9".repeat(38);
    check(
        &format!(r#"{{"op":"U","lsn":{nines},"payload":{{}}}}"#),
        &[&format!("U {nines} {{}}")],
    );
    check_refused(
        &format!(r#"{{"op":"U","lsn":1{nines},"payload":{{}}}}"#),
        "lsn",
        "38 digits",
    );
}

#[test]
fn moments_and_numbers_are_not_alike() {
    let lsn = |lsn: &str| {
        let text = format!(r#"{{"op":"U","lsn":{lsn},"payload":{{}}}}"#);
        let found = decode(&text, &Reading::default()).expect("a change");
        match &found[0].lsn {
            Lsn::Number(number) => Lsn::Number(*number),
            Lsn::Moment(text) => Lsn::Moment(text.to_string().into()),
        }
    };
    let moment = lsn("\"2026-01-01T00:00:00.123456789Z\"");
    assert_eq!(
        moment.to_string(),
        "2026-01-01T00:00:00.123456789Z",
        "kept as sent"
    );
    assert_eq!(moment.bigint(), None);
    assert!(moment.is_like(&lsn("\"2026-01-01\"")));
    assert!(!moment.is_like(&lsn("\"10\"")));
    assert!(lsn("9").is_like(&lsn("\"10\"")));
    assert_eq!(lsn("\"-9\"").bigint(), Some(-9));
    assert_eq!(lsn("18446744073709551615").bigint(), None);
}

#[test]
fn the_settings_may_order_by_another_field() {
    let reading = |path| Reading {
        lsn: Some(path),
        ..Reading::default()
    };
    let text = r#"{"op":"u","lsn":1,"after":{"id":1,"version":"8"},"source":{"ts_ms":7,"lsn":2}}"#;
    check_with(
        text,
        &reading("source.ts_ms"),
        &[r#"U 7 {"id":1,"version":"8"}"#],
    );
    let wrapped = format!(r#"{{"schema":null,"payload":{text}}}"#);
    check_with(
        &wrapped,
        &reading("after.version"),
        &[r#"U 8 {"id":1,"version":"8"}"#],
    );
    check_refused_with(text, &reading("source.scn"), "source.scn", "missing");
    check_refused_with(text, &reading("op.x"), "op.x", "missing");
}

#[test]
fn what_holds_nothing_to_store_is_no_error() {
    for text in [
        "null",
        " null\n",
        r#"{"schema":null,"payload":null}"#,
        r#"{"ts_ms":1700000000000}"#,
        r#"{"ts_ms":1,"ts_us":2,"ts_ns":3}"#,
        r#"{"schema":{},"payload":{"ts_ms":1700000000000}}"#,
        r#"{"op":"m","ts_ms":1,"source":{"lsn":1},"message":{"prefix":"p","content":"Zm9v"}}"#,
    ] {
        check(text, &[]);
    }
    check_refused(r#"{"ts_ms":1,"id":2}"#, "op", "missing");
    check_refused("{}", "op", "missing");
    check_refused(r#"{"payload":null,"lsn":1}"#, "op", "missing");
}

#[test]
fn a_changed_key_is_a_delete_and_an_update() {
    let update = |before: &str, after: &str| {
        format!(r#"{{"op":"u","before":{before},"after":{after},"source":{{"lsn":5}}}}"#)
    };
    // `id` is the key when nobody says otherwise.
    check(
        &update(r#"{"id":1,"v":1}"#, r#"{"id":7,"v":1}"#),
        &[r#"D 5 {"id":1,"v":1}"#, r#"U 5 {"id":7,"v":1}"#],
    );
    check(
        &update(r#"{"ID":"a"}"#, r#"{"ID":"b"}"#),
        &[r#"D 5 {"ID":"a"}"#, r#"U 5 {"ID":"b"}"#],
    );
    check(
        &update(r#"{"id":1,"v":1}"#, r#"{"id":1,"v":2}"#),
        &[r#"U 5 {"id":1,"v":2}"#],
    );
    check(
        &update(r#"{"id":null,"v":1}"#, r#"{"id":1,"v":2}"#),
        &[r#"U 5 {"id":1,"v":2}"#],
    );
    // A row of its key alone.
    check(
        &update(r#"{"sku":"a"}"#, r#"{"sku":"b","n":1}"#),
        &[r#"D 5 {"sku":"a"}"#, r#"U 5 {"sku":"b","n":1}"#],
    );
    check(
        &update(r#"{"sku":"a","n":1}"#, r#"{"sku":"b","n":1}"#),
        &[r#"U 5 {"sku":"b","n":1}"#],
    );
    // The settings know better.
    let key = ["shop".to_owned(), "sku".to_owned()];
    let reading = Reading {
        key: &key,
        ..Reading::default()
    };
    check_with(
        &update(
            r#"{"shop":1,"sku":"a","id":1}"#,
            r#"{"shop":1,"sku":"b","id":1}"#,
        ),
        &reading,
        &[
            r#"D 5 {"shop":1,"sku":"a","id":1}"#,
            r#"U 5 {"shop":1,"sku":"b","id":1}"#,
        ],
    );
    check_with(
        &update(
            r#"{"shop":1,"sku":"a","id":1}"#,
            r#"{"shop":1,"sku":"a","id":2}"#,
        ),
        &reading,
        &[r#"U 5 {"shop":1,"sku":"a","id":2}"#],
    );
    check_refused_with(
        &update(r#"{"shop":1,"sku":"a"}"#, r#"{"shop":1}"#),
        &reading,
        "after",
        "`sku`",
    );
    check(
        r#"{"op":"U","lsn":5,"before":{"id":1},"payload":{"id":7}}"#,
        &[r#"D 5 {"id":1}"#, r#"U 5 {"id":7}"#],
    );
}

#[test]
fn unavailable_values_are_named_and_stay_in_the_text() {
    let after = r#"{"id":1,"body":"__debezium_unavailable_value","b":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==","l":[ "__debezium_unavailable_value" ],"c\"":"__debezium_unavailable_value","x":"not __debezium_unavailable_value"}"#;
    let text = format!(r#"{{"op":"u","before":null,"after":{after},"source":{{"lsn":5}}}}"#);
    let found = decode(&text, &Reading::default()).expect("a change");
    assert_eq!(found[0].payload, Some(after));
    assert_eq!(found[0].unavailable, ["b", "body", "c\"", "l"]);
}

#[test]
fn what_is_no_envelope_names_its_field() {
    for (text, field, reason) in [
        ("1", "", "no object"),
        ("\"x\"", "", "no object"),
        ("[[1]]", "", "no object"),
        ("{\"op\":", "", "cannot be read"),
        (
            r#"{"op":"c","op":"d","lsn":1,"payload":{}}"#,
            "",
            "duplicate field `op`",
        ),
        (r#"{"schema":{},"payload":1}"#, "payload", "no object"),
        (r#"{"op":1,"lsn":1,"payload":{}}"#, "op", "text"),
        (r#"{"op":"x","lsn":1,"payload":{}}"#, "op", "known are"),
        (r#"{"op":null,"lsn":1,"payload":{}}"#, "op", "missing"),
        (r#"{"op":"I","lsn":1}"#, "payload", "missing"),
        (r#"{"op":"I","lsn":1,"payload":null}"#, "payload", "missing"),
        (r#"{"op":"D","lsn":1,"payload":[1]}"#, "payload", "object"),
        (r#"{"op":"I","lsn":1,"payload":"{}"}"#, "payload", "object"),
        (
            r#"{"op":"c","lsn":1,"before":{},"after":null}"#,
            "after",
            "missing",
        ),
        (
            r#"{"op":"d","before":null,"after":null,"source":{"lsn":1}}"#,
            "before",
            "key",
        ),
        (
            r#"{"op":"u","before":1,"after":{},"source":{"lsn":1}}"#,
            "before",
            "object",
        ),
        (
            r#"{"op":"u","after":{},"payload":{},"lsn":1}"#,
            "payload",
            "beside `after`",
        ),
        (
            r#"{"op":"I","lsn":1,"payload":{},"received_at":5}"#,
            "received_at",
            "timestamp",
        ),
        (
            r#"{"schema":{},"payload":{"op":"c","source":{"lsn":1}}}"#,
            "payload.after",
            "missing",
        ),
    ] {
        check_refused(text, field, reason);
    }
}

#[test]
fn an_array_holds_envelopes() {
    assert_eq!(envelopes("{}").expect("one"), ["{}"]);
    assert_eq!(envelopes("null").expect("one"), ["null"]);
    assert_eq!(envelopes(" [] ").expect("none"), [""; 0]);
    assert_eq!(
        envelopes("[ {\"a\" : 1.0} , null]").expect("two"),
        ["{\"a\" : 1.0}", "null"]
    );
    assert!(envelopes("[1,").is_err());
}

/// Draws JSON as senders write it: any spacing, numbers of any length, escapes, names twice.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n  ", "\t", "\r\n"][usize::try_from(self.below(6)).unwrap_or(0)]
    }

    fn scalar(&mut self) -> &'static str {
        const SCALARS: [&str; 12] = [
            "null",
            "true",
            "1.50",
            "-0.0",
            "1E400",
            "9007199254740993",
            "123456789012345678901234567890.12345678901234567890",
            "0.1000000000000000055511151231257827",
            "\"\"",
            "\"\\u00e9 \\\" \\/ é ☃\"",
            "\"__debezium_unavailable_value\"",
            "\"}\"",
        ];
        SCALARS[usize::try_from(self.below(12)).unwrap_or(0)]
    }

    fn value(&mut self, depth: u32) -> String {
        match self.below(4) {
            0 if depth > 0 => self.object(depth - 1),
            1 if depth > 0 => {
                let items: Vec<_> = (0..self.below(3)).map(|_| self.value(depth - 1)).collect();
                format!("[{}{}{}]", self.space(), items.join(" ,"), self.space())
            }
            _ => self.scalar().to_owned(),
        }
    }

    fn object(&mut self, depth: u32) -> String {
        let fields: Vec<_> = (0..self.below(5))
            .map(|_| {
                let name = ["a", "b\\u0020", "id2", "op", "after"]
                    [usize::try_from(self.below(5)).unwrap_or(0)];
                let (left, right) = (self.space(), self.space());
                format!("{left}\"{name}\"{right}:{left}{}{right}", self.value(depth))
            })
            .collect();
        format!("{{{}{}}}", fields.join(","), self.space())
    }
}

#[test]
fn a_row_survives_byte_for_byte_whatever_it_holds() {
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    for _ in 0..2_000 {
        let (row, old) = (draw.object(3), draw.object(2));
        let (left, right) = (draw.space(), draw.space());
        for (text, expected) in [
            (
                format!("{{{left}\"op\":\"I\",\"lsn\":1,\"payload\":{left}{row}{right}}}"),
                &row,
            ),
            (
                format!(
                    "{{\"before\":{old},\"after\":{left}{row}{right},\"op\":{right}\"u\",\"source\":{{\"lsn\":1}}}}"
                ),
                &row,
            ),
            (
                format!(
                    "{{\"schema\":{{}},\"payload\":{left}{{\"op\":\"d\",\"before\":{right}{old},\"lsn\":1}}{left}}}"
                ),
                &old,
            ),
        ] {
            let array = format!("[{left}null,{text}{right}]");
            for body in [&text, &array] {
                let changes: Vec<_> = envelopes(body)
                    .expect("JSON")
                    .into_iter()
                    .flat_map(|envelope| decode(envelope, &Reading::default()).expect("changes"))
                    .collect();
                let payloads: Vec<_> = changes.iter().filter_map(|change| change.payload).collect();
                // A row before of one other column is another key.
                let others = payloads.len() - 1;
                assert_eq!(payloads[..others], [old.as_str()][..others], "{text}");
                assert_eq!(payloads[others], expected, "{text}");
            }
        }
    }
}
