//! S3 that fails in the ways it does, without S3.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion, path::Path,
};
use testkit::SeededChance;

use super::{S3Objects, attributes::WRITE};
use crate::fake::{Fake, Hasty, Reply, Sent};

const META: &str = "x-amz-meta-headwater-write";

fn objects(fake: &Fake) -> S3Objects {
    let clients = fake.clients();
    let chance = Arc::new(SeededChance::new(1));
    S3Objects::from_url(clients.s3, "s3://bucket/lake", Hasty::clock(), chance).expect("a place")
}

fn path() -> Path {
    Path::from("a/b")
}

/// An answer about an object: its head.
fn head(length: usize) -> Vec<(&'static str, String)> {
    vec![
        ("content-length", length.to_string()),
        ("etag", "\"e\"".to_owned()),
        ("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
    ]
}

/// An object that `write` made.
fn written_by(write: Option<&str>) -> Reply {
    let mut headers = head(1);
    headers.extend(write.map(|write| (META, write.to_owned())));
    Reply::Answer(200, headers, String::new())
}

async fn create(objects: &S3Objects) -> Result<object_store::PutResult, Error> {
    let mode = PutMode::Create.into();
    objects.put_opts(&path(), "x".into(), mode).await
}

#[test]
fn the_header_is_the_metadata() {
    assert_eq!(META, format!("x-amz-meta-{WRITE}"));
}

/// A store of one object that loses the answers to its first `lost` writes, which took effect.
fn forgetful(mut lost: usize) -> Fake {
    let stored: Arc<Mutex<Option<String>>> = Arc::default();
    Fake::new(move |sent: &Sent| {
        let mut stored = stored.lock().expect("one test");
        match (sent.method.as_str(), stored.clone()) {
            ("PUT", Some(_)) if lost == 0 => Reply::refused(412, "PreconditionFailed"),
            ("PUT", before) => {
                if before.is_none() {
                    *stored = sent.header(META).map(str::to_owned);
                }
                lost = lost.saturating_sub(1);
                Reply::Lost
            }
            ("HEAD", Some(write)) => written_by(Some(&write)),
            ("HEAD", None) => Reply::Answer(404, Vec::new(), String::new()),
            other => panic!("unexpected {other:?}"),
        }
    })
}

#[tokio::test]
async fn bug_23_a_create_that_is_refused_by_itself_is_a_success() {
    let fake = forgetful(1);
    let created = create(&objects(&fake)).await.expect("it is our own");
    assert_eq!(created.e_tag.as_deref(), Some("\"e\""));
    assert_eq!((fake.count("PUT", ""), fake.count("HEAD", "")), (2, 1));
    let sent = &fake.sent()[0];
    assert_eq!(sent.header("if-none-match"), Some("*"));
    assert!(sent.header("x-amz-checksum-crc32").is_some(), "{sent:?}");
    assert!(sent.is("PUT", "/bucket/lake/a/b"), "{sent:?}");
}

#[tokio::test]
async fn a_create_whose_every_answer_is_lost_is_looked_for() {
    let fake = forgetful(usize::MAX);
    create(&objects(&fake)).await.expect("it is our own");
    assert_eq!((fake.count("PUT", ""), fake.count("HEAD", "")), (3, 1));
}

#[tokio::test]
async fn a_create_refused_by_somebody_elses_object_exists() {
    for there in [None, Some("somebody")] {
        let fake = Fake::new(move |sent: &Sent| match sent.method.as_str() {
            "PUT" => Reply::refused(412, "PreconditionFailed"),
            _ => written_by(there),
        });
        let refused = create(&objects(&fake)).await.expect_err("it exists");
        assert!(
            matches!(refused, Error::AlreadyExists { .. }),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(text.contains("s3://bucket/lake/a/b"), "{text}");
    }
}

#[tokio::test]
async fn an_update_of_what_is_gone_or_changed_is_a_failed_precondition() {
    for (status, code) in [(412, "PreconditionFailed"), (404, "NoSuchKey")] {
        let fake = Fake::new(move |sent: &Sent| match sent.method.as_str() {
            "PUT" => Reply::refused(status, code),
            _ => Reply::Answer(404, Vec::new(), String::new()),
        });
        let version = UpdateVersion {
            e_tag: Some("\"old\"".to_owned()),
            version: None,
        };
        let mode = PutMode::Update(version).into();
        let refused = objects(&fake).put_opts(&path(), "x".into(), mode).await;
        assert!(
            matches!(refused, Err(Error::Precondition { .. })),
            "{refused:?}"
        );
        assert_eq!(fake.sent()[0].header("if-match"), Some("\"old\""));
    }
}

#[tokio::test]
async fn a_conflicting_create_is_sent_again() {
    let mut conflicts = 2;
    let fake = Fake::new(move |_: &Sent| {
        if conflicts == 0 {
            return Reply::ok("");
        }
        conflicts -= 1;
        Reply::refused(409, "ConditionalRequestConflict")
    });
    create(&objects(&fake)).await.expect("nobody else wins");
    assert_eq!(fake.count("PUT", ""), 3);
}

#[tokio::test]
async fn slow_down_is_obeyed_and_not_reported() {
    let mut slow = 2;
    let fake = Fake::new(move |_: &Sent| {
        if slow == 0 {
            return Reply::ok("");
        }
        slow -= 1;
        Reply::refused(503, "SlowDown")
    });
    objects(&fake)
        .put(&path(), "x".into())
        .await
        .expect("it is taken");
    assert_eq!(fake.count("PUT", ""), 3);
}

#[tokio::test]
async fn errors_say_what_and_where() {
    let check = async |status, code: &'static str| {
        let fake = Fake::new(move |_: &Sent| Reply::refused(status, code));
        let error = objects(&fake).get(&path()).await.expect_err("it fails");
        let text = error.to_string();
        assert!(
            text.contains("s3://bucket/lake/a/b") && text.contains(code),
            "{text}"
        );
        error
    };
    let error = check(404, "NoSuchKey").await;
    assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    let error = check(404, "NoSuchBucket").await;
    assert!(matches!(error, Error::Generic { .. }), "{error:?}");
    let error = check(403, "AccessDenied").await;
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    let error = check(403, "SignatureDoesNotMatch").await;
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    let error = check(304, "NotModified").await;
    assert!(matches!(error, Error::NotModified { .. }), "{error:?}");
    let error = check(500, "InternalError").await;
    assert_eq!(ports::Error::from(error).kind, ports::Kind::Unavailable);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_read_on() {
    let fake = Fake::new(|sent: &Sent| match sent.header("range") {
        None => Reply::Answer(200, head(10), "01234".to_owned()),
        Some("bytes=5-9") => {
            assert_eq!(
                sent.header("if-match"),
                Some("\"e\""),
                "another object may be there"
            );
            Reply::Answer(206, head(5), "56789".to_owned())
        }
        Some(other) => panic!("unexpected range {other}"),
    });
    let got = objects(&fake).get(&path()).await.expect("it is there");
    assert_eq!(got.bytes().await.expect("it goes on"), "0123456789");
}

#[tokio::test]
async fn a_range_says_how_large_the_whole_is() {
    let fake = Fake::new(|_: &Sent| {
        let mut headers = head(3);
        headers.push(("content-range", "bytes 2-4/10".to_owned()));
        Reply::Answer(206, headers, "234".to_owned())
    });
    let options = GetOptions::new().with_range(Some(2..5_u64));
    let got = objects(&fake).get_opts(&path(), options).await;
    let got = got.expect("it is there");
    assert_eq!((got.range.clone(), got.meta.size), (2..5, 10));
    assert_eq!(got.bytes().await.expect("its bytes"), "234");
}

#[tokio::test]
async fn a_listing_goes_on_where_its_page_ended() {
    fn page(more: Option<&str>, keys: &[&str]) -> Reply {
        let mut body = String::from("<ListBucketResult>");
        if let Some(token) = more {
            body += "<IsTruncated>true</IsTruncated>";
            body += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
        }
        for key in keys {
            body += &format!("<Contents><Key>{key}</Key><Size>0</Size>");
            body += "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>";
        }
        Reply::ok(body + "</ListBucketResult>")
    }
    let fake = Fake::new(|sent: &Sent| {
        if sent.target.contains("continuation-token=next") {
            return page(None, &["lake/a/3", "lake/a//odd"]);
        }
        assert!(
            sent.target.contains("start-after=lake%2Fa%2F0"),
            "{}",
            sent.target
        );
        assert!(
            sent.target.contains("prefix=lake%2Fa%2F"),
            "{}",
            sent.target
        );
        page(Some("next"), &["lake/a/", "lake/a/1", "lake/a/2"])
    });
    let listing = objects(&fake).list_with_offset(Some(&Path::from("a")), &Path::from("a/0"));
    let found: Vec<_> = listing.try_collect().await.expect("a listing");
    let names: Vec<_> = found
        .iter()
        .map(|object| object.location.as_ref())
        .collect();
    assert_eq!(names, ["a/1", "a/2", "a/3"]);
}

#[tokio::test]
async fn what_could_not_be_deleted_is_an_error_in_its_place() {
    let mut slow = true;
    let fake = Fake::new(move |sent: &Sent| {
        let body = String::from_utf8_lossy(&sent.body);
        let mut errors = String::new();
        if std::mem::take(&mut slow) {
            errors += "<Error><Key>lake/1</Key><Code>SlowDown</Code></Error>";
        }
        if body.contains("<Key>lake/2</Key>") {
            errors += "<Error><Key>lake/2</Key><Code>AccessDenied</Code></Error>";
        }
        Reply::ok(format!("<DeleteResult>{errors}</DeleteResult>"))
    });
    let locations = ["0", "1", "2", "3"].map(|name| Ok(Path::from(name)));
    let deleted = objects(&fake).delete_stream(stream::iter(locations).boxed());
    let outcomes: Vec<_> = deleted.collect().await;
    let names: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().ok().map(Path::as_ref))
        .collect();
    assert_eq!(names, [Some("0"), Some("1"), None, Some("3")]);
    assert!(
        matches!(outcomes[2], Err(Error::PermissionDenied { .. })),
        "{:?}",
        outcomes[2]
    );
    // The second call holds only what may pass.
    let again = fake.sent().pop().expect("it was sent");
    let again = String::from_utf8(again.body).expect("text");
    assert!(
        again.contains("lake/1") && !again.contains("lake/2"),
        "{again}"
    );
}

#[tokio::test]
async fn a_call_to_delete_that_fails_fails_all_its_objects() {
    let fake = Fake::new(|_: &Sent| Reply::refused(403, "AccessDenied"));
    let locations = ["0", "1"].map(|name| Ok(Path::from(name)));
    let deleted = objects(&fake).delete_stream(stream::iter(locations).boxed());
    let outcomes: Vec<_> = deleted.collect().await;
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_err()).count(),
        2
    );
}

