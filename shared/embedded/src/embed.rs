//! Vectors of text by a service that speaks as OpenAI's does: `POST <url>/embeddings`.
//!
//! What the service refuses is the caller's to mend. What it cannot answer now is asked again a few times, later each time;
//! how long in all is bounded.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use domain::Duration;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use ports::{Clock, Embedder, Error, Kind, Result};
use serde_json::{Value, json};

use crate::alerts::HttpPost;

/// Texts of one request.
const BATCH: usize = 128;
/// Requests for one batch, the pause before the second, and the longest pause a service may ask for.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Longest that a request may take.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const ANSWER_MAX: usize = 64 << 20;
/// Most characters of a service's own words that a message repeats.
const WORDS_MAX: usize = 300;

/// An answer of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// For how long it asks to be left alone.
    pub retry_after: Option<Duration>,
    /// Its body.
    pub body: Bytes,
}

/// Sends JSON and reads the answer.
#[async_trait]
pub trait Exchange: Send + Sync + fmt::Debug {
    /// One request; what went wrong when there is no answer.
    async fn send(
        &self,
        url: &str,
        headers: HeaderMap,
        body: String,
    ) -> std::result::Result<Answered, String>;
}

#[async_trait]
impl Exchange for HttpPost {
    async fn send(
        &self,
        url: &str,
        headers: HeaderMap,
        body: String,
    ) -> std::result::Result<Answered, String> {
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| String::from("its address is none"))?;
        request.headers_mut().extend(headers);
        let answer = self.client()?.request(request).await;
        let answer = answer.map_err(|error| match error.is_connect() {
            true => String::from("it cannot be reached"),
            false => String::from("the connection broke"),
        })?;
        let retry_after = answer.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|_| String::from("its answer was cut short, or is too long"))?;
        Ok(Answered {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body: body.to_bytes(),
        })
    }
}

