//! Appends, group commit, keys, columns.

use futures::{FutureExt, future::join_all};
use ports::{Kind, Landing};

use super::*;

#[tokio::test]
async fn a_small_append_is_one_request_and_a_large_one_two() {
    let case = Case::new();
    case.lake
        .append(append(numbers("n", &[0]), None))
        .await
        .expect("stored");
    case.state.take();
    case.counted.take();

    let stored = case
        .lake
        .append(append(numbers("n", &[1, 2]), None))
        .await
        .expect("stored");
    assert_eq!(
        (stored.first, stored.last, stored.position.commits),
        (2, 3, 2)
    );
    assert_eq!(
        (case.state.take().requests(), case.counted.take().requests()),
        (1, 0)
    );

    let many: Vec<i64> = (3..50_003).collect();
    let stored = case
        .lake
        .append(append(numbers("n", &many), None))
        .await
        .expect("stored");
    assert_eq!((stored.first, stored.last), (4, 50_003));
    assert_eq!(
        (case.state.take().requests(), case.counted.take().requests()),
        (1, 1)
    );

    let rows = read(case.state.as_ref(), &case.objects, "n").await;
    let found = rows
        .into_iter()
        .map(|(_, n)| n.expect("no NULL").parse::<i64>().expect("a number"));
    assert!(found.eq(0..50_003));
}

#[tokio::test]
async fn appends_that_wait_share_a_commit_within_its_bounds() {
    let case = Case::new();
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let appends = (0..)
        .zip(&keys)
        .map(|(n, key)| case.lake.append(append(numbers("n", &[n]), Some(key))));
    let stored = join_all(appends).await;
    let firsts: Vec<_> = stored
        .into_iter()
        .map(|stored| stored.expect("stored").first)
        .collect();
    assert_eq!(firsts, (1..=200).collect::<Vec<_>>());
    assert_eq!(
        case.state.take().transacts,
        3,
        "a transaction holds 100 writes"
    );
}

#[tokio::test]
async fn a_key_stores_once_whether_in_one_commit_or_later() {
    let case = Case::new();
    let twice = [1, 2].map(|n| case.lake.append(append(numbers("n", &[n, n]), Some("key"))));
    let [first, second] = join_all(twice).await.try_into().expect("two answers");
    let (first, second) = (first.expect("stored"), second.expect("answered"));
    assert_eq!((first.first, first.last, first.duplicate), (1, 2, false));
    assert_eq!((second.first, second.last, second.duplicate), (1, 2, true));

    let other = case
        .lake
        .append(append(numbers("n", &[3]), Some("other")))
        .await
        .expect("stored");
    let again = join_all([
        case.lake.append(append(numbers("n", &[4]), None)),
        case.lake.append(append(numbers("n", &[5]), Some("key"))),
    ]);
    let again = drive(&case.clock, again).await;
    let [new, old]: [_; 2] = again.try_into().expect("two answers");
    assert_eq!(new.expect("stored").first, 4);
    let old = old.expect("answered");
    assert_eq!((old.first, old.last, old.duplicate), (1, 2, true));
    assert_eq!((old.position.sequence, other.first), (2, 3));
    let rows = read(case.state.as_ref(), &case.objects, "n").await;
    let found: Vec<_> = rows.iter().filter_map(|(_, n)| n.as_deref()).collect();
    assert_eq!(found, ["1", "1", "3", "4"]);
}

#[tokio::test]
async fn a_column_of_another_type_refuses_its_append_alone() {
    let case = Case::new();
    let answers = join_all([
        case.lake.append(append(numbers("n", &[1]), None)),
        case.lake.append(append(ids(&["x".into()]), None)),
        case.lake.append(append(numbers("id", &[2]), None)),
        case.lake.append(append(numbers("_SEQ", &[2]), None)),
        case.lake.append(append(numbers("n", &[3]), None)),
    ])
    .await;
    let kinds: Vec<_> = answers
        .iter()
        .map(|a| a.as_ref().err().map(|e| e.kind))
        .collect();
    assert_eq!(
        kinds,
        [None, None, Some(Kind::Invalid), Some(Kind::Invalid), None]
    );
    let chain = answers[2].as_ref().expect_err("refused").chain();
    assert!(
        chain.contains("column `id` is BIGINT here and VARCHAR in the table"),
        "{chain}"
    );

    let rows = read(case.state.as_ref(), &case.objects, "id").await;
    let found: Vec<_> = rows.iter().map(|(_, id)| id.as_deref()).collect();
    assert_eq!(
        found,
        [None, Some("x"), None],
        "a batch that lacks a column has NULLs"
    );
}