/// A store of uploads; `complete` makes its answers to completing.
fn uploads(mut complete: impl FnMut() -> Reply + Send + 'static) -> Fake {
    let mut write = None;
    Fake::new(move |sent: &Sent| {
        if sent.is("POST", "uploads") {
            write = sent.header(META).map(str::to_owned);
            let id = "<UploadId>u1</UploadId>";
            return Reply::ok(format!(
                "<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>"
            ));
        }
        match sent.method.as_str() {
            "PUT" => Reply::Answer(200, vec![("etag", "\"part\"".to_owned())], String::new()),
            "DELETE" => Reply::Answer(204, Vec::new(), String::new()),
            "HEAD" => written_by(write.as_deref()),
            _ => complete(),
        }
    })
}

#[tokio::test]
async fn an_upload_dropped_midway_is_aborted_when_its_last_part_is_through() {
    let fake = uploads(|| panic!("nobody completes it"));
    let mut upload = objects(&fake)
        .put_multipart(&path())
        .await
        .expect("it begins");
    upload.put_part("x".into()).await.expect("it is taken");
    let late = upload.put_part("y".into());
    drop(upload);
    late.await.expect("it is taken");
    fake.until(4).await;
    let sent = fake.sent();
    assert!(sent[2].is("PUT", "partNumber=2"), "{sent:?}");
    assert!(sent[3].is("DELETE", "uploadId=u1"), "{sent:?}");
}

