//! Files.

use std::{io::Write, path::PathBuf};

use ports::Kind;

use super::*;
use crate::ingest::{FileLoaded, Progress, file};

fn table() -> TableName {
    TableName::landing("flights").expect("a name")
}

fn write(folder: &tempfile::TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::File::create(&path)
        .and_then(|mut file| file.write_all(content))
        .expect("room");
    path
}

async fn load(name: &str, content: &str) -> (ports::Result<FileLoaded>, Arc<Remembered>) {
    let (world, landing, _) = world();
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(&folder, name, content.as_bytes());
    (file(&world, &table(), &path, None, &|_| {}).await, landing)
}

/// A file for a new table that a model reads as webhook events has to have what they have.
#[tokio::test]
async fn a_new_table_that_is_read_as_webhook_events_is_none_of_a_files_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(&folder, "f.ndjson", b"{\"id\":1}");
    let whole = write(&folder, "g.ndjson", b"{\"payload\":\"{}\"}");
    for (sql, is_read) in [
        (
            "SELECT (payload->>'id')::BIGINT AS id FROM landing.flights",
            true,
        ),
        ("SELECT PAYLOAD AS payload FROM landing.flights", true),
        ("SELECT id AS payload, payloads FROM landing.flights", false),
        ("SELECT payload FROM landing.other", false),
    ] {
        let (mut world, landing, _) = world();
        let model = ("transform/bronze/flights.sql".to_owned(), sql.to_owned());
        let (project, findings) = domain::Project::load(&[model], None);
        assert!(project.models.len() == 1, "{findings:?}");
        world.project = Arc::new(project);
        let loaded = file(&world, &table(), &path, None, &|_| {}).await;
        match is_read {
            true => {
                let told = loaded.expect_err("nothing is read of it").chain();
                assert!(
                    told.contains("transform/bronze/flights.sql reads landing.flights"),
                    "{told}"
                );
                assert!(told.contains("/api/ingest/webhook/flights"), "{told}");
                assert!(landing.appends("landing.flights").is_empty());
                let loaded = file(&world, &table(), &whole, None, &|_| {}).await;
                assert_eq!(loaded.expect("it has one").rows, 1);
            }
            false => assert_eq!(loaded.expect("loaded").rows, 1, "{sql}"),
        }
    }
}

fn kinds(landing: &Remembered) -> Vec<(String, String)> {
    let appends = landing.appends("landing.flights");
    let schema = appends[0].rows.schema();
    let fields = schema.fields().iter();
    fields
        .map(|f| {
            (
                f.name().clone(),
                ports::columns::kind(f.data_type()).expect("a landing type"),
            )
        })
        .collect()
}

#[tokio::test]
async fn csv_types_are_inferred_and_na_is_null() {
    let csv = "year,dep_time,delay,tail,at,on,Ok,zip\r\n\
               2013,NA,1.5,N1,2013-01-01T10:00:00Z,2013-01-01,TRUE,01234\r\n\
               2013,517,,\"\",2013-01-01 10:00:00,2013-01-02,false,99\r\n\
               2013,5.5,2,N2,2013-01-01T10:00:00Z,2013-01-03,true,1\r\n";
    let (loaded, landing) = load("f.csv", csv).await;
    let loaded = loaded.expect("loaded");
    assert_eq!((loaded.rows, loaded.quarantined), (3, 0));
    let expected = [
        ("year", "BIGINT"),
        ("dep_time", "DOUBLE"),
        ("delay", "DOUBLE"),
        ("tail", "VARCHAR"),
        ("at", "TIMESTAMP"),
        ("on", "DATE"),
        ("Ok", "BOOLEAN"),
        ("zip", "VARCHAR"),
    ];
    assert_eq!(
        kinds(&landing),
        expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()))
    );
    assert_eq!(
        landing.column("landing.flights", "dep_time"),
        ["<null>", "517.0", "5.5"]
    );
    assert_eq!(landing.column("landing.flights", "tail"), ["N1", "", "N2"]);
    assert_eq!(
        landing.column("landing.flights", "zip"),
        ["01234", "99", "1"]
    );
}

