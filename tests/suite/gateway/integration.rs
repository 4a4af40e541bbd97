//! The integration of the HTTP API with SQS. No emulator has one, so what is tested is that its parameters are such as the
//! service takes, and that a message as the service makes of them lands as the request would have.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, ensure};
use lambda::Event;
use serde_json::{Value, json};

use super::{Gate, LINES};

/// What the service takes for `SQS-SendMessage`; the first two it insists on.
const PARAMETERS: [&str; 8] = [
    "QueueUrl",
    "MessageBody",
    "DelaySeconds",
    "MessageAttributes",
    "MessageDeduplicationId",
    "MessageGroupId",
    "MessageSystemAttributes",
    "Region",
];
/// Most attributes of a message.
const ATTRIBUTES_MAX: usize = 10;

/// The lines of the integration in the template, and the values of its request parameters.
fn integration() -> Result<(String, BTreeMap<String, String>)> {
    let path = tests::root().join("infra/http.yaml");
    let text = std::fs::read_to_string(&path).context("infra/http.yaml")?;
    let (_, rest) = text
        .split_once("  BufferIntegration:\n")
        .context("it is there")?;
    let whole: Vec<&str> = rest.lines().take_while(|line| !line.is_empty()).collect();
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    let inside = whole
        .iter()
        .skip_while(|line| line.trim() != "RequestParameters:");
    let mut last = String::new();
    for line in inside
        .skip(1)
        .take_while(|line| line.starts_with("        "))
    {
        let deeper = line.starts_with("          ");
        match (deeper, line.trim().split_once(": ")) {
            (false, Some((name, value))) => {
                last = name.to_owned();
                let value = if value == ">-" { "" } else { value };
                parameters.insert(last.clone(), value.to_owned());
            }
            _ => {
                let value = parameters.get_mut(&last).context("a value of nothing")?;
                value.push_str(line.trim());
            }
        }
    }
    Ok((whole.join("\n"), parameters))
}

/// A record of the event that the service makes of a request.
fn record(template: &str, id: &str, headers: &[(&str, &str)], body: &str) -> Result<Value> {
    let mut filled = template.replace("${request.path.source}", "orders");
    for (name, value) in headers {
        filled = filled.replace(&format!("${{request.header.{name}}}"), value);
    }
    // A header that was not sent is no text.
    while let Some(at) = filled.find("${request.header.") {
        let end = filled[at..].find('}').context("a variable ends")?;
        filled.replace_range(at..=at + end, "");
    }
    ensure!(
        !filled.contains("${"),
        "a variable of another kind: {filled}"
    );
    let attributes: BTreeMap<String, Value> = serde_json::from_str(&filled)?;
    ensure!(attributes.len() <= ATTRIBUTES_MAX, "too many attributes");
    let mut read = BTreeMap::new();
    for (name, attribute) in attributes {
        ensure!(attribute["DataType"] == "String", "{name}: {attribute}");
        let text = attribute["StringValue"].as_str().context("a text")?;
        ensure!(
            !text.is_empty(),
            "{name} is empty: the service refuses the message"
        );
        read.insert(name, json!({ "stringValue": text, "dataType": "String" }));
    }
    Ok(
        json!({ "messageId": id, "receiptHandle": "r", "body": body, "attributes": {},
        "messageAttributes": read, "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:1:buffer" }),
    )
}

pub(super) async fn parameters() -> Result<()> {
    let (whole, parameters) = integration()?;
    for line in [
        "IntegrationType: AWS_PROXY",
        "IntegrationSubtype: SQS-SendMessage",
        "PayloadFormatVersion: \"1.0\"",
        "CredentialsArn: !GetAtt BufferRole.Arn",
    ] {
        ensure!(whole.contains(line), "it has no `{line}`");
    }
    let names: BTreeSet<&str> = parameters.keys().map(String::as_str).collect();
    ensure!(
        names.iter().all(|name| PARAMETERS.contains(name)),
        "{names:?}"
    );
    ensure!(
        PARAMETERS[..2].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    ensure!(
        parameters["MessageBody"] == "$request.body",
        "{parameters:?}"
    );
    let template = &parameters["MessageAttributes"];
    let lines = ("content-type", "application/x-ndjson");
    let key = ("idempotency-key", "k1");
    let requests = [
        // Nothing but a body; lines that are called so; a key that comes twice; a token.
        record(template, "m1", &[], r#"{"id":1}"#)?,
        record(template, "m2", &[lines], LINES)?,
        record(template, "m3", &[key], r#"{"id":4}"#)?,
        record(template, "m4", &[key], r#"{"id":4}"#)?,
        record(
            template,
            "m5",
            &[("authorization", "Bearer x")],
            r#"{"id":5}"#,
        )?,
    ];
    let gate = Gate::new()?;
    for once in 0..2 {
        let payload = json!({ "Records": requests });
        let Event::Queue(messages) = Event::read(payload).map_err(|e| anyhow!(e))? else {
            anyhow::bail!("it is read as something else than messages");
        };
        let answer = gate.buffered.take(&messages).await;
        let answer = answer.map_err(|e| anyhow!("{e}"))?;
        ensure!(
            answer == json!({ "batchItemFailures": [] }),
            "{once}: {answer}"
        );
        ensure!(
            gate.count().await? == json!(5),
            "{once}: {}",
            gate.count().await?
        );
    }
    Ok(())
}
