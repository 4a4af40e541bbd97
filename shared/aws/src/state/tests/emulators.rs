//! The contract against emulators: each runs when its variable holds the URL of one.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::items::CATALOG;

use super::*;

/// Makes missing emulators a failure, for where they must be there.
const REQUIRED: &str = "HEADWATER_EMULATORS_REQUIRED";

/// A store over fresh tables of the emulator that `variable` names.
async fn emulated(variable: &str) -> Option<DynamoState> {
    let Ok(endpoint) = std::env::var(variable) else {
        let required = std::env::var(REQUIRED).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRED}=1, and {variable} holds no URL");
        eprintln!("ignored: {variable} holds no URL of an emulator");
        return None;
    };
    let client = Client::from_conf(configured().endpoint_url(endpoint).build());
    let run = format!("{:016x}", rand::random::<u64>());
    let tables = Tables {
        state: format!("state-{run}"),
        catalog: Some(format!("iceberg-{run}")),
    };
    let chance = Arc::new(SeededChance::new(rand::random()));
    let objects: Objects = Arc::new(InMemory::new());
    let state = DynamoState::new(
        client,
        tables,
        Some(objects),
        Arc::new(Hurried::new()),
        chance,
    );
    state.create_tables().await.expect("the tables are created");
    state.create_tables().await.expect("and are there already");
    Some(state)
}

async fn contract(variable: &str) {
    let Some(state) = emulated(variable).await else {
        return;
    };
    testkit::contract::state(Arc::new(state)).await;
}

/// What the code relies on beyond the contract.
async fn details(variable: &str) {
    let Some(state) = emulated(variable).await else {
        return;
    };
    empty_keys_and_large_values(&state).await;
    a_token_is_remembered(&state).await;
    rows_are_as_pyiceberg_reads_them(&state).await;
}

async fn empty_keys_and_large_values(state: &DynamoState) {
    let empty = Key::new("", "");
    let write = Write::put(empty.clone(), &1, Expect::Absent);
    commit(state, vec![write]).await;
    let item = state.get(&empty).await.expect("the store answers");
    assert_eq!(item.expect("it was put").value, "1");
    for half in [0..6, 6..12] {
        let writes = half.map(|i| put(&format!("{i:02}"), vec![7; 380_000], Expect::Absent));
        commit(state, writes.collect()).await;
    }
    let keys: Vec<Key> = (0..12).map(|i| key(&format!("{i:02}"))).collect();
    let items = state.get_many(&keys).await.expect("the store answers");
    assert!(
        items
            .iter()
            .flatten()
            .all(|item| item.value.len() == 380_000)
    );
    let page = state
        .query(&Span::prefix("p", "", 12))
        .await
        .expect("the store answers");
    assert_eq!(page.len(), 12);
}

/// A transaction sent twice happens once and is answered alike, also when what it wrote has been written over.
async fn a_token_is_remembered(state: &DynamoState) {
    let created = Commit::prepare(state, &[put("token", "1", Expect::Absent)])
        .await
        .expect("ready");
    assert!(created.run(state).await.expect("an answer").is_committed());
    commit(state, vec![put("token", "2", Expect::Any)]).await;
    assert!(created.run(state).await.expect("an answer").is_committed());
    assert_eq!(value(state, "token").await.as_deref(), Some("2"));
}

async fn rows_are_as_pyiceberg_reads_them(state: &DynamoState) {
    let value = serde_json::json!({"metadata_location": "s3://w/1.json"});
    let write = Write::put(Key::new(CATALOG, "gold.daily"), &value, Expect::Any);
    commit(state, vec![write.clone()]).await;
    commit(state, vec![write]).await;
    let catalog = state.catalog.as_ref().expect("there is one");
    let listed = state
        .client
        .query()
        .table_name(&*catalog.table)
        .index_name("namespace-identifier")
        .key_condition_expression("#n = :n")
        .expression_attribute_names("#n", "namespace")
        .expression_attribute_values(":n", AttributeValue::S("gold".to_owned()))
        .send()
        .await
        .expect("the index answers");
    let names: Vec<&str> = listed
        .items()
        .iter()
        .map(|row| row["identifier"].as_s().expect("text").as_str())
        .collect();
    assert_eq!(names, ["NAMESPACE", "gold.daily"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_the_contract_on_ministack() {
    contract("HEADWATER_MINISTACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_the_contract_on_dynamodb_local() {
    contract("HEADWATER_DYNAMODB_LOCAL").await;
}

#[tokio::test]
async fn ministack_behaves_as_relied_upon() {
    details("HEADWATER_MINISTACK").await;
}

#[tokio::test]
async fn dynamodb_local_behaves_as_relied_upon() {
    details("HEADWATER_DYNAMODB_LOCAL").await;
}