#[tokio::test]
async fn an_upload_that_misses_a_part_is_refused_and_aborted() {
    let fake = uploads(|| panic!("nothing is to be completed"));
    let mut upload = objects(&fake)
        .put_multipart(&path())
        .await
        .expect("it begins");
    drop(upload.put_part("never sent".into()));
    upload.complete().await.expect_err("a part is missing");
    assert_eq!(fake.count("DELETE", "uploadId=u1"), 1);
    drop(upload);
    tokio::task::yield_now().await;
    assert_eq!(fake.count("DELETE", ""), 1, "it is aborted already");
}

#[tokio::test]
async fn completing_twice_or_with_a_lost_answer_is_one_success() {
    let mut lost = true;
    let fake = uploads(move || {
        if std::mem::take(&mut lost) {
            Reply::Lost
        } else {
            Reply::refused(404, "NoSuchUpload")
        }
    });
    let mut upload = objects(&fake)
        .put_multipart(&path())
        .await
        .expect("it begins");
    upload.put_part("x".into()).await.expect("it is taken");
    let completed = upload.complete().await.expect("it is our own object");
    assert_eq!(completed.e_tag.as_deref(), Some("\"e\""));
    let calls = fake.sent().len();
    upload.complete().await.expect("it is complete");
    drop(upload);
    tokio::task::yield_now().await;
    assert_eq!(fake.sent().len(), calls, "there is nothing left to do");
}

