//! A client's way to the routes without a socket, which can be cut, silenced and counted.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::Router;
use client::{Body, BoxError, Client, Http, Settings, Transport};
use http_body_util::BodyExt;
use hyper::{Method, Request, Response};
use tower::ServiceExt;

use crate::addresses::Addresses;

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// They are answered.
    Open,
    /// They fail at once.
    Cut,
    /// They are never answered.
    Silent,
    /// Whoever sends one panics.
    Broken,
    /// Those that store something are never answered.
    Unstored,
}

/// The way to some routes.
#[derive(Debug)]
pub struct Direct {
    router: Router,
    way: AtomicU8,
    /// Where addresses of another host lead, unless that is the emulator.
    store: Option<Arc<Addresses>>,
    /// Every request so far: method and path, without the entry's name.
    sent: Mutex<Vec<String>>,
}

impl Direct {
    /// The way to these routes, open.
    #[must_use]
    pub fn new(router: Router) -> Arc<Self> {
        Self::beside(router, None)
    }

    /// The way to these routes, and to a store that gives addresses.
    #[must_use]
    pub fn beside(router: Router, store: Option<Arc<Addresses>>) -> Arc<Self> {
        Arc::new(Self {
            router,
            way: AtomicU8::new(Way::Open as u8),
            store,
            sent: Mutex::default(),
        })
    }

    /// A client that goes this way, and waits for nothing long.
    #[must_use]
    pub fn client(self: &Arc<Self>) -> Client {
        self.told(Settings::default())
    }

    /// A client that was told something.
    #[must_use]
    pub fn told(self: &Arc<Self>, settings: Settings) -> Client {
        Client::new(self.clone(), settings)
    }

    /// From now on.
    pub fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }

    /// The requests since the last time.
    pub fn sent(&self) -> Vec<String> {
        std::mem::take(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn shown(request: &Request<Body>) -> String {
    let path = request.uri().path();
    let short = path.split('/').filter(|part| part.len() < 64);
    let short: Vec<&str> = short.collect();
    format!("{} {}", request.method(), short.join("/"))
}

/// Whether a request sends data of an entry, or says that all is there.
fn stores(request: &Request<Body>) -> bool {
    request.method() == Method::PUT || request.uri().path().ends_with("/commit")
}

#[async_trait]
impl Transport for Direct {
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let shown = shown(&request);
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(shown);
        match self.way.load(Ordering::SeqCst) {
            way if way == Way::Cut as u8 => return Err("connection refused".into()),
            way if way == Way::Silent as u8 || way == Way::Unstored as u8 && stores(&request) => {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                return Err("an hour is over".into());
            }
            way if way == Way::Broken as u8 => {
                panic!("the transport is broken, as the test told it")
            }
            _ => {}
        }
        if request.uri().host().is_some() {
            if let Some(store) = &self.store {
                return store.send(request).await;
            }
            // A link that leads elsewhere: to the emulator.
            return Http::new("http://localhost", None)?.send(request).await;
        }
        let answer = self
            .router
            .clone()
            .oneshot(request.map(axum::body::Body::new))
            .await?;
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}
