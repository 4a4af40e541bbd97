//! One directive: its lines, and where each part of it stands in the file.

/// A directive and its text, lines joined by a line break.
pub(super) struct Directive {
    /// Lower case, without `@`.
    pub(super) name: String,
    /// What follows the name.
    pub(super) text: String,
    // Per line of `text`: where it starts in `text`, its line, and its first column in the file.
    lines: Vec<(usize, usize, usize)>,
}

/// Directives that older projects write as comments, `-- config: ..`.
const COMMENTED: [&str; 4] = ["config", "assert", "description", "depends_on"];

impl Directive {
    /// A directive that begins on this line (from 1).
    pub(super) fn begins(line: &str, number: usize) -> Option<Self> {
        let body = line.trim_start();
        let (name, rest) = if let Some(after) = body.strip_prefix('@') {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            after.split_at(end.unwrap_or(after.len()))
        } else {
            let after = body.strip_prefix("--")?.trim_start();
            let (name, rest) = after.split_once(':')?;
            let known = COMMENTED
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name.trim()));
            known.then_some((name.trim(), rest))?
        };
        let text = rest.trim_start();
        let column = line[..line.len() - text.len()].chars().count() + 1;
        Some(Self {
            name: name.to_ascii_lowercase(),
            text: text.trim_end().to_owned(),
            lines: vec![(0, number, column)],
        })
    }

    /// Goes on over an indented line.
    pub(super) fn push(&mut self, line: &str, number: usize) {
        let text = line.trim_start();
        let column = line[..line.len() - text.len()].chars().count() + 1;
        self.text.push('\n');
        self.lines.push((self.text.len(), number, column));
        self.text.push_str(text.trim_end());
    }

    /// Line and column in the file of a byte of the text.
    pub(super) fn place(&self, byte: usize) -> (usize, usize) {
        let at = self
            .lines
            .partition_point(|(start, ..)| *start <= byte)
            .saturating_sub(1);
        let (start, line, column) = self.lines[at];
        (
            line,
            column + self.text[start..byte.max(start)].chars().count(),
        )
    }

    /// The pairs of a `@config`, each with the byte at which it starts. A comma starts a new pair only outside of
    /// parentheses and quotes, and only before `word =`: values may hold commas.
    pub(super) fn pairs(&self) -> Vec<(usize, String)> {
        let inner = unwrap(&self.text);
        let offset = self.text.find(inner).unwrap_or(0);
        let mut pairs = Vec::new();
        let (mut start, mut depth, mut quote) = (0, 0_usize, None);
        for (index, c) in inner.char_indices() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
                (None, ',') if depth == 0 && starts_pair(&inner[index + 1..]) => {
                    pairs.push((start, index));
                    start = index + 1;
                }
                (None, _) => {}
            }
        }
        pairs.push((start, inner.len()));
        let trim = |(start, end): (usize, usize)| {
            let raw = &inner[start..end];
            let pair = raw.trim().trim_end_matches(',').trim_end();
            let lead = raw.len() - raw.trim_start().len();
            (
                offset + start + lead,
                pair.split_whitespace().collect::<Vec<_>>().join(" "),
            )
        };
        pairs
            .into_iter()
            .map(trim)
            .filter(|(_, pair)| !pair.is_empty())
            .collect()
    }
}

fn starts_pair(rest: &str) -> bool {
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let after = rest[end..].trim_start();
    end > 0 && after.starts_with('=') && !after.starts_with("==") && !after.starts_with("=>")
}

/// Whether a line goes on with the directive above it: indented, and neither a directive nor the start of a query.
pub(super) fn continues(line: &str) -> bool {
    let body = line.trim_start();
    let word: String = body.chars().take_while(char::is_ascii_alphabetic).collect();
    let query = ["SELECT", "WITH", "FROM", "VALUES"]
        .iter()
        .any(|w| w.eq_ignore_ascii_case(&word));
    line.starts_with([' ', '\t'])
        && !body.is_empty()
        && !body.starts_with(['@', '('])
        && !body.starts_with("--")
        && !query
}

/// The text inside one pair of parentheses around all of it; else the text.
pub(super) fn unwrap(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else {
        return text;
    };
    // `(a) AND (b)` begins and ends with parentheses that are no pair.
    let mut depth = 0_i32;
    for c in inner.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth < 0 {
            return text;
        }
    }
    inner.trim()
}

/// A value without one pair of quotes around all of it.
pub(super) fn unquote(value: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| {
            let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
            (!inner.contains(quote)).then_some(inner)
        })
        .unwrap_or(value)
}