#[tokio::test]
async fn an_error_inside_a_success_is_looked_into() {
    let fake = uploads(|| Reply::refused(200, "InternalError"));
    let mut upload = objects(&fake)
        .put_multipart(&path())
        .await
        .expect("it begins");
    upload.put_part("x".into()).await.expect("it is taken");
    upload.complete().await.expect("it is our own object");
    assert_eq!(fake.count("HEAD", ""), 1);
}

#[tokio::test]
async fn an_empty_upload_is_an_empty_object() {
    let fake = uploads(|| Reply::ok("<CompleteMultipartUploadResult/>"));
    let mut upload = objects(&fake)
        .put_multipart(&path())
        .await
        .expect("it begins");
    upload.complete().await.expect("it is empty");
    assert_eq!(fake.count("PUT", "partNumber=1"), 1);
}

#[tokio::test]
async fn an_address_is_signed_for_a_while() {
    let fake = Fake::new(|_: &Sent| panic!("nobody is asked"));
    let objects = objects(&fake);
    let day = domain::Duration::from_secs(86_400);
    let url = objects.presign(&path(), day).await.expect("it is signed");
    assert!(url.starts_with("http://aws.test/bucket/lake/a/b?"), "{url}");
    assert!(url.contains("X-Amz-Expires=86400"), "{url}");
    assert!(url.contains("X-Amz-Date=20260101T000000Z"), "{url}");
    assert!(
        url.contains("X-Amz-SignedHeaders=host&"),
        "no header is asked of the reader: {url}"
    );
    let refused = objects
        .presign(&path(), day * 8)
        .await
        .expect_err("too long");
    assert_eq!(refused.kind, ports::Kind::Invalid);
}

#[tokio::test]
async fn an_address_for_an_upload_holds_its_length_and_that_nothing_is_there() {
    let fake = Fake::new(|_: &Sent| panic!("nobody is asked"));
    let objects = objects(&fake);
    let life = domain::Duration::from_secs(900);
    let address = objects.presign_upload(&path(), 12_345, life).await;
    let address = address.expect("it is signed");
    let url = &address.href;
    assert!(url.starts_with("http://aws.test/bucket/lake/a/b?"), "{url}");
    assert!(url.contains("X-Amz-Expires=900"), "{url}");
    let signed = "X-Amz-SignedHeaders=content-length%3Bhost%3Bif-none-match&";
    assert!(url.contains(signed), "{url}");
    let headers: Vec<_> = address.headers.iter().collect();
    let want = [("content-length", "12345"), ("if-none-match", "*")];
    let want = want.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let want: Vec<_> = want.iter().map(|(name, value)| (name, value)).collect();
    assert_eq!(headers, want, "nothing else is asked of the sender");
    for (bytes, life, kind) in [
        (1, life * 1_000, ports::Kind::Invalid),
        ((5 << 30) + 1, life, ports::Kind::TooLarge),
        (u64::MAX, life, ports::Kind::TooLarge),
    ] {
        let refused = objects.presign_upload(&path(), bytes, life).await;
        assert_eq!(refused.expect_err("refused").kind, kind, "{bytes}");
    }
}

#[test]
fn headers_that_are_not_signed_are_not_asked_of_a_sender() {
    let href = "http://aws.test/a?X-Amz-SignedHeaders=content-length%3Bhost&X-Amz-Signature=x";
    let given = [("Content-Length", "5"), ("x-amzn-trace-id", "Root=1")];
    let asked = super::of_signature(href, given.into_iter());
    let want = std::collections::BTreeMap::from([("content-length".to_owned(), "5".to_owned())]);
    assert_eq!(asked, want);
}

#[test]
fn a_place_is_a_bucket_and_a_prefix() {
    let fake = Fake::new(|_: &Sent| panic!("nobody is asked"));
    let open = |url| {
        let chance = Arc::new(SeededChance::new(1));
        S3Objects::from_url(fake.clients().s3, url, Hasty::clock(), chance)
    };
    for (url, name) in [
        ("s3://bucket", "s3://bucket/"),
        ("s3://bucket/", "s3://bucket/"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
    ] {
        assert_eq!(open(url).expect("a place").to_string(), name);
    }
    for url in ["bucket", "s3://", "s3:///a", "s3://bucket/a//b"] {
        let refused = open(url).expect_err(url);
        assert_eq!(refused.kind, ports::Kind::Invalid);
    }
}

#[test]
fn a_payload_of_one_piece_is_not_copied() {
    let bytes = bytes::Bytes::from_static(b"one");
    let joined = super::put::joined(PutPayload::from(bytes.clone()));
    assert_eq!(joined.as_ptr(), bytes.as_ptr());
    let many: PutPayload = [bytes.clone(), bytes].into_iter().collect();
    assert_eq!(super::put::joined(many), "oneone");
}