#[tokio::test]
async fn a_caller_that_goes_away_loses_nothing_of_the_others() {
    let case = Case::new();
    let mut gone = Box::pin(case.lake.append(append(numbers("n", &[1]), None)));
    assert!(
        gone.as_mut().now_or_never().is_none(),
        "it waits for its commit"
    );
    drop(gone);
    let stored = case
        .lake
        .append(append(numbers("n", &[2]), None))
        .await
        .expect("stored");
    assert_eq!(stored.last, 2);
    assert_eq!(read(case.state.as_ref(), &case.objects, "n").await.len(), 2);
}

#[tokio::test]
async fn declared_columns_are_there_without_a_commit() {
    let case = Case::new();
    let column = |name: &str, kind: &str| domain::items::Column {
        name: name.into(),
        kind: kind.into(),
    };
    case.lake
        .declare(&table(), &[column("n", "BIGINT")])
        .await
        .expect("declared");
    case.lake
        .declare(
            &table(),
            &[column("n", "DOUBLE"), column("At", "TIMESTAMP")],
        )
        .await
        .expect("what exists is left alone");
    case.lake
        .declare(&table(), &[column("x", "TEXT")])
        .await
        .expect_err("no such type");
    let Some(Pin::Landing {
        schema, through, ..
    }) = pin(case.state.as_ref(), &table()).await.expect("a head")
    else {
        panic!("a landing table");
    };
    let names: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(
        (names.as_slice(), through),
        (["n", "At", "_seq"].as_slice(), 0)
    );
    assert_eq!(
        schema.field(0).data_type(),
        &arrow::datatypes::DataType::Int64
    );
    let stored = case
        .lake
        .append(append(numbers("n", &[1]), None))
        .await
        .expect("stored");
    assert_eq!(stored.position.commits, 1);
}

#[tokio::test]
async fn a_scan_gives_what_was_asked_for_and_joins_small_commits() {
    let case = Case::new();
    for n in 0..20 {
        case.lake
            .append(append(numbers("n", &[n, n]), None))
            .await
            .expect("stored");
    }
    let Some(Pin::Landing { schema, .. }) =
        pin(case.state.as_ref(), &table()).await.expect("a head")
    else {
        panic!("a landing table");
    };
    for (after, through) in [(0, 40), (3, 37), (4, 5), (7, 7), (0, 0), (39, 40)] {
        let (state, table) = (case.state.as_ref(), table());
        let found = scan(state, &case.objects, &table, &schema, after, through).await;
        let (found, arrived) = found.expect("a scan");
        assert_eq!(arrived, (after < through).then_some(Timestamp(5)));
        let parts = found.parts;
        let sequences: Vec<i64> = parts
            .iter()
            .flat_map(|part| match part {
                Part::Memory(batch) => batch
                    .column(1)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec(),
                Part::File(_) => panic!("these are inline"),
            })
            .collect();
        assert_eq!(
            sequences,
            (after as i64 + 1..=through as i64).collect::<Vec<_>>()
        );
        assert!(parts.len() <= 1);
    }
}

#[tokio::test]
async fn a_scan_never_goes_past_its_end_even_inside_a_file() {
    let case = Case::new();
    let many: Vec<i64> = (1..=50_000).collect();
    case.lake
        .append(append(numbers("n", &many), None))
        .await
        .expect("stored");
    let Some(Pin::Landing { schema, .. }) =
        pin(case.state.as_ref(), &table()).await.expect("a head")
    else {
        panic!("a landing table");
    };
    let found = scan(
        case.state.as_ref(),
        &case.objects,
        &table(),
        &schema,
        10,
        30_000,
    )
    .await;
    let rows: usize = found
        .expect("a scan")
        .0
        .parts
        .iter()
        .map(|part| match part {
            Part::Memory(batch) => batch.num_rows(),
            Part::File(_) => panic!("it is cut"),
        })
        .sum();
    assert_eq!(rows, 29_990);
}

/// `cargo test --release -p lake -- --ignored --nocapture append_speed`
#[tokio::test]
#[ignore = "a measurement"]
async fn append_speed() {
    let case = Case::new();
    let start = std::time::Instant::now();
    let writers = (0..64).map(|writer| {
        let case = &case;
        async move {
            for n in 0..500 {
                let rows = ids(&[format!("{writer}-{n}")]);
                case.lake.append(append(rows, None)).await.expect("stored");
            }
        }
    });
    join_all(writers).await;
    let (appends, counts) = (64 * 500, case.state.take());
    let rate = f64::from(appends) / start.elapsed().as_secs_f64();
    println!("{rate:.0} appends/s in {} commits", counts.transacts);
}
