//! `@config k=v, ...`: pairs whose values may hold commas.

use super::{CONFIG_KEYS, Header, Problem, body::scan, lines::Directive};
use crate::name::is_identifier;

/// Adds a directive's pairs to the header.
///
/// A comma begins a pair only before `name=`; so does a line that begins with a known key. Parentheses and quotes are
/// respected, and quotes around a whole value are taken off.
pub(super) fn read(directive: &Directive, header: &mut Header) {
    let body = &directive.body;
    if body.text.trim().is_empty() {
        let message = "`@config` needs key=value pairs".to_owned();
        header
            .problems
            .push(directive.problem("config_invalid", message));
    }
    let mut begin = 0;
    for end in splits(&body.text).into_iter().chain([body.text.len()]) {
        let piece = &body.text[begin..end];
        let pair = piece.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        let offset = end - pair.len();
        let pair = pair.trim_end_matches(|c: char| c == ',' || c.is_whitespace());
        begin = end;
        if pair.is_empty() {
            continue;
        }
        let (line, column) = body.position(offset);
        match pair.split_once('=') {
            Some((key, value)) if is_identifier(key.trim()) => {
                header.config.push((
                    key.trim().to_ascii_lowercase(),
                    unquoted(value.trim()).to_owned(),
                    line,
                    column,
                ));
            }
            _ => {
                let message = format!("`{pair}` is not of the form key=value");
                header.problems.push(Problem {
                    code: "config_invalid",
                    message,
                    line,
                    column,
                });
            }
        }
    }
}

/// Offsets at which pairs after the first begin.
fn splits(text: &str) -> Vec<usize> {
    let (mut depth, mut found) = (0_usize, Vec::new());
    scan(text, |at, ch| {
        match ch {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 && key_at(&text[at + 1..]).is_some() => found.push(at),
            '\n' if depth == 0 => {
                // Only `key=` with nothing between: a condition goes on with ` = `.
                let rest = &text[at + 1..];
                if key_at(rest).is_some_and(|key| {
                    CONFIG_KEYS.contains(&key) && rest[key.len()..].starts_with('=')
                }) {
                    found.push(at);
                }
            }
            _ => {}
        }
        true
    });
    found
}

/// The identifier that a single `=` follows at the start of a text, white space aside.
pub(super) fn key_at(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    let rest = text[end..].trim_start().strip_prefix('=')?;
    (is_identifier(&text[..end]) && !rest.starts_with('=')).then(|| &text[..end])
}

fn unquoted(value: &str) -> &str {
    for quote in ['\'', '"'] {
        if let Some(inner) = value
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
            && !inner.contains(quote)
        {
            return inner;
        }
    }
    value
}
