//! Objects on S3.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws::objects::S3Objects;
use domain::Timestamp;
use futures::{StreamExt, TryStreamExt, stream};
use libtest_mimic::Trial;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion, path::Path,
};
use testkit::{SeededChance, SimulatedClock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Emulator, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("objects_keep_the_contract", contract),
        trial(
            "objects_under_a_prefix_keep_the_contract",
            contract_under_a_prefix,
        ),
        trial("an_update_replaces_only_what_it_names", updates),
        trial(
            "a_listing_of_several_pages_is_whole_and_can_be_deleted",
            pages,
        ),
        trial("conditions_on_reading_are_obeyed", conditions),
        trial("attributes_come_back_and_copies_keep_them", attributes),
        trial("a_signed_address_can_be_read_by_anybody", presigned),
        trial("an_abandoned_upload_leaves_nothing", abandoned),
        trial("a_missing_bucket_is_no_missing_object", missing_bucket),
    ]
}

/// Objects in a bucket of this test, under a prefix.
async fn objects(emulator: &Emulator, prefix: &str) -> S3Objects {
    let bucket = &emulator.run;
    let s3 = &emulator.clients.s3;
    let created = s3.create_bucket().bucket(bucket).send().await;
    created.expect("a bucket");
    at(emulator, prefix)
}

/// The clock stands still at the time of day, which the emulator compares with signed addresses.
fn at(emulator: &Emulator, prefix: &str) -> S3Objects {
    let url = format!("s3://{}/{prefix}", emulator.run);
    let (clock, chance) = (
        SimulatedClock::new(time_of_day()),
        SeededChance::new(rand::random()),
    );
    S3Objects::from_url(
        emulator.clients.s3.clone(),
        &url,
        Arc::new(clock),
        Arc::new(chance),
    )
    .expect("a place")
}

fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.expect("it is after 1970").as_micros();
    Timestamp(i64::try_from(micros).expect("it is before the year 292277"))
}

async fn contract(emulator: Emulator) {
    let objects = objects(&emulator, "").await;
    testkit::contract::objects(Arc::new(objects)).await;
}

async fn contract_under_a_prefix(emulator: Emulator) {
    let objects = objects(&emulator, "ware/house").await.with_calls_max(2);
    testkit::contract::objects(Arc::new(objects)).await;
    let outside = at(&emulator, "");
    let top = outside.list_with_delimiter(None).await.expect("a listing");
    assert_eq!(top.common_prefixes, [Path::from("ware")]);
    assert!(top.objects.is_empty());
}

async fn updates(emulator: Emulator) {
    let objects = objects(&emulator, "").await;
    let path = Path::from("a");
    let first = objects.put(&path, "1".into()).await.expect("it is taken");
    let update = |version: UpdateVersion| PutOptions::from(PutMode::Update(version));
    let second = objects
        .put_opts(&path, "2".into(), update(first.clone().into()))
        .await;
    second.expect("it replaces the first");
    let late = objects
        .put_opts(&path, "3".into(), update(first.clone().into()))
        .await;
    assert!(matches!(late, Err(Error::Precondition { .. })), "{late:?}");
    let gone = objects
        .put_opts(&Path::from("b"), "4".into(), update(first.into()))
        .await;
    assert!(matches!(gone, Err(Error::Precondition { .. })), "{gone:?}");
    let got = objects.get(&path).await.expect("it is there");
    assert_eq!(got.bytes().await.expect("its bytes"), "2");
}

async fn pages(emulator: Emulator) {
    const COUNT: usize = 1_005;
    let objects = objects(&emulator, "").await;
    let name = |i: usize| Path::from(format!("many/{i:04}"));
    let puts = stream::iter(0..COUNT).map(|i| {
        let objects = &objects;
        async move { objects.put(&name(i), "x".into()).await }
    });
    let put: Result<Vec<_>, _> = puts.buffer_unordered(16).try_collect().await;
    put.expect("all are taken");
    let list = || objects.list(Some(&Path::from("many")));
    let found: Vec<_> = list().try_collect().await.expect("a listing");
    let expected: Vec<_> = (0..COUNT).map(name).collect();
    let names: Vec<_> = found.into_iter().map(|object| object.location).collect();
    assert_eq!(names, expected);
    let locations = stream::iter(names.into_iter().map(Ok)).boxed();
    let deleted: Vec<_> = objects
        .delete_stream(locations)
        .try_collect()
        .await
        .expect("all go");
    assert_eq!(deleted, expected, "in the order given");
    let left: Vec<_> = list().try_collect().await.expect("a listing");
    assert!(left.is_empty());
}

