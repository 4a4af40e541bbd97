//! Webhook bodies.

use ports::Kind;
use settings::Source;

use super::*;
use crate::ingest::{Accepted, Format, Request, webhook};

fn request(body: &str, format: Format) -> Request {
    Request {
        source: "orders".into(),
        body: body.to_owned().into(),
        format,
        key: None,
        headers: Vec::new(),
    }
}

fn ndjson(body: &str) -> Request {
    request(body, Format::Ndjson)
}

#[tokio::test]
async fn events_are_kept_as_sent_and_announced() {
    let (world, landing, queue) = world();
    let body = "{\"id\":9007199254740993,\"u\":18446744073709551615}\n {\"big\" : 123456789012345678901234567890} \n";
    let request = Request {
        headers: vec![("event".into(), Some("push".into())), ("from".into(), None)],
        key: Some("k1".into()),
        ..ndjson(body)
    };
    let accepted = webhook(&world, &Source::default(), request)
        .await
        .expect("accepted");
    let expected = Accepted {
        status: "committed",
        source: "orders".into(),
        sequence_from: 1,
        sequence_to: 2,
        rows: 2,
        quarantined: 0,
        duplicate: false,
    };
    assert_eq!(accepted, expected);
    assert_eq!(
        landing.column("landing.orders", "payload"),
        [
            "{\"id\":9007199254740993,\"u\":18446744073709551615}",
            "{\"big\" : 123456789012345678901234567890}"
        ]
    );
    assert_eq!(landing.column("landing.orders", "event"), ["push", "push"]);
    assert_eq!(
        landing.column("landing.orders", "from"),
        ["<null>", "<null>"]
    );
    let ids = landing.column("landing.orders", "id");
    assert!(ids[0] < ids[1] && ids[0].len() == ids[1].len(), "{ids:?}");
    let append = &landing.appends("landing.orders")[0];
    assert_eq!(append.key.as_deref(), Some("k1"));
    let fields = append.rows.schema();
    let names: Vec<_> = fields
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["id", "received_at", "payload", "event", "from"]);
    let announced = queue.take();
    assert_eq!(announced.len(), 1);
    assert_eq!(
        (
            announced[0].table.to_string().as_str(),
            announced[0].position.sequence
        ),
        ("landing.orders", 2)
    );
}

#[tokio::test]
async fn a_number_in_quotes_fits_and_a_fraction_is_quarantined() {
    let (world, landing, _) = world();
    let source = Source {
        columns: vec![column("n", "BIGINT"), column("userId", "VARCHAR")],
        ..Source::default()
    };
    let body = "{\"n\":\"42\"}\n{\"n\":5.7}\n{\"n\":1e3}\n{\"n\":true}\n{\"n\":\"\"}\n{\"n\":\" 7\"}\n{\"n\":null}\n\
                {\"userId\":1}\n[1]\n{\"n\":9007199254740993,\"N\":1}";
    let accepted = webhook(&world, &source, ndjson(body))
        .await
        .expect("accepted");
    assert_eq!((accepted.rows, accepted.quarantined), (7, 3));
    assert_eq!(
        landing.column("landing.orders", "n"),
        [
            "42",
            "1000",
            "7",
            "<null>",
            "<null>",
            "<null>",
            "9007199254740993"
        ]
    );
    assert_eq!(landing.column("landing.orders", "userId")[4], "1");
    assert_eq!(
        landing.column("quarantine.orders", "payload"),
        ["{\"n\":5.7}", "{\"n\":true}", "{\"n\":\"\"}"]
    );
    assert_eq!(
        landing.column("quarantine.orders", "reason"),
        [
            "line 2: column `n`: 5.7 is no BIGINT",
            "line 4: column `n`: true is no BIGINT",
            "line 5: column `n`: \"\" is no BIGINT"
        ]
    );
    let ids = [
        landing.column("landing.orders", "id"),
        landing.column("quarantine.orders", "id"),
    ];
    let all: std::collections::BTreeSet<_> = ids.concat().into_iter().collect();
    assert_eq!(all.len(), 10, "ids are unique");
}

