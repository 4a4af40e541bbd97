//! Damaged files: errors name them, and say how to come by good ones.

use std::sync::Arc;

use datafusion::arrow::array::Int64Array;
use object_store::ObjectStoreExt;
use ports::{
    Kind,
    tables::{FilePart, Part},
};

use crate::world::{World, batch, ints};

/// A file whose end says that there is more of it than there is.
async fn cut(world: &mut World, path: &str) -> FilePart {
    let file = world.file(&batch(vec![("id", ints(0..5))]), &[]).await;
    let mut bytes = vec![0; 100];
    bytes.extend(962_u32.to_le_bytes());
    bytes.extend(b"PAR1");
    let size = bytes.len() as u64;
    world
        .objects
        .put(&path.into(), bytes.into())
        .await
        .expect("put");
    FilePart {
        path: path.to_owned(),
        size,
        ..file
    }
}

#[tokio::test]
async fn a_damaged_file_of_a_model_is_named_with_the_command() {
    let mut world = World::new();
    world
        .model_of("silver.other", &[batch(vec![("id", ints(0..5))])])
        .await;
    let path = "tables/silver/t/data/a.parquet";
    let file = cut(&mut world, path).await;
    let schema = batch(vec![("id", ints(0..5))]).schema();
    world.model("silver.t", schema, vec![file]);
    let sql = "SELECT sum(t.id) FROM silver.t AS t JOIN silver.other AS o ON t.id = o.id";
    let error = world.error(sql).await;
    let told = error.chain();
    assert_eq!(error.kind, Kind::Corrupt, "{told}");
    assert!(told.contains(path) && told.contains("EOF"), "{told}");
    assert!(told.contains("`headwater run silver.t --full`"), "{told}");
}

#[tokio::test]
async fn a_file_that_was_cut_is_damaged_and_no_silent_store() {
    let mut world = World::new();
    let rows = batch(vec![("id", ints(0..5))]);
    let file = world.file(&rows, &[]).await;
    let path = "tables/silver/t/data/a.parquet";
    let cut = b"PAR1".to_vec();
    world
        .objects
        .put(&path.into(), cut.into())
        .await
        .expect("put");
    let file = FilePart {
        path: path.to_owned(),
        size: file.size + 100_000,
        ..file
    };
    world.model("silver.t", rows.schema(), vec![file]);
    let error = world.error("SELECT sum(id) FROM silver.t").await;
    let told = error.chain();
    assert_eq!(error.kind, Kind::Corrupt, "{told}");
    assert!(told.contains(path) && told.contains("4 bytes"), "{told}");
    assert!(told.contains("`headwater run silver.t --full`"), "{told}");
}

#[tokio::test]
async fn damaged_pages_are_told_with_the_command() {
    let mut world = World::new();
    let rows = batch(vec![("id", ints(0..90))]);
    let file = world.file(&rows, &[]).await;
    let path = file.path.as_str().into();
    let bytes = world.objects.get(&path).await.expect("there");
    let mut bytes = bytes.bytes().await.expect("read").to_vec();
    bytes[4..60].fill(0xff);
    world.objects.put(&path, bytes.into()).await.expect("put");
    world.model("silver.t", rows.schema(), vec![file]);
    let error = world.error("SELECT sum(id) FROM silver.t").await;
    let told = error.chain();
    assert_eq!(error.kind, Kind::Corrupt, "{told}");
    assert!(told.contains("`headwater run silver.t --full`"), "{told}");
}

#[tokio::test]
async fn a_damaged_file_of_a_landing_table_is_named_alone() {
    let mut world = World::new();
    world
        .model_of("silver.other", &[batch(vec![("id", ints(0..5))])])
        .await;
    let path = "landing/e/data/a.parquet";
    let mut file = cut(&mut world, path).await;
    file.first_sequence = Some(1);
    let sequences = Arc::new(Int64Array::from_iter_values(1..=5));
    let schema = batch(vec![("id", ints(0..5)), ("_seq", sequences)]).schema();
    world.landing("landing.e", schema, vec![Part::File(Arc::new(file))], 5);
    let sql = "SELECT sum(e.id) FROM landing.e AS e JOIN silver.other AS o ON e.id = o.id";
    let error = world.error(sql).await;
    let told = error.chain();
    assert_eq!(error.kind, Kind::Corrupt, "{told}");
    assert!(told.contains(path), "{told}");
    assert!(!told.contains("--full"), "{told}");
}
