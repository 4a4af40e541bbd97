//! What may be opened, and what is left alone.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::*;

/// Every file of a folder and its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let paths = files.map(|entry| entry.expect("an entry").path());
    paths
        .map(|path| (path.clone(), std::fs::read(path).expect("a file")))
        .collect()
}

/// Checks that a file is refused in plain words and that nothing around it changes.
fn check_refused(folder: &Path, name: &str) {
    let before = contents(folder);
    let error = SqliteState::open(&folder.join(name)).expect_err("it is something else");
    assert_eq!(error.kind, Kind::Corrupt, "{name}");
    let chain = error.chain();
    assert!(
        chain.contains(name) && chain.contains("not a Headwater state file"),
        "{chain}"
    );
    assert!(contents(folder) == before, "{name} was touched");
}

#[test]
fn files_of_others_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    };
    write("text", b"models:\n  - one\n");
    write(
        "long-text",
        "all work and no play\n".repeat(1_000).as_bytes(),
    );
    write("blank", &[0; 8_192]);
    write("cut-short", b"SQLite format 3\0");
    for name in ["text", "long-text", "blank", "cut-short"] {
        check_refused(folder.path(), name);
    }
}

#[test]
fn a_database_of_another_application_is_refused_and_left_as_it_is() {
    for mode in ["delete", "wal"] {
        let folder = tempfile::tempdir().expect("a folder");
        let connection = Connection::open(folder.path().join("other.db")).expect("a database");
        connection
            .pragma_update(None, "journal_mode", mode)
            .expect("a mode");
        connection
            .execute_batch("CREATE TABLE items (a); INSERT INTO items VALUES (1)")
            .expect("rows");
        check_refused(folder.path(), "other.db");
        drop(connection);
        check_refused(folder.path(), "other.db");
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_state_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("empty.db");
    std::fs::write(&path, []).expect("a file");
    let state = open(&path);
    commit(&state, vec![put("a", "x", Expect::Absent)]).await;
    assert_eq!(value(&open(&path), "a").await.expect("it is there"), "x");
}

#[test]
fn a_folder_is_no_state_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = SqliteState::open(folder.path()).expect_err("it is a folder");
    assert_eq!(error.kind, Kind::Invalid);
    assert!(
        error.chain().ends_with("it is a folder"),
        "{}",
        error.chain()
    );
}

#[test]
fn a_file_where_the_folder_should_be_is_unavailable() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let error = SqliteState::open(&file.path().join("state.db")).expect_err("no folder");
    assert_eq!(error.kind, Kind::Unavailable);
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let (_folder, path) = folder();
    drop(open(&path));
    let connection = Connection::open(&path).expect("a database");
    connection
        .pragma_update(None, "user_version", 2)
        .expect("a version");
    drop(connection);
    let error = SqliteState::open(&path).expect_err("it is newer");
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.chain().contains("version 2"), "{}", error.chain());
}

#[test]
fn many_may_create_one_file_at_once() {
    for _ in 0..10 {
        let (_folder, path) = folder();
        std::thread::scope(|scope| {
            let openers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| SqliteState::open(&path).map(drop)))
                .collect();
            for opener in openers {
                opener.join().expect("no panic").expect("it opens");
            }
        });
    }
}

#[tokio::test]
async fn a_damaged_file_is_corrupt_and_ends_nothing() {
    let (folder, path) = folder();
    let state = open(&path);
    for index in 0..50 {
        commit(
            &state,
            vec![put(&format!("{index:02}"), vec![1; 4_000], Expect::Absent)],
        )
        .await;
    }
    // A copy without a log beside it, so that what is read is what was damaged.
    let copy = folder.path().join("copy.db");
    let connection = Connection::open(&path).expect("a database");
    let into = copy.to_str().expect("a plain path");
    connection
        .execute("VACUUM INTO ?1", [into])
        .expect("a copy");
    let mut bytes = std::fs::read(&copy).expect("a file");
    bytes[4_096..].fill(0x5a);
    std::fs::write(&copy, bytes).expect("a file");
    let outcome = match SqliteState::open(&copy) {
        Ok(state) => state.query(&Span::prefix("p", "", 100)).await.map(drop),
        Err(error) => Err(error),
    };
    assert_eq!(outcome.expect_err("it is damaged").kind, Kind::Corrupt);
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_written_to_a_file_that_is_no_longer_at_its_path() {
    for name in ["headwater.db", "headwater.db-wal"] {
        let (_folder, path) = folder();
        let state = open(&path);
        commit(&state, vec![put("a", "x", Expect::Absent)]).await;
        let (file, away) = (path.with_file_name(name), path.with_file_name("away"));
        std::fs::rename(&file, &away).expect("it moves");
        for replaced in [false, true] {
            if replaced {
                std::fs::write(&file, []).expect("a file");
            }
            let writes = vec![put("b", "y", Expect::Absent)];
            let error = state.transact(writes).await.expect_err("it is away");
            assert_eq!(error.kind, Kind::Unavailable, "{name}");
            let chain = error.chain();
            assert!(chain.contains(name) && chain.contains("moved"), "{chain}");
            let error = state.change_counter().await.expect_err("it is away");
            assert_eq!(error.kind, Kind::Unavailable, "{name}");
        }
        std::fs::rename(&away, &file).expect("it is back");
        commit(&state, vec![put("b", "y", Expect::Absent)]).await;
        drop(state);
        let value = value(&open(&path), "b").await;
        assert_eq!(value.expect("it is there"), "y", "{name}");
    }
}