#[tokio::test]
async fn ndjson_keeps_names_numbers_and_nested_values() {
    let text = "{\"userId\":1,\"A\":\"x\",\"B\":\"y\",\"b\":\"z\"}\n\
                {\"userId\":9007199254740993,\"u\":18446744073709551615,\"n\":-9223372036854775808,\
                \"big\":123456789012345678901234567890,\"d\":0.1000000000000000055,\"o\":{\"k\": [1,2]}}\n";
    let (loaded, landing) = load("f.ndjson", text).await;
    assert_eq!(loaded.expect("loaded").rows, 2);
    let expected = [
        ("userId", "BIGINT"),
        ("A", "VARCHAR"),
        ("B", "VARCHAR"),
        ("b", "VARCHAR"),
        ("u", "DECIMAL(38,0)"),
        ("n", "BIGINT"),
        ("big", "DECIMAL(38,0)"),
        ("d", "VARCHAR"),
        ("o", "VARCHAR"),
    ];
    assert_eq!(
        kinds(&landing),
        expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()))
    );
    let second = |name| landing.column("landing.flights", name)[1].clone();
    assert_eq!(second("userId"), "9007199254740993");
    assert_eq!(second("u"), "18446744073709551615");
    assert_eq!(second("big"), "123456789012345678901234567890");
    assert_eq!(second("d"), "0.1000000000000000055");
    assert_eq!(second("o"), "{\"k\": [1,2]}");
    assert_eq!(landing.column("landing.flights", "b"), ["z", "<null>"]);
}

/// As it is for `payload->>'k'` and the typed columns of webhooks.
#[tokio::test]
async fn of_a_key_that_is_there_twice_the_first_counts() {
    let lines = "\u{feff}{\"k\":1,\"v\":\"a\",\"k\":\"x\"}\n{\"v\":\"b\",\"v\":null,\"k\":2}\n";
    let (loaded, landing) = load("f.ndjson", lines).await;
    assert_eq!(loaded.expect("loaded").rows, 2);
    assert_eq!(landing.column("landing.flights", "k"), ["1", "2"]);
    assert_eq!(landing.column("landing.flights", "v"), ["a", "b"]);
    let k = kinds(&landing).into_iter().find(|(name, _)| name == "k");
    assert_eq!(k, Some(("k".into(), "BIGINT".into())));
}

#[tokio::test]
async fn a_late_misfit_is_quarantined_with_its_line() {
    let mut csv = String::from("n,note\n");
    (0..10_000).for_each(|n| csv.push_str(&format!("{n},\"a\nb\"\n")));
    csv.push_str("x,y\n1\n2,z\n");
    let (loaded, landing) = load("f.csv", &csv).await;
    let loaded = loaded.expect("loaded");
    assert_eq!((loaded.rows, loaded.quarantined), (10_001, 2));
    assert_eq!((loaded.sequence_from, loaded.sequence_to), (1, 10_001));
    assert_eq!(
        landing.column("quarantine.flights", "payload"),
        ["x,y", "1"]
    );
    assert_eq!(
        landing.column("quarantine.flights", "reason"),
        [
            "f.csv:20002: column `n`: \"x\" is no BIGINT",
            "f.csv:20003: 1 fields where the header has 2"
        ]
    );
}

