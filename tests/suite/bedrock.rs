//! Vectors of text by Amazon Bedrock: what is asked of the service, and what is made of its answers, at a stub of it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, anyhow, ensure};
use aws::signing::Signer;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::config::Credentials;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    routing::post,
};
use embedded::{SystemChance, SystemClock};
use libtest_mimic::Trial;
use ports::{Embedder, Kind, Objects};
use serde_json::{Value, json};
use settings::Settings;
use testkit::MemoryState;
use tests::{
    addresses::Addresses,
    aws::{CREDENTIAL, REGION},
};

use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async("bedrock::titan_is_asked_text_by_text", titan),
        test_async("bedrock::cohere_is_asked_for_many_texts_at_once", cohere),
        test_async("bedrock::queries_are_told_from_documents", queries),
        test_async("bedrock::refusals_say_what_to_do", refusals),
        test_async("bedrock::a_busy_service_is_asked_again", busy),
    ]
}

/// A service that answers as it was told, else with the length of each text.
#[derive(Clone, Debug, Default)]
struct Stub {
    asked: Arc<Mutex<Vec<Asked>>>,
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
}

#[derive(Clone, Debug)]
struct Asked {
    path: String,
    headers: HeaderMap,
    body: Value,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn length(text: &Value) -> usize {
    text.as_str().map_or(0, |text| text.chars().count())
}

async fn take(
    State(stub): State<Stub>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, String) {
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    held(&stub.asked).push(Asked {
        path: uri.path().to_owned(),
        headers,
        body: body.clone(),
    });
    if let Some((status, answer)) = held(&stub.answers).pop_front() {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        return (status, answer.to_string());
    }
    let answer = match body["texts"].as_array() {
        Some(texts) => {
            let vectors: Vec<Value> = texts.iter().map(|text| json!([length(text)])).collect();
            json!({ "id": "1", "response_type": "embeddings_floats", "embeddings": vectors })
        }
        None => {
            let vector = json!([length(&body["inputText"])]);
            json!({ "embedding": vector, "inputTextTokenCount": 1, "embeddingsByType": { "float": vector } })
        }
    };
    (StatusCode::OK, answer.to_string())
}

impl Stub {
    /// A service on a free port, and the embedder of a function that is told of it.
    async fn start(model: &str) -> Result<(Self, Arc<dyn Embedder>)> {
        let stub = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/{*path}", post(take))
            .with_state(stub.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(Credentials::new(
                CREDENTIAL, CREDENTIAL, None, None, "tests",
            ))
            .endpoint_url(format!("http://{address}"))
            .load()
            .await;
        let yaml = format!("embedder:\n  url: bedrock://{model}\n");
        let settings = Settings::parse("project".as_ref(), &yaml, &BTreeMap::new())
            .map_err(|all| anyhow!("settings: {all:?}"))?;
        let objects: Objects = Arc::new(object_store::memory::InMemory::new());
        let clock = Arc::new(SystemClock);
        let ground = lambda::Ground {
            state: Arc::new(MemoryState::new()),
            objects: objects.clone(),
            uri: String::from("memory:///"),
            clock: clock.clone(),
            chance: Arc::new(SystemChance),
            links: Addresses::of(objects, clock.clone()),
            settings: &settings,
            signer: Signer::new(config, clock),
        };
        let embedder = lambda::embedder(&ground).map_err(|error| anyhow!(error.chain()))?;
        Ok((stub, embedder))
    }

    fn will_answer(&self, status: u16, answer: Value) {
        held(&self.answers).push_back((status, answer));
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut held(&self.asked))
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn ensure_signed(asked: &Asked, path: &str) -> Result<()> {
    ensure!(asked.path == path, "{}", asked.path);
    let header = |name: &str| {
        let value = asked
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    ensure!(header("content-type") == "application/json", "{asked:?}");
    let authorization = header("authorization");
    for part in [
        format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL}/"),
        format!("/{REGION}/bedrock/aws4_request"),
        String::from("SignedHeaders=content-type;host;x-amz-date"),
    ] {
        ensure!(authorization.contains(&part), "`{part}`: {authorization}");
    }
    Ok(())
}

async fn titan() -> Result<()> {
    let (stub, embedder) = Stub::start("amazon.titan-embed-text-v2:0").await?;
    let long = "x".repeat(60_000);
    let vectors = embedder.embed(&texts(&["a", "four", &long])).await?;
    ensure!(vectors == [[1.0], [4.0], [50_000.0]], "{vectors:?}");
    let asked = stub.asked();
    ensure!(asked.len() == 3, "{}", asked.len());
    for one in &asked {
        ensure_signed(one, "/model/amazon.titan-embed-text-v2%3A0/invoke")?;
    }
    ensure!(asked[1].body == json!({ "inputText": "four" }), "{asked:?}");
    Ok(())
}

async fn cohere() -> Result<()> {
    let (stub, embedder) = Stub::start("cohere.embed-multilingual-v3").await?;
    let mut many = vec![String::from("x"); 96];
    many.push("ä".repeat(3_000));
    let vectors = embedder.embed(&many).await?;
    ensure!(vectors.len() == 97 && vectors[0] == [1.0] && vectors[96] == [2_048.0]);
    let asked = stub.asked();
    let sizes: Vec<_> = asked
        .iter()
        .map(|one| one.body["texts"].as_array().map_or(0, Vec::len))
        .collect();
    ensure!(sizes == [96, 1], "{sizes:?}");
    for one in &asked {
        ensure_signed(one, "/model/cohere.embed-multilingual-v3/invoke")?;
        ensure!(one.body["input_type"] == "search_document", "{one:?}");
        ensure!(one.body["truncate"] == "END", "{one:?}");
    }
    // The fourth version cuts by itself, has other words for it, and may name types of numbers.
    let (stub, embedder) = Stub::start("eu.cohere.embed-v4:0").await?;
    let by_type =
        json!({ "response_type": "embeddings_by_type", "embeddings": { "float": [[7.0]] } });
    stub.will_answer(200, by_type);
    ensure!(embedder.embed(&many[96..]).await? == [[7.0]]);
    let asked = stub.asked();
    ensure!(asked[0].body["truncate"] == "RIGHT", "{asked:?}");
    ensure!(length(&asked[0].body["texts"][0]) == 3_000);
    ensure_signed(&asked[0], "/model/eu.cohere.embed-v4%3A0/invoke")
}

async fn queries() -> Result<()> {
    let (stub, embedder) = Stub::start("cohere.embed-english-v3").await?;
    ensure!(embedder.embed_query("late").await? == [4.0]);
    let asked = stub.asked();
    let want = json!({ "texts": ["late"], "input_type": "search_query", "truncate": "END" });
    ensure!(asked.len() == 1 && asked[0].body == want, "{asked:?}");
    let (_, embedder) = Stub::start("amazon.titan-embed-text-v1").await?;
    ensure!(embedder.embed_query("late").await? == [4.0]);
    Ok(())
}

async fn refusals() -> Result<()> {
    let (stub, embedder) = Stub::start("cohere.embed-english-v3").await?;
    for (status, answer, says) in [
        (
            400,
            json!({ "message": "Malformed input request" }),
            "Malformed input",
        ),
        (
            403,
            json!({ "message": "not authorized" }),
            "`EmbeddingModel`",
        ),
        (404, json!({ "message": "no such model" }), "no such model"),
        (
            200,
            json!({ "embedding": [1.0] }),
            "not that of such a model",
        ),
        (200, json!({ "embeddings": [] }), "1 texts were sent and 0"),
    ] {
        stub.will_answer(status, answer);
        let error = embedder.embed(&texts(&["a"])).await;
        let error = error.err().ok_or_else(|| anyhow!("{status} is taken"))?;
        ensure!(error.kind == Kind::Invalid, "{status}: {}", error.chain());
        ensure!(error.chain().contains(says), "{status}: {}", error.chain());
        ensure!(stub.asked().len() == 1, "{status} is asked again");
    }
    Ok(())
}

async fn busy() -> Result<()> {
    let (stub, embedder) = Stub::start("cohere.embed-english-v3").await?;
    stub.will_answer(429, json!({ "message": "Too many requests" }));
    ensure!(embedder.embed(&texts(&["a"])).await? == [[1.0]]);
    ensure!(stub.asked().len() == 2);
    Ok(())
}
