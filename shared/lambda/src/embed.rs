//! What makes vectors of text in a deployment: a service over HTTP, or Amazon Bedrock.

use std::sync::Arc;

use async_trait::async_trait;
use aws::signing::Signer;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::Duration;
use embedded::{Answered, Exchange, HttpEmbedder, HttpPost};
use ports::{Clock, Embedder, Error, Kind, Result, search::Searching};
use serde::Deserialize;
use serde_json::json;
use settings::Embedding;

use crate::Ground;

/// The embedder that the settings name.
///
/// # Errors
/// `Invalid` for one that is not of a deployment.
pub fn embedder(ground: &Ground<'_>) -> Result<Arc<dyn Embedder>> {
    match &ground.settings.embedder {
        Embedding::None => Ok(Searching::default().embedder),
        Embedding::Http { url, model, key } => {
            let key = key.as_ref().map(|key| key.0.clone());
            let (post, clock) = (HttpPost::new(), ground.clock.clone());
            Ok(Arc::new(HttpEmbedder::new(url, model, key, post, clock)))
        }
        Embedding::Bedrock(model) => Ok(Arc::new(Bedrock {
            model: model.clone(),
            signer: ground.signer.clone(),
            exchange: HttpPost::new(),
            clock: ground.clock.clone(),
        })),
        Embedding::Model(_) => Err(Error::new(Kind::Invalid, "open", "embedder.url")
            .because("this function knows no local models")),
    }
}

/// Requests for one batch, and the pause before the second.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// A model of Amazon Bedrock: of Cohere, which takes many texts at once, or of Amazon's Titan, which takes one.
#[derive(Clone, Debug)]
struct Bedrock {
    model: String,
    signer: Signer,
    exchange: Arc<dyn Exchange>,
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
struct Many {
    embeddings: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct One {
    embedding: Vec<f32>,
}

impl Bedrock {
    fn takes_many(&self) -> bool {
        self.model.starts_with("cohere.")
    }

    async fn ask(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let invalid =
            |why: String| Error::new(Kind::Invalid, "embed text with", &self.model).because(why);
        let body = match self.takes_many() {
            true => json!({ "texts": texts, "input_type": "search_document", "truncate": "END" }),
            false => json!({ "inputText": texts.first() }),
        }
        .to_string();
        let answered = self.invoke(body).await?;
        let vectors = match self.takes_many() {
            true => serde_json::from_slice(&answered.body).map(|many: Many| many.embeddings),
            false => serde_json::from_slice(&answered.body).map(|one: One| vec![one.embedding]),
        };
        vectors.map_err(|error| invalid(format!("its answer is not that of such a model: {error}")))
    }

    /// One request, again and later while the service is busy.
    async fn invoke(&self, body: String) -> Result<Answered> {
        let region = self.signer.region()?;
        // A model's name may have a colon, which a path holds escaped.
        let model = self.model.replace(':', "%3A");
        let url = format!("https://bedrock-runtime.{region}.amazonaws.com/model/{model}/invoke");
        let mut pause = PAUSE;
        let mut told = String::new();
        for attempt in 1..=ATTEMPTS {
            if attempt > 1 {
                self.clock.sleep_until(self.clock.now() + pause).await;
                pause *= 2;
            }
            let signed = self.signer.post("bedrock", &url, body.as_bytes()).await?;
            let headers = headers(&signed)?;
            match self.exchange.send(&url, headers, body.clone()).await {
                Ok(answered) if answered.status < 300 => return Ok(answered),
                Ok(answered) if answered.status == 429 || answered.status >= 500 => {
                    told = format!("it answered {}", answered.status);
                }
                Ok(answered) => {
                    let said: String = String::from_utf8_lossy(&answered.body)
                        .chars()
                        .take(300)
                        .collect();
                    let why = format!("it answered {} {said}", answered.status);
                    return Err(
                        Error::new(Kind::Invalid, "embed text with", &self.model).because(why)
                    );
                }
                Err(why) => told = why,
            }
        }
        Err(Error::new(Kind::Unavailable, "embed text with", &self.model).because(told))
    }
}

fn headers(signed: &[(String, String)]) -> Result<HeaderMap> {
    let header = |(name, value): &(String, String)| {
        let (name, value) = (
            name.parse::<HeaderName>().ok()?,
            value.parse::<HeaderValue>().ok()?,
        );
        Some((name, value))
    };
    let headers: Option<HeaderMap> = signed.iter().map(header).collect();
    headers.ok_or_else(|| Error::new(Kind::Invalid, "sign", "request").because("a header is none"))
}

#[async_trait]
impl Embedder for Bedrock {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        if self.takes_many() {
            return self.ask(texts).await;
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            vectors.extend(self.ask(std::slice::from_ref(text)).await?);
        }
        Ok(vectors)
    }

    fn batch(&self) -> usize {
        96
    }
}
