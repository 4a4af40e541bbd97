//! What a directive says: its lines put together, and where each character stands in the file.

/// Text of a directive behind its name. Lines are joined by `\n`, each without the white space around it.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) text: String,
    /// Where pieces begin: byte offset in `text`, line and column of the file.
    marks: Vec<(usize, usize, usize)>,
}

impl Body {
    /// Adds a piece of a line; `column` is where `piece` begins, from 1.
    pub(super) fn push(&mut self, piece: &str, line: usize, column: usize) {
        let trimmed = piece.trim_start();
        let indent = piece.chars().count() - trimmed.chars().count();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.marks.push((self.text.len(), line, column + indent));
        self.text.push_str(trimmed.trim_end());
    }

    /// Line and column of a byte of the text.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let mark = self.marks.iter().rev().find(|(begin, ..)| *begin <= offset);
        let (begin, line, column) = mark.copied().unwrap_or((0, 0, 0));
        let between = self.text.get(begin..offset).unwrap_or("");
        (line, column + between.chars().count())
    }

    /// The text on one line.
    pub(super) fn flat(&self) -> String {
        self.text
            .split('\n')
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Takes the parentheses off when the first closes at the end, or before a comma (`(check), severity=warn`).
    pub(super) fn unwrap_parentheses(&mut self) -> bool {
        let Some(close) = self
            .text
            .starts_with('(')
            .then(|| closing(&self.text))
            .flatten()
        else {
            return false;
        };
        let rest = self.text[close + 1..].trim();
        if !(rest.is_empty() || rest.starts_with(',')) {
            return false;
        }
        // Spaces keep every other character where its mark says it is.
        self.text.replace_range(close..=close, " ");
        self.text.replace_range(..1, " ");
        let end = self.text.trim_end().len();
        self.text.truncate(end);
        true
    }

    /// How deep parentheses are still open at the end.
    pub(super) fn is_open(&self) -> bool {
        let mut depth = 0_usize;
        scan(&self.text, |_, ch| {
            match ch {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            true
        });
        depth > 0
    }
}

/// Byte offset of the parenthesis that closes the one at the start.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut close) = (0_usize, None);
    scan(text, |at, ch| {
        match ch {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    close = Some(at);
                }
            }
            _ => {}
        }
        close.is_none()
    });
    close
}

/// Calls `on` with the offset of every character outside quotes until it answers false. A quote that never closes is an
/// ordinary character.
pub(super) fn scan(text: &str, mut on: impl FnMut(usize, char) -> bool) {
    let mut at = 0;
    while let Some(ch) = text[at..].chars().next() {
        let next = at + ch.len_utf8();
        if matches!(ch, '\'' | '"')
            && let Some(length) = text[next..].find(ch)
        {
            at = next + length + 1;
            continue;
        }
        if !on(at, ch) {
            return;
        }
        at = next;
    }
}
