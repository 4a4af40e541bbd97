//! Fetching an entry's data by its signed link, going on where a broken download stopped. A link that is over is asked for anew.

use bytes::Bytes;
use domain::entry::EntryId;
use http_body_util::BodyExt;
use hyper::{Method, Request, StatusCode, header::RANGE};
use tempfile::TempPath;
use tokio::{io::AsyncWriteExt, sync::Mutex};

use crate::{
    client::Client,
    error::{Error, Result},
    held::{Held, temporary},
    meta::Meta,
    registry::{ARROW, Link, Registry, path, within},
};

/// How often a download is taken up again.
const ATTEMPTS: u32 = 5;

/// Where the bytes of a file go.
enum Sink {
    Memory(Vec<u8>),
    File(tokio::fs::File, TempPath, u64),
}

impl Sink {
    fn new(bytes: u64, memory: usize) -> Result<Self> {
        if usize::try_from(bytes).is_ok_and(|bytes| bytes <= memory) {
            return Ok(Self::Memory(Vec::new()));
        }
        let (file, path) = temporary().map_err(Error::unreadable)?;
        Ok(Self::File(file, path, 0))
    }

    fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, _, length) => *length,
        }
    }

    async fn put(&mut self, piece: &Bytes) -> Result<()> {
        match self {
            Self::Memory(bytes) => bytes.extend_from_slice(piece),
            Self::File(file, _, length) => {
                file.write_all(piece).await.map_err(Error::unreadable)?;
                *length += piece.len() as u64;
            }
        }
        Ok(())
    }

    async fn held(self) -> Result<Held> {
        match self {
            Self::Memory(bytes) => Held::of_file(bytes.into()).await,
            Self::File(mut file, path, _) => {
                file.flush().await.map_err(Error::unreadable)?;
                Held::of_spool(path).await
            }
        }
    }
}

/// What became of one attempt.
enum Attempt {
    Whole,
    /// It broke: go on from where it is.
    Broken(Error),
    /// The link is over.
    Over,
    /// What leads there has no parts: it is to be had whole.
    Anew,
    /// There is nothing where it leads.
    Gone,
}

/// The data of an entry.
pub(super) async fn fetch(
    client: &Client,
    id: &EntryId,
    meta: &Meta,
    link: &Mutex<Option<Link>>,
) -> Result<Held> {
    let mut link = link.lock().await;
    let registry = &client.0.registry;
    let (mut bytes, mut generation) = (meta.byte_size, meta.generation.clone());
    let mut sink = Sink::new(bytes, client.0.settings.memory)?;
    let mut last = Error::Missing(id.to_string());
    for _ in 0..ATTEMPTS {
        let Some(known) = link.clone() else {
            let found = registry.look_up(id).await?;
            if found.payload.is_none() && found.link.is_none() {
                // A registry that has no links has the rows themselves.
                return stream(client, id).await;
            }
            if let Some(payload) = found.payload {
                return Ok(Held::Memory(payload.into()));
            }
            if found.meta.generation != generation {
                // Rebuilt meanwhile: what is here is half of something that is gone.
                (bytes, generation) = (found.meta.byte_size, found.meta.generation);
                sink = Sink::new(bytes, client.0.settings.memory)?;
            }
            *link = found.link;
            continue;
        };
        match attempt(registry, &known, &mut sink, bytes).await? {
            Attempt::Whole => return sink.held().await,
            Attempt::Broken(error) => last = error,
            Attempt::Over => *link = None,
            Attempt::Anew => sink = Sink::new(bytes, client.0.settings.memory)?,
            // The registry knows what there is instead, or notes that there is nothing.
            Attempt::Gone => return stream(client, id).await,
        }
    }
    Err(last)
}

async fn attempt(registry: &Registry, link: &Link, sink: &mut Sink, bytes: u64) -> Result<Attempt> {
    let mut request = Registry::plain(Method::GET, &link.href)?;
    if sink.length() > 0 {
        let range = format!("bytes={}-", sink.length());
        if let Ok(range) = range.parse() {
            request.headers_mut().insert(RANGE, range);
        }
    }
    let answer = match within(registry.timeout, registry.transport.send(request)).await {
        Ok(answer) => answer,
        Err(error) => return Ok(Attempt::Broken(error)),
    };
    match answer.status() {
        StatusCode::OK if sink.length() > 0 => return Ok(Attempt::Anew),
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
        StatusCode::NOT_FOUND => return Ok(Attempt::Gone),
        // What was begun may be longer than what there is now.
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED | StatusCode::RANGE_NOT_SATISFIABLE => {
            return Ok(Attempt::Over);
        }
        other if other.is_server_error() => {
            return Ok(Attempt::Broken(Error::Away(format!(
                "its data answers HTTP {other}"
            ))));
        }
        other => {
            return Err(Error::Refused {
                status: other.as_u16(),
                kind: String::from("data"),
                detail: String::from("its data cannot be downloaded"),
            });
        }
    }
    let mut body = answer.into_body();
    loop {
        match tokio::time::timeout(registry.patience, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(piece) = frame.into_data() {
                    sink.put(&piece).await?;
                }
            }
            Ok(None) if sink.length() == bytes => return Ok(Attempt::Whole),
            Ok(None) => {
                return Ok(Attempt::Broken(Error::Away(String::from(
                    "its data was cut short",
                ))));
            }
            Ok(Some(Err(error))) => return Ok(Attempt::Broken(Error::Away(error.to_string()))),
            Err(_) => {
                return Ok(Attempt::Broken(Error::Away(String::from(
                    "its data stopped coming",
                ))));
            }
        }
    }
}

/// The rows through the registry itself.
async fn stream(client: &Client, id: &EntryId) -> Result<Held> {
    let registry = &client.0.registry;
    let mut request: Request<_> = Registry::plain(Method::GET, &path(id, "?mode=swr"))?;
    if let Ok(accept) = ARROW.parse() {
        request.headers_mut().insert(hyper::header::ACCEPT, accept);
    }
    let answer = registry
        .send(request, registry.patience, &id.to_string())
        .await?;
    let body = registry.whole(answer.into_body(), usize::MAX).await?;
    let batches = crate::registry::stream(&body)?;
    Ok(Held::Memory(batches.into()))
}