#[tokio::test]
async fn odd_moments_of_rfc_3339_are_stored_or_quarantined_in_order() {
    let (world, landing, _) = world();
    let source = Source {
        columns: vec![column("at", "TIMESTAMP")],
        ..Source::default()
    };
    let body = "{\"at\":\"2016-12-31T23:59:60Z\"}\n{\"at\":\"2016-12-31T15:59:60-08:00\"}\n\
                {\"at\":\"2023-12-11T11:31:60Z\"}\n{\"at\":\"2016-12-31t23:59:59.9z\"}\n{\"at\":\"2017-01-01T00:00:00+00:00\"}";
    let accepted = webhook(&world, &source, ndjson(body))
        .await
        .expect("accepted");
    assert_eq!((accepted.rows, accepted.quarantined), (4, 1));
    assert_eq!(
        landing.column("landing.orders", "at"),
        [
            "2016-12-31T23:59:59.999999",
            "2016-12-31T23:59:59.999999",
            "2016-12-31T23:59:59.900",
            "2017-01-01T00:00:00"
        ]
    );
}

#[tokio::test]
async fn a_body_is_taken_whole_or_refused_whole() {
    let (world, landing, queue) = world();
    let source = Source {
        body_max: 64,
        ..Source::default()
    };
    let refused = |request: Request| {
        let (world, source) = (world.clone(), source.clone());
        async move {
            webhook(&world, &source, request)
                .await
                .expect_err("refused")
        }
    };
    let error = refused(ndjson("{}\n{]\n{}")).await;
    assert_eq!(error.kind, Kind::Invalid);
    assert!(
        error.chain().contains("line 2, column 2"),
        "{}",
        error.chain()
    );
    let error = refused(Request {
        source: "a-b".into(),
        ..ndjson("{}")
    })
    .await;
    assert_eq!(
        (error.kind, error.chain().contains("a-b")),
        (Kind::Invalid, true)
    );
    let error = refused(Request {
        key: Some(String::new()),
        ..ndjson("{}")
    })
    .await;
    assert_eq!(error.kind, Kind::Invalid);
    let error = refused(request(&"1".repeat(65), Format::Json)).await;
    assert_eq!(error.kind, Kind::TooLarge);
    assert!(error.chain().contains("64"), "{}", error.chain());
    assert!(landing.appends("landing.orders").is_empty() && queue.take().is_empty());
}

#[tokio::test]
async fn a_body_of_misfits_is_accepted_into_quarantine() {
    let (world, landing, _) = world();
    let source = Source {
        columns: vec![column("n", "BIGINT")],
        ..Source::default()
    };
    let accepted = webhook(&world, &source, request("{\"n\":{}}", Format::Json))
        .await
        .expect("accepted");
    assert_eq!(
        (accepted.rows, accepted.sequence_from, accepted.quarantined),
        (0, 0, 1)
    );
    assert!(landing.appends("landing.orders").is_empty());
}

/// `cargo test --release -p engine -- --ignored --nocapture ndjson_speed`
#[tokio::test]
#[ignore = "a measurement"]
async fn ndjson_speed() {
    let (world, _, _) = world();
    let body: String = (0..100_000)
        .map(|n| format!("{{\"order_id\":{n},\"region\":\"EU\",\"amount\":{}.5,\"status\":\"paid\",\"customer\":\"c{n}\"}}\n", n % 100))
        .collect();
    let typed = Source {
        columns: vec![column("order_id", "BIGINT"), column("amount", "DOUBLE")],
        ..Source::default()
    };
    for source in [Source::default(), typed] {
        let start = std::time::Instant::now();
        webhook(&world, &source, ndjson(&body))
            .await
            .expect("accepted");
        let rate = 100_000.0 / start.elapsed().as_secs_f64();
        println!(
            "{} bytes per event, {} typed columns: {rate:.0} events/s",
            body.len() / 100_000,
            source.columns.len()
        );
    }
}
