//! The contract of object storage, as far as this project relies on it.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, Result,
    path::Path,
};
use ports::Objects;

use super::checks;

/// The contract of [`ports::Objects`].
///
/// # Panics
/// When it is broken.
pub async fn objects(objects: Objects) {
    let objects = &objects;
    checks!(
        "objects",
        objects,
        [
            what_was_put_is_got,
            a_missing_object_is_not_found,
            a_put_replaces_the_whole_object,
            creating_what_exists_is_refused,
            concurrent_creators_have_one_winner,
            ranges_are_read_exactly,
            a_listing_holds_what_is_under_a_prefix,
            a_listing_continues_after_an_offset,
            a_delimited_listing_stops_at_folders,
            a_deleted_object_is_gone,
            a_renamed_object_moves,
            a_copied_object_is_in_both_places,
            an_upload_in_parts_appears_whole_and_only_when_complete,
            an_aborted_upload_leaves_nothing,
            a_dropped_upload_leaves_nothing,
        ]
    );
}

async fn put(store: &Objects, path: &Path, value: &'static str) {
    store
        .put(path, value.into())
        .await
        .expect("the store takes an object");
}

async fn read(store: &Objects, path: &Path) -> Result<Bytes> {
    store.get(path).await?.bytes().await
}

async fn list(store: &Objects, prefix: &str) -> Vec<String> {
    let found: Vec<_> = store
        .list(Some(&Path::from(prefix)))
        .try_collect()
        .await
        .expect("a listing");
    let mut names: Vec<String> = found
        .into_iter()
        .map(|object| object.location.to_string())
        .collect();
    names.sort();
    names
}

async fn what_was_put_is_got(store: &Objects, place: &str) {
    let large = Bytes::from(vec![7_u8; 3 << 20]);
    for (name, value) in [
        ("deep/in/folders", Bytes::from_static(b"x\0y")),
        ("empty", Bytes::new()),
        ("large", large),
    ] {
        let path = Path::from(format!("{place}/{name}"));
        store
            .put(&path, value.clone().into())
            .await
            .expect("the store takes an object");
        assert_eq!(
            read(store, &path).await.expect("it is there"),
            value,
            "{name}"
        );
        let known = store.head(&path).await.expect("it is there");
        assert_eq!((known.size, known.location), (value.len() as u64, path));
    }
}

async fn a_missing_object_is_not_found(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/missing"));
    assert!(matches!(
        store.get(&path).await,
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        store.head(&path).await,
        Err(Error::NotFound { .. })
    ));
    assert!(list(store, place).await.is_empty());
}

async fn a_put_replaces_the_whole_object(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    put(store, &path, "long before").await;
    put(store, &path, "short").await;
    assert_eq!(read(store, &path).await.expect("it is there"), "short");
}

async fn create(store: &Objects, path: &Path, value: String) -> Result<()> {
    let options = PutOptions {
        mode: PutMode::Create,
        ..PutOptions::default()
    };
    store
        .put_opts(path, value.into(), options)
        .await
        .map(|_| ())
}

async fn creating_what_exists_is_refused(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    create(store, &path, "first".to_owned())
        .await
        .expect("nothing is there yet");
    let refused = create(store, &path, "second".to_owned())
        .await
        .expect_err("it exists");
    assert!(
        matches!(refused, Error::AlreadyExists { .. }),
        "{refused:?}"
    );
    assert_eq!(ports::Error::from(refused).kind, ports::Kind::Conflict);
    assert_eq!(read(store, &path).await.expect("it is there"), "first");
    assert_eq!(
        list(store, place).await.len(),
        1,
        "the loser left something"
    );
}

async fn concurrent_creators_have_one_winner(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    let creators = (0..8).map(|creator| create(store, &path, format!("{creator}")));
    let results = futures::future::join_all(creators).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let winner = results.iter().position(Result::is_ok).expect("one wins");
    assert_eq!(
        read(store, &path).await.expect("it is there"),
        winner.to_string()
    );
}

async fn ranges_are_read_exactly(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    put(store, &path, "0123456789").await;
    assert_eq!(store.get_range(&path, 2..5).await.expect("in range"), "234");
    let ranges = store
        .get_ranges(&path, &[0..1, 8..10, 3..4])
        .await
        .expect("in range");
    assert_eq!(ranges, ["0", "89", "3"]);
    assert!(
        store.get_range(&path, 20..30).await.is_err(),
        "beyond the end"
    );
}

async fn a_listing_holds_what_is_under_a_prefix(store: &Objects, place: &str) {
    for name in ["a/1", "a/2", "a/b/3", "ab/4"] {
        put(store, &Path::from(format!("{place}/{name}")), "x").await;
    }
    let expected = ["a/1", "a/2", "a/b/3"].map(|name| format!("{place}/{name}"));
    assert_eq!(list(store, &format!("{place}/a")).await, expected);
    assert_eq!(list(store, place).await.len(), 4);
}