/// A service.
#[derive(Clone)]
pub struct HttpEmbedder {
    url: String,
    model: String,
    key: Option<String>,
    exchange: Arc<dyn Exchange>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEmbedder")
            .field("url", &self.url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Why a request brought nothing.
enum Failed {
    /// Asking again may help.
    Later(String, Option<Duration>),
    /// It will not.
    Never(String),
}

impl HttpEmbedder {
    /// The service at `url`, which ends before `/embeddings`.
    #[must_use]
    pub fn new(
        url: &str,
        model: &str,
        key: Option<String>,
        exchange: Arc<dyn Exchange>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            url: format!("{}/embeddings", url.trim_end_matches('/')),
            model: model.to_owned(),
            key,
            exchange,
            clock,
        }
    }

    async fn once(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, Failed> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            let value = format!("Bearer {key}").parse::<hyper::header::HeaderValue>();
            let mut value =
                value.map_err(|_| Failed::Never(String::from("`embedder.key` is no key")))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let body = json!({ "model": self.model, "input": texts, "encoding_format": "float" });
        let late = self.clock.now() + TIME_MAX;
        let answered = tokio::select! {
            answered = self.exchange.send(&self.url, headers, body.to_string()) => answered,
            () = self.clock.sleep_until(late) => Err(format!("it took longer than {TIME_MAX:?}")),
        };
        let answered = answered.map_err(|why| Failed::Later(why, None))?;
        match answered.status {
            200..=299 => vectors(&answered.body, texts.len()).map_err(Failed::Never),
            408 | 409 | 425 | 429 | 500..=599 => {
                Err(Failed::Later(told(&answered), answered.retry_after))
            }
            _ => Err(Failed::Never(told(&answered))),
        }
    }
}

/// What a service says of a request that it did not follow.
fn told(answered: &Answered) -> String {
    let said: Option<Value> = serde_json::from_slice(&answered.body).ok();
    let said = said
        .as_ref()
        .and_then(|said| said["error"]["message"].as_str());
    let said: String = said.unwrap_or_default().chars().take(WORDS_MAX).collect();
    format!("it answered {} {said}", answered.status)
        .trim_end()
        .to_owned()
}

/// The vectors of an answer, by their `index`.
fn vectors(body: &[u8], count: usize) -> std::result::Result<Vec<Vec<f32>>, String> {
    #[derive(serde::Deserialize)]
    struct One {
        index: usize,
        embedding: Vec<f32>,
    }
    #[derive(serde::Deserialize)]
    struct All {
        data: Vec<One>,
    }
    let all: All = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is not that of an embeddings service: {error}"))?;
    let mut vectors = vec![None; count];
    for one in all.data {
        match vectors.get_mut(one.index) {
            Some(place) => *place = Some(one.embedding),
            None => {
                return Err(String::from(
                    "its answer has vectors of texts that were not sent",
                ));
            }
        }
    }
    let vectors: Option<Vec<_>> = vectors.into_iter().collect();
    vectors.ok_or_else(|| String::from("its answer has no vector for one of the texts"))
}

#[async_trait]
impl Embedder for HttpEmbedder {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let error = |kind, why| Error::new(kind, "embed text with", &self.url).because(why);
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            match self.once(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(Failed::Never(why)) => return Err(error(Kind::Invalid, why)),
                Err(Failed::Later(why, _)) if attempt == ATTEMPTS => {
                    return Err(error(Kind::Unavailable, why));
                }
                Err(Failed::Later(_, asked)) => {
                    let wait = asked.unwrap_or(pause).min(PAUSE_MAX);
                    self.clock.sleep_until(self.clock.now() + wait).await;
                    pause *= 2;
                }
            }
        }
        Err(error(Kind::Unavailable, String::from("it was not asked")))
    }

    fn batch(&self) -> usize {
        BATCH
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use domain::Timestamp;

    use super::*;

    /// Answers one after the other, and what was asked.
    #[derive(Debug, Default)]
    struct Scripted {
        answers: Mutex<Vec<Answered>>,
        asked: Mutex<Vec<(String, HeaderMap, Value)>>,
    }

    #[async_trait]
    impl Exchange for Scripted {
        async fn send(
            &self,
            url: &str,
            headers: HeaderMap,
            body: String,
        ) -> std::result::Result<Answered, String> {
            let body = serde_json::from_str(&body).expect("is JSON");
            self.asked
                .lock()
                .expect("is sound")
                .push((url.to_owned(), headers, body));
            let mut answers = self.answers.lock().expect("is sound");
            match answers.is_empty() {
                true => Err(String::from("it cannot be reached")),
                false => Ok(answers.remove(0)),
            }
        }
    }

    /// Time that passes when it is waited for, unless a request is under way.
    #[derive(Debug, Default)]
    struct Jumping(Mutex<i64>);

    #[async_trait]
    impl Clock for Jumping {
        fn now(&self) -> Timestamp {
            Timestamp(*self.0.lock().expect("is sound"))
        }

        async fn sleep_until(&self, moment: Timestamp) {
            tokio::task::yield_now().await;
            *self.0.lock().expect("is sound") = moment.0;
        }
    }

    fn answer(status: u16, body: &Value) -> Answered {
        Answered {
            status,
            retry_after: None,
            body: Bytes::from(body.to_string()),
        }
    }

    async fn embed(answers: Vec<Answered>) -> (Result<Vec<Vec<f32>>>, Arc<Scripted>) {
        let scripted = Arc::new(Scripted {
            answers: Mutex::new(answers),
            ..Scripted::default()
        });
        let key = Some(String::from("secret"));
        let embedder = HttpEmbedder::new(
            "https://h/v1/",
            "small",
            key,
            scripted.clone(),
            Arc::new(Jumping::default()),
        );
        assert!(!format!("{embedder:?}").contains("secret"));
        let texts = ["a", "b"].map(String::from);
        (embedder.embed(&texts).await, scripted)
    }

    fn good() -> Value {
        json!({ "data": [
            { "index": 1, "embedding": [3.0, 4.0] },
            { "index": 0, "embedding": [1.0, 2.0] },
        ] })
    }

    #[tokio::test]
    async fn vectors_come_in_the_order_of_the_texts_and_a_busy_service_is_asked_again() {
        let busy = answer(429, &json!({ "error": { "message": "slow down" } }));
        let (vectors, scripted) = embed(vec![busy, answer(200, &good())]).await;
        assert_eq!(vectors.expect("embeds"), [[1.0, 2.0], [3.0, 4.0]]);
        let asked = scripted.asked.lock().expect("is sound");
        assert_eq!(asked.len(), 2);
        let (url, headers, body) = &asked[1];
        assert_eq!(url, "https://h/v1/embeddings");
        assert_eq!(headers[AUTHORIZATION], "Bearer secret");
        assert_eq!(body["model"], "small");
        assert_eq!(body["input"], json!(["a", "b"]));
    }

    #[tokio::test]
    async fn what_is_refused_is_not_asked_again_and_what_does_not_answer_only_a_few_times() {
        let refused = answer(401, &json!({ "error": { "message": "no such key" } }));
        let (vectors, scripted) = embed(vec![refused]).await;
        let error = vectors.expect_err("is refused");
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.chain().contains("no such key"), "{}", error.chain());
        assert_eq!(scripted.asked.lock().expect("is sound").len(), 1);
        let (vectors, scripted) = embed(Vec::new()).await;
        assert_eq!(vectors.expect_err("is down").kind, Kind::Unavailable);
        let attempts = scripted.asked.lock().expect("is sound").len();
        assert_eq!(attempts, ATTEMPTS as usize);
        for bad in [
            json!({}),
            json!({ "data": [{ "index": 0, "embedding": [1.0] }] }),
            json!({ "data": [{ "index": 7, "embedding": [1.0] }] }),
        ] {
            let (vectors, _) = embed(vec![answer(200, &bad)]).await;
            assert_eq!(
                vectors.expect_err("is no answer").kind,
                Kind::Invalid,
                "{bad}"
            );
        }
    }
}
