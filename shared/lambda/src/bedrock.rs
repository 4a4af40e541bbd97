//! Vectors of text by a model of Amazon Bedrock: of Cohere, which takes many texts at once, or of Amazon's Titan, which takes one.
//!
//! A text that is longer than the model takes is cut, as the service cuts what has too many tokens: the beginning of a text says
//! what it is about. What the service refuses is the caller's to mend; what it cannot answer now is asked again a few times.

use std::sync::Arc;

use async_trait::async_trait;
use aws::signing::Signer;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::Duration;
use embedded::{Answered, Exchange};
use ports::{Clock, Embedder, Error, Kind, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// What requests are signed for, and what the host is called.
const SERVICE: &str = "bedrock";
const HOST: &str = "bedrock-runtime";
/// Requests for one batch, and the pause before the second.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// Texts that a model of Cohere takes at once.
const TEXTS_MAX: usize = 96;
/// Most characters of a service's own words that a message repeats.
const WORDS_MAX: usize = 300;

/// A model.
#[derive(Clone, Debug)]
pub(crate) struct Bedrock {
    pub(crate) model: String,
    pub(crate) signer: Signer,
    pub(crate) exchange: Arc<dyn Exchange>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What texts are for: models of Cohere tell them apart.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Document,
    Query,
}

/// Models that take and answer the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Cohere Embed 4.
    Cohere4,
    /// Cohere Embed 3.
    Cohere3,
    /// Titan Text Embeddings, both versions.
    Titan,
}

impl Family {
    /// The family of a model, by its id or that of a profile of it, which has a region before it.
    fn of(model: &str) -> Self {
        match model {
            _ if model.contains("cohere.embed-v4") => Self::Cohere4,
            _ if model.contains("cohere.") => Self::Cohere3,
            _ => Self::Titan,
        }
    }

    /// Most characters of a text; of more the service refuses the whole request.
    fn characters_max(self) -> usize {
        match self {
            // It counts tokens, and cuts by itself.
            Self::Cohere4 => usize::MAX,
            Self::Cohere3 => 2_048,
            Self::Titan => 50_000,
        }
    }

    fn request(self, texts: &[String], purpose: Purpose) -> Value {
        let cut = |text: &String| text.chars().take(self.characters_max()).collect::<String>();
        let texts: Vec<String> = texts.iter().map(cut).collect();
        let purpose = match purpose {
            Purpose::Document => "search_document",
            Purpose::Query => "search_query",
        };
        match self {
            Self::Cohere4 => json!({ "texts": texts, "input_type": purpose, "truncate": "RIGHT" }),
            Self::Cohere3 => json!({ "texts": texts, "input_type": purpose, "truncate": "END" }),
            Self::Titan => json!({ "inputText": texts.first() }),
        }
    }

    fn vectors(self, body: &[u8]) -> serde_json::Result<Vec<Vec<f32>>> {
        match self {
            Self::Cohere3 | Self::Cohere4 => {
                serde_json::from_slice(body).map(|many: Many| match many.embeddings {
                    Embeddings::Plain(vectors) | Embeddings::ByType { float: vectors } => vectors,
                })
            }
            Self::Titan => serde_json::from_slice(body).map(|one: One| vec![one.embedding]),
        }
    }
}

#[derive(Deserialize)]
struct Many {
    embeddings: Embeddings,
}

/// One list when one type of numbers is asked for; by their types from models that always name them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Embeddings {
    Plain(Vec<Vec<f32>>),
    ByType { float: Vec<Vec<f32>> },
}

#[derive(Deserialize)]
struct One {
    embedding: Vec<f32>,
}

impl Bedrock {
    fn failed(&self, kind: Kind, why: String) -> Error {
        Error::new(kind, "embed text with", &self.model).because(why)
    }

    /// The vectors of as many texts as the model takes at once.
    async fn ask(&self, texts: &[String], purpose: Purpose) -> Result<Vec<Vec<f32>>> {
        let family = Family::of(&self.model);
        let body = family.request(texts, purpose).to_string();
        let answered = self.invoke(body).await?;
        let vectors = family.vectors(&answered.body).map_err(|error| {
            let why = format!("its answer is not that of such a model: {error}");
            self.failed(Kind::Invalid, why)
        })?;
        match vectors.len() == texts.len() {
            true => Ok(vectors),
            false => {
                let (sent, came) = (texts.len(), vectors.len());
                let why = format!("{sent} texts were sent and {came} vectors came back");
                Err(self.failed(Kind::Invalid, why))
            }
        }
    }