#[tokio::test]
async fn a_large_file_comes_in_commits_with_progress() {
    let (world, landing, queue) = world();
    let folder = tempfile::tempdir().expect("a folder");
    let mut text: String = (0..150_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    text.push_str("{\"late\":1}");
    let path = write(&folder, "f.jsonl", text.as_bytes());
    let seen = Mutex::new(Vec::new());
    let progress = |now: Progress| seen.lock().expect("not poisoned").push(now);
    let loaded = file(&world, &table(), &path, None, &progress)
        .await
        .expect("loaded");
    assert_eq!((loaded.rows, loaded.sequence_to), (150_001, 150_001));
    let appends = landing.appends("landing.flights");
    let rows: Vec<_> = appends
        .iter()
        .map(|append| append.rows.num_rows())
        .collect();
    assert_eq!(rows, [65_536, 65_536, 18_929]);
    assert!(
        appends[2].rows.column_by_name("late").is_some(),
        "a column that comes late is added"
    );
    let seen = seen.into_inner().expect("not poisoned");
    let last = seen.last().expect("progress");
    assert_eq!((last.bytes_done, last.rows), (last.bytes_total, 150_001));
    assert_eq!(queue.take().len(), 3);
}

#[tokio::test]
async fn types_of_the_table_come_first() {
    let (world, landing, _) = world();
    let head = domain::items::Head {
        rebuilt: 0,
        position: Position::default(),
        rows: 0,
        advanced_at: Timestamp(0),
        columns: vec![column("n", "DOUBLE"), column("d", "DECIMAL(9,2)")],
        snapshot: None,
    };
    let key = ports::state::Key::new(domain::items::table(&table()), domain::items::HEAD);
    let write_head = ports::state::Write::put(key, &head, ports::state::Expect::Absent);
    world
        .state
        .transact(vec![write_head])
        .await
        .expect("memory");
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(&folder, "f.csv", b"n,d\n1,1.5\n2,1.555\n");
    let loaded = file(&world, &table(), &path, None, &|_| {})
        .await
        .expect("loaded");
    assert_eq!((loaded.rows, loaded.quarantined), (1, 1));
    assert_eq!(
        kinds(&landing),
        [
            ("n".into(), "DOUBLE".into()),
            ("d".into(), "DECIMAL(9,2)".into())
        ]
    );
}

#[tokio::test]
async fn a_parquet_file_is_loaded_as_it_is() {
    let (world, landing, _) = world();
    let folder = tempfile::tempdir().expect("a folder");
    let numbers: arrow::array::ArrayRef =
        Arc::new(arrow::array::Int64Array::from_iter_values(0..100_000));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).expect("a batch");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    let path = write(&folder, "f.parquet", &writer.into_inner().expect("closed"));
    let loaded = file(&world, &table(), &path, None, &|_| {})
        .await
        .expect("loaded");
    assert_eq!(
        (loaded.rows, landing.appends("landing.flights").len()),
        (100_000, 2)
    );
}

#[tokio::test]
async fn a_file_that_is_another_kind_of_file_is_refused() {
    for (name, content, why) in [
        ("f.txt", "x", "ends in none of"),
        ("f.csv", "a,a\n1,2\n", "column `a` is there twice"),
        ("f.csv", "a,_SEQ\n1,2\n", "the name of the sequence"),
        ("f.csv", "a\n\"1\n2\n", "line 2: a quoted field never ends"),
        ("f.json", "[{\n\"a\":1}]", "line 1"),
        ("f.ndjson", "nope\n", "line 1: expected"),
        ("f.parquet", "PAR1", "f.parquet"),
    ] {
        let (loaded, landing) = load(name, content).await;
        let error = loaded.expect_err(name);
        assert_eq!(error.kind, Kind::Invalid, "{name}");
        assert!(error.chain().contains(why), "{name}: {}", error.chain());
        assert!(landing.appends("landing.flights").is_empty());
    }
    let (world, ..) = world();
    let missing = file(&world, &table(), "/nowhere/f.csv".as_ref(), None, &|_| {}).await;
    assert_eq!(missing.expect_err("no file").kind, Kind::NotFound);
}

#[tokio::test]
async fn an_empty_file_has_no_rows() {
    for (name, content) in [("f.csv", ""), ("f.csv", "a,b\n"), ("f.ndjson", "\n\n")] {
        let (loaded, _) = load(name, content).await;
        assert_eq!(loaded.expect("loaded"), FileLoaded::default());
    }
}

/// `FLIGHTS=flights.csv cargo test --release -p engine -- --ignored --nocapture flights_speed`
#[tokio::test]
#[ignore = "a measurement of a file that is not in the repository"]
async fn flights_speed() {
    let (world, landing, _) = world();
    let path = PathBuf::from(std::env::var_os("FLIGHTS").expect("FLIGHTS names the file"));
    let start = std::time::Instant::now();
    let loaded = file(&world, &table(), &path, None, &|_| {})
        .await
        .expect("loaded");
    println!("{loaded:?} in {:?}; {:?}", start.elapsed(), kinds(&landing));
    for reason in landing
        .column("quarantine.flights", "reason")
        .iter()
        .take(5)
    {
        println!("{reason}");
    }
}