async fn conditions(emulator: Emulator) {
    let objects = objects(&emulator, "").await;
    let path = Path::from("a b/ü+%.txt");
    let put = objects
        .put(&path, "0123456789".into())
        .await
        .expect("it is taken");
    let get = |options: GetOptions| objects.get_opts(&path, options);
    let same = get(GetOptions::new().with_if_match(put.e_tag.clone())).await;
    assert_eq!(
        same.expect("it matches")
            .bytes()
            .await
            .expect("its bytes")
            .len(),
        10
    );
    let same = get(GetOptions::new().with_if_none_match(put.e_tag)).await;
    assert!(matches!(same, Err(Error::NotModified { .. })), "{same:?}");
    let other = get(GetOptions::new().with_if_match(Some("\"other\""))).await;
    assert!(
        matches!(other, Err(Error::Precondition { .. })),
        "{other:?}"
    );
    let end = get(GetOptions::new().with_range(Some(object_store::GetRange::Suffix(3)))).await;
    let end = end.expect("in range");
    assert_eq!((end.range.clone(), end.meta.size), (7..10, 10));
    assert_eq!(end.bytes().await.expect("its bytes"), "789");
    let head = get(GetOptions::new().with_head(true))
        .await
        .expect("it is there");
    assert_eq!(head.meta.size, 10);
    let names: Vec<_> = objects.list(None).try_collect().await.expect("a listing");
    assert_eq!(names[0].location, path);
    let copy = Path::from("copy of ü");
    objects.copy(&path, &copy).await.expect("it is there");
    objects.head(&copy).await.expect("it is there now");
}

async fn attributes(emulator: Emulator) {
    let objects = objects(&emulator, "").await;
    let (path, copy) = (Path::from("a"), Path::from("b"));
    let attributes = Attributes::from_iter([
        (Attribute::ContentType, "application/vnd.apache.parquet"),
        (Attribute::CacheControl, "no-store"),
        (Attribute::Metadata("origin".into()), "test"),
    ]);
    let options = PutOptions {
        mode: PutMode::Create,
        attributes: attributes.clone(),
        ..PutOptions::default()
    };
    objects
        .put_opts(&path, "x".into(), options)
        .await
        .expect("it is taken");
    objects
        .copy_if_not_exists(&path, &copy)
        .await
        .expect("nothing is there");
    let mut upload = objects
        .put_multipart_opts(&Path::from("c"), attributes.clone().into())
        .await
        .expect("it begins");
    upload.put_part("x".into()).await.expect("it is taken");
    upload.complete().await.expect("it is all there");
    for path in ["a", "b", "c"] {
        let mut got = objects
            .get(&Path::from(path))
            .await
            .expect("it is there")
            .attributes;
        got.remove(&Attribute::StorageClass);
        assert_eq!(got, attributes, "{path}");
    }
}

async fn presigned(emulator: Emulator) {
    let objects = objects(&emulator, "lake").await;
    let path = Path::from("a b/c=1.parquet");
    objects
        .put(&path, "the bytes".into())
        .await
        .expect("it is taken");
    let url = objects
        .presign(&path, Duration::from_secs(60))
        .await
        .expect("it is signed");
    let place = url
        .strip_prefix("http://")
        .expect("the emulator has no TLS");
    let (host, target) = place.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(host).await.expect("it listens");
    let request = format!("GET /{target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("the bytes"),
        "{answer}"
    );
}

async fn abandoned(emulator: Emulator) {
    let objects = objects(&emulator, "").await;
    let mut upload = objects
        .put_multipart(&Path::from("a"))
        .await
        .expect("it begins");
    upload.put_part("x".into()).await.expect("it is taken");
    drop(upload);
    loop {
        let uploads = emulator.clients.s3.list_multipart_uploads();
        let uploads = uploads
            .bucket(&emulator.run)
            .send()
            .await
            .expect("a listing");
        if uploads.uploads().is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn missing_bucket(emulator: Emulator) {
    let objects = at(&emulator, "");
    let listed: Result<Vec<_>, _> = objects.list(None).try_collect().await;
    assert!(matches!(listed, Err(Error::Generic { .. })), "{listed:?}");
    let got = objects.get(&Path::from("a")).await;
    assert!(matches!(got, Err(Error::Generic { .. })), "{got:?}");
}
