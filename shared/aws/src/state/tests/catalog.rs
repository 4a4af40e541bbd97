//! The rows that PyIceberg reads follow the items, in the same transaction.

use domain::items::CATALOG;

use super::*;

fn pointer(table: &str, location: &str, previous: Option<&str>, expect: Expect) -> Write {
    let value = serde_json::json!({
        "metadata_location": location,
        "previous_metadata_location": previous,
    });
    Write::put(Key::new(CATALOG, table), &value, expect)
}

fn remove(table: &str) -> Write {
    Write::Delete {
        key: Key::new(CATALOG, table),
        expect: Expect::Any,
    }
}

/// The rows as text.
fn rows(fake: &Fake) -> Vec<String> {
    let rows = fake.rows("iceberg").into_iter().map(|row| {
        let text = |name: &str| {
            row.get(name)
                .and_then(|value| value["S"].as_str())
                .unwrap_or("-")
        };
        assert!(row["created_at"]["N"].is_string() && row["updated_at"]["N"].is_string());
        format!(
            "{} {} {} {} {}",
            text("identifier"),
            text("namespace"),
            text("p.metadata_location"),
            text("p.previous_metadata_location"),
            text("p.table_type"),
        )
    });
    rows.collect()
}

#[tokio::test]
async fn rows_follow_the_pointers() {
    let fake = Fake::default();
    let state = store(&fake);
    let first = vec![
        pointer("silver.orders", "s3://w/1.json", None, Expect::Absent),
        pointer("gold.daily", "s3://w/9.json", None, Expect::Absent),
    ];
    let version = commit(&state, first).await[0];
    let created = fake
        .rows("iceberg")
        .into_iter()
        .map(|row| row["created_at"].clone());
    let created: Vec<_> = created.collect();
    let later = state.clock.now() + Duration::from_secs(5);
    state.clock.sleep_until(later).await;
    let next = pointer(
        "silver.orders",
        "s3://w/2.json",
        Some("s3://w/1.json"),
        Expect::Version(version),
    );
    commit(&state, vec![next]).await;
    assert_eq!(
        rows(&fake),
        [
            "NAMESPACE gold - - -",
            "NAMESPACE silver - - -",
            "gold.daily gold s3://w/9.json  ICEBERG",
            "silver.orders silver s3://w/2.json s3://w/1.json ICEBERG",
        ]
    );
    let still = fake
        .rows("iceberg")
        .into_iter()
        .map(|row| row["created_at"].clone());
    assert_eq!(
        still.collect::<Vec<_>>(),
        created,
        "a table is created once"
    );
    commit(&state, vec![remove("gold.daily"), remove("gold.never_was")]).await;
    assert_eq!(rows(&fake).len(), 3);
}

#[tokio::test]
async fn a_namespace_is_written_once_by_a_process_and_never_by_a_transaction() {
    let fake = Fake::default();
    for _ in 0..2 {
        let state = store(&fake);
        commit(
            &state,
            vec![pointer("gold.a", "s3://w/1.json", None, Expect::Any)],
        )
        .await;
        commit(
            &state,
            vec![pointer("gold.b", "s3://w/2.json", None, Expect::Any)],
        )
        .await;
    }
    let puts = fake
        .requests()
        .into_iter()
        .filter(|asked| asked == "PutItem");
    assert_eq!(puts.count(), 2);
}

#[tokio::test]
async fn a_conflict_elsewhere_in_the_transaction_moves_no_row() {
    let fake = Fake::default();
    let state = store(&fake);
    commit(
        &state,
        vec![pointer(
            "silver.orders",
            "s3://w/1.json",
            None,
            Expect::Absent,
        )],
    )
    .await;
    let writes = vec![
        pointer("silver.orders", "s3://w/2.json", None, Expect::Any),
        put("watermark", "1", Expect::Version(77)),
    ];
    assert_eq!(transact(&state, writes).await, Outcome::Conflict(vec![1]));
    assert!(rows(&fake).contains(&"silver.orders silver s3://w/1.json  ICEBERG".to_owned()));
}

#[tokio::test]
async fn a_pointer_that_names_no_table_or_place_is_invalid() {
    let fake = Fake::default();
    let state = store(&fake);
    let nowhere = Write::put(Key::new(CATALOG, "silver.orders"), &1, Expect::Any);
    for write in [
        pointer("orders", "s3://w/1.json", None, Expect::Any),
        nowhere,
    ] {
        let error = state
            .transact(vec![write])
            .await
            .expect_err("it is no pointer");
        assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    }
    assert_eq!(fake.requests().len(), 0);
}

#[tokio::test]
async fn rows_count_towards_the_limit_of_a_transaction() {
    let fake = Fake::default();
    let state = store(&fake);
    let pointers = |count: usize| -> Vec<Write> {
        let tables = (0..count).map(|index| format!("gold.t{index}"));
        let writes = tables.map(|table| pointer(&table, "s3://w/1.json", None, Expect::Any));
        writes.collect()
    };
    let error = state.transact(pointers(51)).await.expect_err("102 parts");
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.chain().contains("51 pointers"), "{}", error.chain());
    commit(&state, pointers(50)).await;
}

#[tokio::test]
async fn without_a_catalog_there_are_no_rows() {
    let fake = Fake::default();
    let state = DynamoState {
        catalog: None,
        ..store(&fake)
    };
    commit(
        &state,
        vec![pointer("gold.a", "s3://w/1.json", None, Expect::Any)],
    )
    .await;
    assert!(rows(&fake).is_empty());
}
