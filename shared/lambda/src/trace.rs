//! What joins a webhook to the refreshes it caused: the trace of an invocation goes with the messages it sends.

use aws::queue::Trace;
use lambda_runtime::Context;

use crate::Event;

/// The trace of an invocation: that of the message it was made for, else the service's own.
pub(crate) fn of(event: &Event, context: &Context) -> Trace {
    let text = |name: &str| match event {
        Event::Queue(messages) => messages
            .iter()
            .find_map(|message| message.attributes.get(name).cloned()),
        Event::Http(_) | Event::Tick => None,
    };
    let own = || parent(context.xray_trace_id.as_deref()?);
    Trace {
        parent: text("traceparent").or_else(own),
        batch: text("batch").or_else(|| match event {
            Event::Http(_) => Some(context.request_id.clone()),
            Event::Queue(_) | Event::Tick => None,
        }),
    }
}

/// The W3C `traceparent` of an X-Ray header: `Root=1-<8 hex>-<24 hex>;Parent=<16 hex>;Sampled=1`.
fn parent(header: &str) -> Option<String> {
    let field = |name: &str| {
        header
            .split(';')
            .filter_map(|part| part.trim().split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    };
    let root = field("Root")?.strip_prefix("1-")?.replace('-', "");
    let parent = field("Parent")?;
    let sampled = if field("Sampled") == Some("1") {
        "01"
    } else {
        "00"
    };
    let hex =
        |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    (hex(&root, 32) && hex(parent, 16)).then(|| format!("00-{root}-{parent}-{sampled}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn the_services_trace_is_written_as_everybody_reads_it() {
        let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        let parent_of = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        assert_eq!(parent(header).as_deref(), Some(parent_of));
        assert_eq!(parent("Root=1-x;Parent=y"), None);
        let mut context = Context::default();
        context.xray_trace_id = Some(header.to_owned());
        assert_eq!(
            of(&Event::Tick, &context).parent.as_deref(),
            Some(parent_of)
        );
        let message = Message {
            attributes: [("traceparent".to_owned(), "00-1".to_owned())].into(),
            ..Message::default()
        };
        let trace = of(&Event::Queue(vec![message]), &context);
        assert_eq!(trace.parent.as_deref(), Some("00-1"));
    }
}
