//! A build's file on its way: to the registry, or past it to the address it gives, as the lease says.

use std::collections::BTreeMap;

use domain::entry::EntryId;
use hyper::{
    HeaderMap, Method, Request,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::{Error, Result},
    held::Encoded,
    registry::{ANSWER_MAX, LEASE, Lease, Registry, away, path},
};

/// What a file is.
const PARQUET: HeaderValue = HeaderValue::from_static("application/vnd.apache.parquet");
/// Tries of an upload past the registry, each with an address of its own.
const TRIES: u32 = 2;

/// Where a file is sent.
#[derive(Debug, Deserialize)]
struct Sending {
    href: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Registry {
    /// Sends a build's file. The registry looks at it at the latest when it is committed.
    pub(crate) async fn upload(&self, id: &EntryId, lease: &Lease, file: &Encoded) -> Result<()> {
        let is_direct = lease.upload.direct_max.is_none_or(|max| file.len() <= max);
        if is_direct {
            let sending = Sending {
                href: path(id, "/upload"),
                headers: BTreeMap::from([(LEASE.to_owned(), lease.token.clone())]),
            };
            return self.put(id, &sending, file).await;
        }
        let mut tried = 1;
        loop {
            let sending = self.sending(id, lease, file.len()).await?;
            match self.put(id, &sending, file).await {
                // An address is over once its time is, or that of whoever signed it.
                Err(Error::Away(_) | Error::Refused { status: 403, .. }) if tried < TRIES => {
                    tried += 1;
                }
                // A try whose answer was lost had arrived: what is there is never replaced.
                Err(Error::Refused { status: 412, .. }) => return Ok(()),
                Err(Error::Refused { status, detail, .. }) => {
                    return Err(Error::Refused {
                        status,
                        kind: String::from("upload"),
                        detail: format!("its object store does not take the upload: {detail}"),
                    });
                }
                outcome => return outcome,
            }
        }
    }

    /// Asks where a file of so many bytes is sent.
    async fn sending(&self, id: &EntryId, lease: &Lease, bytes: u64) -> Result<Sending> {
        #[derive(Deserialize)]
        struct Answer {
            upload: Sending,
        }
        let body = json!({ "token": lease.token, "bytes": bytes });
        let path = path(id, "/upload");
        let (_, _, body) = self.json(Method::POST, &path, &body, self.timeout).await?;
        let answer: Answer = serde_json::from_slice(&body).map_err(away)?;
        Ok(answer.upload)
    }

    async fn put(&self, id: &EntryId, sending: &Sending, file: &Encoded) -> Result<()> {
        let mut headers = HeaderMap::new();
        // Object stores take no file whose length they are not told.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(file.len()));
        headers.insert(CONTENT_TYPE, PARQUET);
        for (name, value) in &sending.headers {
            let name: HeaderName = name.parse().map_err(away)?;
            headers.insert(name, value.parse().map_err(away)?);
        }
        let mut request = Request::put(&sending.href)
            .body(file.body().await?)
            .map_err(away)?;
        *request.headers_mut() = headers;
        let sent = self.send(request, self.patience, &id.to_string()).await?;
        self.whole(sent.into_body(), ANSWER_MAX).await.map(drop)
    }
}
