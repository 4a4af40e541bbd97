//! Files that other writers left.

use bytes::Bytes;
use futures::future::join_all;
use object_store::{ObjectStoreExt, path::Path};
use ports::{Kind, Landing, landing::Advanced};

use super::*;
use crate::landing::incoming::{Incoming, take};

impl Case {
    async fn leave(&self, name: &str, content: impl Into<Bytes>) {
        let path = Path::from(format!("landing/orders/incoming/{name}"));
        self.objects
            .put(&path, content.into().into())
            .await
            .expect("room");
    }

    async fn advance(&self) -> ports::Result<Option<Advanced>> {
        drive(&self.clock, self.lake.advance(&table(), self.clock.now())).await
    }

    async fn column(&self, name: &str) -> Vec<Option<String>> {
        let rows = read(self.state.as_ref(), &self.objects, name).await;
        rows.into_iter().map(|(_, text)| text).collect()
    }
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut writer =
        ::parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("a writer");
    writer.write(batch).expect("written");
    writer.into_inner().expect("closed")
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[tokio::test]
async fn files_are_committed_in_key_order_and_each_once() {
    let case = Case::new();
    assert_eq!(case.advance().await.expect("nothing there"), None);
    case.leave("c.csv", "n,Name\n5,five\n6,NA\n").await;
    case.leave("a.ndjson", "{\"n\":1}\n\n{\"n\":2,\"o\":{\"x\":[1]}}")
        .await;
    case.leave("b.parquet", parquet(&numbers("n", &[3, 4])))
        .await;
    case.leave("_SUCCESS", "").await;
    let advanced = case.advance().await.expect("committed").expect("a table");
    assert_eq!(
        (
            advanced.rows,
            advanced.from,
            advanced.to,
            advanced.position.commits
        ),
        (6, 0, 6, 3)
    );
    assert_eq!(
        case.column("n").await,
        some(&["1", "2", "3", "4", "5", "6"])
    );
    assert_eq!(case.column("o").await[1].as_deref(), Some("{\"x\":[1]}"));
    assert_eq!(
        case.column("Name").await[4..],
        [Some("five".to_owned()), None]
    );

    let again = case.advance().await.expect("nothing new").expect("a table");
    assert_eq!((again.rows, again.to), (0, 6));
    case.leave("c.csv", "n,Name\n7,seven\n").await;
    assert_eq!(
        case.advance().await.expect("another file").map(|a| a.rows),
        Some(1)
    );
    case.leave("c.csv", "n,Name\n7,seven\n").await;
    assert_eq!(
        case.advance()
            .await
            .expect("the same again")
            .map(|a| a.rows),
        Some(0)
    );
}

#[tokio::test]
async fn concurrent_advances_commit_each_file_once() {
    let case = Case::new();
    for n in 0..8 {
        case.leave(&format!("{n}.csv"), format!("n\n{n}\n")).await;
        case.leave(&format!("{n}.parquet"), parquet(&numbers("n", &[n])))
            .await;
    }
    let other = lake(case.state.clone(), &case.objects, &case.clock, 9);
    let (table, now) = (table(), Timestamp(0));
    let advances = [&case.lake, &other, &case.lake].map(|lake| lake.advance(&table, now));
    for advanced in drive(&case.clock, join_all(advances)).await {
        // One may have read a file while another deleted it.
        assert!(advanced.is_ok_and(|a| a.is_some()));
    }
    let expected: Vec<_> = (0..8)
        .flat_map(|n| [n, n])
        .map(|n: i64| Some(n.to_string()))
        .collect();
    assert_eq!(case.column("n").await, expected);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_with_its_line_and_stops_what_follows() {
    let case = Case::new();
    case.leave("1.ndjson", "{\"n\":1}\n").await;
    case.leave("2.ndjson", "{\"n\":2}\n{\"n\":tru}\n").await;
    case.leave("3.ndjson", "{\"n\":3}\n").await;
    for _ in 0..2 {
        let error = case.advance().await.expect_err("a bad file");
        assert_eq!(error.kind, Kind::Invalid);
        let chain = error.chain();
        assert!(
            chain.contains("incoming/2.ndjson") && chain.contains("line 2"),
            "{chain}"
        );
    }
    assert_eq!(case.column("n").await, some(&["1"]));
    for (name, content) in [
        ("2.txt", "x"),
        ("2.parquet", "PAR1"),
        ("2.csv", "n\n\"1"),
        ("2.csv", "n\nx\n"),
    ] {
        let case = Case::new();
        case.leave("1.csv", "n\n1\n").await;
        case.leave(name, content).await;
        assert_eq!(
            case.advance().await.expect_err("a bad file").kind,
            Kind::Invalid,
            "{name}"
        );
        assert_eq!(case.column("n").await, some(&["1"]));
    }
}

#[tokio::test]
async fn a_parquet_file_is_committed_where_it_lies_unless_its_types_are_others() {
    let case = Case::new();
    case.leave("a.parquet", parquet(&numbers("n", &[1]))).await;
    let small: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![u64::MAX]));
    case.leave(
        "b.parquet",
        parquet(&RecordBatch::try_from_iter([("big", small)]).expect("a batch")),
    )
    .await;
    case.advance().await.expect("committed");
    let Some(Pin::Landing { schema, .. }) =
        pin(case.state.as_ref(), &table()).await.expect("a head")
    else {
        panic!("a landing table");
    };
    let parts = scan(case.state.as_ref(), &case.objects, &table(), &schema, 0, 2)
        .await
        .expect("a scan")
        .0
        .parts;
    let paths: Vec<_> = parts
        .iter()
        .map(|part| match part {
            Part::File(file) => file.path.split('/').nth(2).expect("a folder").to_owned(),
            Part::Memory(_) => panic!("files"),
        })
        .collect();
    assert_eq!(paths, ["incoming", "data"]);
    assert_eq!(case.column("big").await, [None, Some(u64::MAX.to_string())]);
    case.leave("a.parquet", parquet(&numbers("n", &[1, 2, 3])))
        .await;
    let chain = case.advance().await.expect_err("changed").chain();
    assert!(chain.contains("changed since"), "{chain}");
}

#[tokio::test]
async fn a_long_file_is_copied_whole_with_columns_that_come_late() {
    let case = Case::new();
    let mut text: String = (0..150_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    text.push_str("{\"n\":150000,\"late\":\"x\"}\n");
    case.leave("a.ndjson", text).await;
    let advanced = case.advance().await.expect("committed").expect("a table");
    assert_eq!((advanced.rows, advanced.position.commits), (150_001, 1));
    let late = case.column("late").await;
    assert_eq!(late.iter().flatten().count(), 1);
    assert_eq!(late[150_000].as_deref(), Some("x"));
}

#[tokio::test]
async fn a_file_that_another_advance_took_since_the_listing_is_passed_over() {
    let case = Case::new();
    let gone = Incoming {
        path: Path::from("landing/orders/incoming/gone.csv"),
        size: 4,
        name: "gone.csv".into(),
        origin_at: Timestamp(0),
    };
    let lane = case.lake.lane(&table());
    let taken = take(&case.lake.world, &lane, &gone, None).await;
    assert_eq!(taken.expect("no failure"), None);
}
