//! What a channel is sent.

use std::fmt;

use ports::alerts::{Alert, AlertKind};
use serde_json::json;

/// Most characters of an error that a channel is sent.
const DETAIL_MAX: usize = 2_000;

/// Where alerts go. The address may be a secret in itself, and is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub enum Channel {
    /// A POST of the alert as JSON.
    Webhook {
        /// To here.
        url: String,
        /// The project it is about.
        project: String,
    },
    /// An incoming webhook of Slack: a POST of one sentence.
    Slack {
        /// To here.
        url: String,
        /// The project it is about.
        project: String,
    },
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ***", self.name())
    }
}

impl Channel {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
        }
    }

    pub(super) fn url(&self) -> &str {
        match self {
            Self::Webhook { url, .. } | Self::Slack { url, .. } => url,
        }
    }

    /// The body of a POST that tells of an alert.
    pub(super) fn body(&self, alert: &Alert) -> String {
        match self {
            Self::Webhook { project, .. } => json!({
                "kind": alert.kind,
                "project": project,
                "model": alert.model,
                "at": alert.at.to_string(),
                "detail": alert.detail.as_deref().map(shortened),
                "text": sentence(alert, project),
            }),
            Self::Slack { project, .. } => json!({ "text": escaped(&sentence(alert, project)) }),
        }
        .to_string()
    }
}

fn sentence(alert: &Alert, project: &str) -> String {
    let (model, at) = (&alert.model, alert.at);
    match (alert.kind, &alert.detail) {
        (AlertKind::LiveModelFailed, Some(detail)) => {
            let detail = shortened(detail);
            format!("{project}: live model {model} failed at {at}: {detail}")
        }
        (AlertKind::LiveModelFailed, None) => {
            format!("{project}: live model {model} failed at {at}")
        }
        (AlertKind::LiveModelRecovered, _) => {
            format!("{project}: live model {model} recovered at {at}")
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(DETAIL_MAX) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

/// What Slack reads as text and not as a link or a mention.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;

    use super::*;

    fn alert(kind: AlertKind, detail: Option<&str>) -> Alert {
        Alert {
            kind,
            model: "silver.orders".parse().expect("a name"),
            at: Timestamp(0),
            detail: detail.map(str::to_owned),
        }
    }

    #[test]
    fn a_webhook_gets_the_alert_and_slack_a_sentence() {
        let (url, project) = ("https://h/secret".to_owned(), "shop".to_owned());
        let failed = alert(AlertKind::LiveModelFailed, Some("`a` < <b> & c"));
        let webhook = Channel::Webhook {
            url: url.clone(),
            project: project.clone(),
        };
        let body: serde_json::Value =
            serde_json::from_str(&webhook.body(&failed)).expect("is JSON");
        assert_eq!(body["kind"], "live_model_failed");
        assert_eq!(body["model"], "silver.orders");
        assert_eq!(body["project"], "shop");
        assert_eq!(body["detail"], "`a` < <b> & c");
        let slack = Channel::Slack { url, project };
        let body = slack.body(&failed);
        assert!(body.contains("failed at 1970"), "{body}");
        assert!(body.contains("&lt;b&gt; &amp; c"), "{body}");
        let body = slack.body(&alert(AlertKind::LiveModelRecovered, None));
        assert!(
            body.contains("shop: live model silver.orders recovered"),
            "{body}"
        );
        assert_eq!(format!("{slack:?}"), "slack ***");
    }
}
