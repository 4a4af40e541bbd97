//! The rows that PyIceberg reads follow the items, in the same transaction.

use domain::items::CATALOG;
use rusqlite::Connection;

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

/// The rows as text, and the namespaces.
fn rows(path: &Path) -> (Vec<String>, Vec<String>) {
    let connection = Connection::open(path).expect("a database");
    let read = |sql| -> Vec<String> {
        let mut statement = connection.prepare(sql).expect("a statement");
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("rows")
    };
    let tables = read(
        "SELECT catalog_name || ' ' || table_namespace || '.' || table_name || ' '
             || metadata_location || ' ' || coalesce(previous_metadata_location, '-') || ' '
             || iceberg_type FROM iceberg_tables ORDER BY 1",
    );
    let namespaces = read(
        "SELECT catalog_name || ' ' || namespace || ' ' || property_key || '=' || property_value
             FROM iceberg_namespace_properties ORDER BY 1",
    );
    (tables, namespaces)
}

#[tokio::test]
async fn rows_follow_the_pointers() {
    let (_folder, path) = folder();
    let state = open(&path);
    commit(
        &state,
        vec![
            pointer("silver.orders", "file:///w/1.json", None, Expect::Absent),
            pointer("gold.daily", "file:///w/9.json", None, Expect::Absent),
        ],
    )
    .await;
    commit(
        &state,
        vec![pointer(
            "silver.orders",
            "file:///w/2.json",
            Some("file:///w/1.json"),
            Expect::Any,
        )],
    )
    .await;
    let (tables, namespaces) = rows(&path);
    assert_eq!(
        tables,
        [
            "headwater gold.daily file:///w/9.json - TABLE",
            "headwater silver.orders file:///w/2.json file:///w/1.json TABLE",
        ]
    );
    assert_eq!(
        namespaces,
        ["headwater gold exists=true", "headwater silver exists=true"]
    );
    commit(&state, vec![remove("gold.daily"), remove("gold.never_was")]).await;
    let (tables, namespaces) = rows(&path);
    assert_eq!((tables.len(), namespaces.len()), (1, 1));
}

#[tokio::test]
async fn a_conflict_elsewhere_in_the_transaction_moves_no_row() {
    let (_folder, path) = folder();
    let state = open(&path);
    commit(
        &state,
        vec![pointer(
            "silver.orders",
            "file:///w/1.json",
            None,
            Expect::Absent,
        )],
    )
    .await;
    let writes = vec![
        pointer("silver.orders", "file:///w/2.json", None, Expect::Any),
        put("watermark", "1", Expect::Version(77)),
    ];
    let outcome = state.transact(writes).await.expect("the store answers");
    assert_eq!(outcome, Outcome::Conflict(vec![1]));
    assert_eq!(
        rows(&path).0,
        ["headwater silver.orders file:///w/1.json - TABLE"]
    );
}

#[tokio::test]
async fn a_pointer_that_names_no_table_or_place_is_invalid() {
    let (_folder, path) = folder();
    let state = open(&path);
    let nowhere = Write::put(Key::new(CATALOG, "silver.orders"), &1, Expect::Any);
    for write in [
        pointer("orders", "file:///w/1.json", None, Expect::Any),
        nowhere,
    ] {
        let error = state
            .transact(vec![write])
            .await
            .expect_err("it is no pointer");
        assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    }
    assert!(rows(&path).0.is_empty());
}
