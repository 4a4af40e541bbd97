//! A body's events: found, validated, and kept as the text they were sent in.

use ports::{Error, Kind, Result};

use super::{Format, json};

/// Most events of one body: what a row takes beside its text is more than the shortest event.
const EVENTS_MAX: usize = 500_000;

/// JSON's own white space.
const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// One event: its text without the white space around it, and where it begins in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) text: &'a str,
    /// Line of the body, from 1.
    pub(super) line: usize,
}

/// What some editors and programs put before a text in UTF-8; it is no part of it.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// A text without the mark before it.
pub(super) fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// The events of a body, in order.
///
/// # Errors
/// `Invalid` with line and column for a body that is no UTF-8, is empty, or holds anything but JSON. `subject` is the
/// source.
pub(super) fn split<'a>(subject: &str, body: &'a [u8], format: Format) -> Result<Vec<Event<'a>>> {
    let body = unmarked(body);
    let text = std::str::from_utf8(body).map_err(|error| {
        let (line, column) = json::position(body, error.valid_up_to());
        refuse(
            subject,
            format!("not UTF-8 at line {line}, column {column}"),
        )
    })?;
    let mut events = Vec::new();
    match format {
        Format::Json => {
            let event = text.trim_matches(BLANK);
            if !event.is_empty() {
                // Checked with the space before it, so that the position is the body's.
                json::check(text).map_err(|problem| refuse(subject, problem.to_string()))?;
                events.push(Event {
                    text: event,
                    line: 1,
                });
            }
        }
        Format::Ndjson => {
            // A line is seldom shorter.
            events.reserve(text.len() / 64);
            for (index, whole) in text.split('\n').enumerate() {
                let event = whole.trim_matches(BLANK);
                if event.is_empty() {
                    continue;
                }
                json::check(whole).map_err(|problem| {
                    let (line, column) = (index + 1, problem.column);
                    refuse(
                        subject,
                        format!("{} at line {line}, column {column}", problem.reason),
                    )
                })?;
                if events.len() == EVENTS_MAX {
                    let why = format!("more than {EVENTS_MAX} events in one body; send several");
                    return Err(Error::new(Kind::TooLarge, "read events for", subject).because(why));
                }
                events.push(Event {
                    text: event,
                    line: index + 1,
                });
            }
        }
    }
    if events.is_empty() {
        return Err(refuse(subject, "the body is empty".into()));
    }
    Ok(events)
}

impl Format {
    /// The format of a body of which its sender said nothing: lines when its first line is a whole JSON value and is not
    /// all there is. No body that is one JSON value is like that, so nothing is read in two ways.
    #[must_use]
    pub fn guess(body: &[u8]) -> Self {
        let body = unmarked(body).trim_ascii_start();
        let end = body.iter().position(|byte| *byte == b'\n');
        let (first, rest) = body.split_at(end.unwrap_or(body.len()));
        let whole = || std::str::from_utf8(first).is_ok_and(|first| json::check(first).is_ok());
        match !rest.trim_ascii().is_empty() && whole() {
            true => Self::Ndjson,
            false => Self::Json,
        }
    }
}

pub(super) fn refuse(subject: &str, why: String) -> Error {
    Error::new(Kind::Invalid, "read events for", subject).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], format: Format, expected: std::result::Result<&[&str], &str>) {
        match (split("orders", body, format), expected) {
            (Ok(events), Ok(expected)) => {
                assert_eq!(
                    events.iter().map(|event| event.text).collect::<Vec<_>>(),
                    expected
                );
            }
            (Err(error), Err(expected)) => {
                assert_eq!(error.kind, Kind::Invalid);
                assert!(error.chain().contains(expected), "{}", error.chain());
            }
            (found, _) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn any_json_value_is_an_event_as_sent() {
        for text in [
            "{\"n\": 9007199254740993}",
            "[1, 2]",
            "\"x\"",
            "1.50",
            "null",
            "true",
        ] {
            check(format!(" {text}\r\n").as_bytes(), Format::Json, Ok(&[text]));
        }
        for format in [Format::Json, Format::Ndjson] {
            check("\u{feff}{\"a\":1}".as_bytes(), format, Ok(&["{\"a\":1}"]));
        }
        check(
            b"{\"a\":1}\n\n  \r\n [2] \r\n3",
            Format::Ndjson,
            Ok(&["{\"a\":1}", "[2]", "3"]),
        );
    }

    #[test]
    fn lines_are_known_without_being_told() {
        for (body, lines) in [
            ("{\"id\":1}\n{\"id\":2}\n", true),
            ("\r\n 1\r\n2", true),
            ("{}\nnonsense", true),
            ("\u{feff}{\"id\":1}\n{\"id\":2}\n", true),
            ("{\"id\":1}\n", false),
            ("{\n\"id\":1}\n", false),
            ("[1,\n2]", false),
            ("{} {}", false),
            ("", false),
        ] {
            let guessed = Format::guess(body.as_bytes());
            assert_eq!(guessed == Format::Ndjson, lines, "{body:?}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_position() {
        check(b"", Format::Json, Err("empty"));
        check(b" \n\r\n", Format::Ndjson, Err("empty"));
        check(b"{\"a\":\n  x}", Format::Json, Err("line 2, column 3"));
        check(
            b"{} {}",
            Format::Json,
            Err("trailing characters at line 1, column 4"),
        );
        check(b"{}\n{\"a\":}\n{}", Format::Ndjson, Err("line 2, column 6"));
        check(
            b"{}\n\"\xff\"",
            Format::Ndjson,
            Err("not UTF-8 at line 2, column 2"),
        );
        check(b"{\"a\":\n1}", Format::Ndjson, Err("line 1"));
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        check(
            deep.as_bytes(),
            Format::Json,
            Err("nested deeper than 128 levels"),
        );
        check("[".repeat(20_000_000).as_bytes(), Format::Json, Err("EOF"));
    }
}