async fn a_listing_continues_after_an_offset(store: &Objects, place: &str) {
    for name in ["1", "2", "3"] {
        put(store, &Path::from(format!("{place}/{name}")), "x").await;
    }
    let offset = Path::from(format!("{place}/1"));
    let found: Vec<_> = store
        .list_with_offset(Some(&Path::from(place)), &offset)
        .try_collect()
        .await
        .expect("a listing");
    let mut names: Vec<_> = found
        .iter()
        .map(|object| object.location.filename())
        .collect();
    names.sort();
    assert_eq!(names, [Some("2"), Some("3")]);
}

async fn a_delimited_listing_stops_at_folders(store: &Objects, place: &str) {
    for name in ["1", "a/2", "b/c/3"] {
        put(store, &Path::from(format!("{place}/{name}")), "x").await;
    }
    let found = store
        .list_with_delimiter(Some(&Path::from(place)))
        .await
        .expect("a listing");
    let objects: Vec<_> = found
        .objects
        .iter()
        .map(|object| object.location.filename())
        .collect();
    assert_eq!(objects, [Some("1")]);
    let mut folders: Vec<_> = found.common_prefixes.iter().map(Path::to_string).collect();
    folders.sort();
    assert_eq!(folders, [format!("{place}/a"), format!("{place}/b")]);
}

async fn a_deleted_object_is_gone(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    put(store, &path, "x").await;
    store.delete(&path).await.expect("it is there");
    assert!(matches!(
        read(store, &path).await,
        Err(Error::NotFound { .. })
    ));
    assert!(list(store, place).await.is_empty());
}

async fn a_renamed_object_moves(store: &Objects, place: &str) {
    let (from, to) = (
        Path::from(format!("{place}/a")),
        Path::from(format!("{place}/new/b")),
    );
    put(store, &from, "x").await;
    store.rename(&from, &to).await.expect("it is there");
    assert_eq!(read(store, &to).await.expect("it is there now"), "x");
    assert!(read(store, &from).await.is_err());
    let missing = store.rename(&from, &to).await;
    assert!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
}

async fn a_copied_object_is_in_both_places(store: &Objects, place: &str) {
    let (from, to) = (
        Path::from(format!("{place}/a")),
        Path::from(format!("{place}/new/b")),
    );
    put(store, &from, "x").await;
    store.copy(&from, &to).await.expect("it is there");
    put(store, &from, "y").await;
    assert_eq!(read(store, &to).await.expect("it was copied"), "x");
    let refused = store.copy_if_not_exists(&from, &to).await;
    assert!(
        matches!(refused, Err(Error::AlreadyExists { .. })),
        "{refused:?}"
    );
}

/// Begins an upload and sends `parts`, all at once.
async fn upload(store: &Objects, path: &Path, parts: &[Bytes]) -> Box<dyn MultipartUpload> {
    let mut upload = store.put_multipart(path).await.expect("an upload begins");
    let sent: Vec<_> = parts
        .iter()
        .map(|part| upload.put_part(PutPayload::from(part.clone())))
        .collect();
    for part in futures::future::join_all(sent).await {
        part.expect("a part is taken");
    }
    upload
}

async fn an_upload_in_parts_appears_whole_and_only_when_complete(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/deep/a"));
    // All but the last part as large as the smallest that object stores take.
    let parts = [
        Bytes::from(vec![1; 5 << 20]),
        Bytes::from(vec![2; 5 << 20]),
        Bytes::from_static(b"end"),
    ];
    let mut upload = upload(store, &path, &parts).await;
    assert!(
        list(store, place).await.is_empty(),
        "an unfinished upload is seen"
    );
    upload.complete().await.expect("all parts are there");
    assert_eq!(
        read(store, &path).await.expect("it is complete"),
        parts.concat()
    );
    assert_eq!(list(store, place).await.len(), 1);
}

async fn an_aborted_upload_leaves_nothing(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    let mut upload = upload(store, &path, &[Bytes::from_static(b"x")]).await;
    upload.abort().await.expect("it can be aborted");
    assert!(list(store, place).await.is_empty());
    assert!(read(store, &path).await.is_err());
}

async fn a_dropped_upload_leaves_nothing(store: &Objects, place: &str) {
    let path = Path::from(format!("{place}/a"));
    drop(upload(store, &path, &[Bytes::from_static(b"x")]).await);
    assert!(list(store, place).await.is_empty());
    assert!(read(store, &path).await.is_err());
}