    async fn all(&self, texts: &[String], purpose: Purpose) -> Result<Vec<Vec<f32>>> {
        let at_once = match Family::of(&self.model) {
            Family::Cohere3 | Family::Cohere4 => TEXTS_MAX,
            Family::Titan => 1,
        };
        let mut vectors = Vec::with_capacity(texts.len());
        for some in texts.chunks(at_once) {
            vectors.extend(self.ask(some, purpose).await?);
        }
        Ok(vectors)
    }

    /// One request, again and later while the service is busy.
    async fn invoke(&self, body: String) -> Result<Answered> {
        let endpoint = self.signer.endpoint(HOST)?;
        // A model's name may have a colon, which a path holds escaped.
        let model = self.model.replace(':', "%3A");
        let url = format!("{endpoint}/model/{model}/invoke");
        let mut pause = PAUSE;
        let mut told = String::new();
        for attempt in 1..=ATTEMPTS {
            if attempt > 1 {
                self.clock.sleep_until(self.clock.now() + pause).await;
                pause *= 2;
            }
            let signed = self.signer.post(SERVICE, &url, body.as_bytes()).await?;
            let headers = headers(&signed)?;
            match self.exchange.send(&url, headers, body.clone()).await {
                Ok(answered) => match answered.status {
                    200..=299 => return Ok(answered),
                    // The model takes too long, failed, or is being loaded; the service is busy.
                    408 | 424 | 429 | 500..=599 => told = said(&answered),
                    403 => {
                        let why = format!(
                            "{}: allow the role `bedrock:InvokeModel` on it, which the parameter `EmbeddingModel` does, \
                             and the account to use it",
                            said(&answered)
                        );
                        return Err(self.failed(Kind::Invalid, why));
                    }
                    _ => return Err(self.failed(Kind::Invalid, said(&answered))),
                },
                Err(why) => told = why,
            }
        }
        Err(self.failed(Kind::Unavailable, told))
    }
}

/// What the service says of a request that it did not follow.
fn said(answered: &Answered) -> String {
    let words = String::from_utf8_lossy(&answered.body);
    let words: String = words.chars().take(WORDS_MAX).collect();
    format!("it answered {} {words}", answered.status)
        .trim_end()
        .to_owned()
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
        self.all(texts, Purpose::Document).await
    }

    async fn embed_query(&self, text: &str) -> Result<Vec<f32>> {
        let texts = [text.to_owned()];
        let vectors = self.all(&texts, Purpose::Query).await?;
        Ok(vectors.into_iter().next().unwrap_or_default())
    }

    fn batch(&self) -> usize {
        TEXTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_told_apart_by_their_ids() {
        for (model, family) in [
            ("amazon.titan-embed-text-v1", Family::Titan),
            ("amazon.titan-embed-text-v2:0", Family::Titan),
            ("cohere.embed-english-v3", Family::Cohere3),
            ("cohere.embed-multilingual-v3", Family::Cohere3),
            ("cohere.embed-v4:0", Family::Cohere4),
            ("eu.cohere.embed-v4:0", Family::Cohere4),
        ] {
            assert_eq!(Family::of(model), family, "{model}");
        }
    }

    #[test]
    fn both_forms_of_an_answer_are_read() {
        for body in [
            r#"{"id": "x", "response_type": "embeddings_floats", "embeddings": [[1.0, 2.0]], "texts": ["a"]}"#,
            r#"{"id": "x", "response_type": "embeddings_by_type", "embeddings": {"float": [[1.0, 2.0]]}}"#,
        ] {
            for family in [Family::Cohere3, Family::Cohere4] {
                let vectors = family.vectors(body.as_bytes()).expect(body);
                assert_eq!(vectors, [[1.0, 2.0]]);
            }
        }
        let body = r#"{"embedding": [1.0], "inputTextTokenCount": 1, "embeddingsByType": {"float": [1.0]}}"#;
        let vectors = Family::Titan.vectors(body.as_bytes()).expect(body);
        assert_eq!(vectors, [[1.0]]);
        assert!(Family::Titan.vectors(b"{}").is_err());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let texts = ["ä".repeat(3_000)];
        let cut = |family: Family| family.request(&texts, Purpose::Document);
        assert_eq!(cut(Family::Cohere3)["texts"][0], "ä".repeat(2_048));
        assert_eq!(cut(Family::Cohere4)["texts"][0], texts[0]);
        assert_eq!(cut(Family::Titan), json!({ "inputText": texts[0] }));
    }
}
