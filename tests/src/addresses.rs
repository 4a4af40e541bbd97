//! A store that gives addresses for reading and for sending, as S3 does with signed ones, over any objects: what it refuses S3
//! refuses too.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use client::{Body, BoxError, Transport, empty, full};
use domain::{Duration, Timestamp};
use http_body_util::BodyExt;
use hyper::{Method, Request, Response};
use object_store::{ObjectStoreExt, PutMode, path::Path};
use ports::{
    Clock, Objects, Result,
    entries::{Address, Sign},
};

/// The host of its addresses.
pub const HOST: &str = "objects.test";

/// The store.
#[derive(Debug)]
pub struct Addresses {
    objects: Objects,
    clock: Arc<dyn Clock>,
    given: Mutex<Vec<Given>>,
    lost: AtomicU32,
    is_down: AtomicBool,
}

/// What an address is good for: to read, or to send so many bytes.
#[derive(Clone, Debug)]
struct Given {
    path: Path,
    until: Timestamp,
    bytes: Option<u64>,
}

impl Addresses {
    /// Addresses of some objects.
    #[must_use]
    pub fn of(objects: Objects, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            objects,
            clock,
            given: Mutex::default(),
            lost: AtomicU32::new(0),
            is_down: AtomicBool::new(false),
        })
    }

    /// Takes the next so many files, and answers nothing.
    pub fn lose(&self, answers: u32) {
        self.lost.store(answers, Ordering::SeqCst);
    }

    /// Answers everything with 503 from now on.
    pub fn go_down(&self) {
        self.is_down.store(true, Ordering::SeqCst);
    }

    fn give(&self, path: &str, bytes: Option<u64>, life: Duration) -> String {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push(Given {
            path: Path::from(path),
            until: self.clock.now() + life,
            bytes,
        });
        format!("http://{HOST}/{path}?address={}", given.len() - 1)
    }

    fn given(&self, request: &Request<Body>) -> Option<Given> {
        let number = request.uri().query()?.strip_prefix("address=")?;
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(number.parse::<usize>().ok()?).cloned()
    }

    async fn put(
        &self,
        given: &Given,
        bytes: u64,
        request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let says = |name: &str, what: &str| head.headers.get(name).is_some_and(|it| it == what);
        if !says("content-length", &bytes.to_string()) || !says("if-none-match", "*") {
            return answer(403, "SignatureDoesNotMatch");
        }
        let file = body.collect().await?.to_bytes();
        if file.len() as u64 != bytes {
            return answer(400, "IncompleteBody");
        }
        let put = self
            .objects
            .put_opts(&given.path, file.into(), PutMode::Create.into());
        match put.await {
            Ok(_) => {}
            Err(object_store::Error::AlreadyExists { .. }) => {
                return answer(412, "PreconditionFailed");
            }
            Err(error) => return Err(error.into()),
        }
        let lost = self.lost.load(Ordering::SeqCst);
        if lost > 0 {
            self.lost.store(lost - 1, Ordering::SeqCst);
            return Err("the connection broke".into());
        }
        Ok(Response::new(empty()))
    }
}

fn answer(status: u16, code: &str) -> Result<Response<Body>, BoxError> {
    let body = full(format!("<Error><Code>{code}</Code></Error>"));
    Ok(Response::builder().status(status).body(body)?)
}

#[async_trait]
impl Sign for Addresses {
    async fn sign(&self, path: &str, life: Duration) -> Result<String> {
        Ok(self.give(path, None, life))
    }

    async fn sign_upload(&self, path: &str, bytes: u64, life: Duration) -> Result<Address> {
        let headers = [
            ("content-length", bytes.to_string()),
            ("if-none-match", String::from("*")),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value));
        Ok(Address {
            href: self.give(path, Some(bytes), life),
            headers: BTreeMap::from(headers),
        })
    }
}

#[async_trait]
impl Transport for Addresses {
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if self.is_down.load(Ordering::SeqCst) {
            return answer(503, "SlowDown");
        }
        let Some(given) = self.given(&request) else {
            return answer(403, "SignatureDoesNotMatch");
        };
        if self.clock.now() >= given.until {
            return answer(403, "AccessDenied");
        }
        match (request.method().clone(), given.bytes) {
            (Method::GET, None) => {
                let got = self.objects.get(&given.path).await?;
                Ok(Response::new(full(got.bytes().await?)))
            }
            (Method::PUT, Some(bytes)) => self.put(&given, bytes, request).await,
            _ => answer(403, "SignatureDoesNotMatch"),
        }
    }
}
