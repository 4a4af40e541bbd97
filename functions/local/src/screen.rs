//! What people see: lines, tables, and a table that is drawn over again in place.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use comfy_table::{Cell, CellAlignment, Color};
use domain::Duration;

mod table;

pub use table::Table;

/// Whether stdout takes colours: a terminal, and `NO_COLOR` is not set.
#[must_use]
pub fn is_coloured() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Whether stdout is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a line to stdout.
///
/// # Errors
/// When stdout is closed.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}")
}

/// Writes a line to stderr. Nothing depends on anybody reading it, so one that cannot be written is let go.
pub fn remark(line: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// An empty table with these column titles; those that start with `>` stand to the right, over
/// figures.
#[must_use]
pub fn table(titles: &[&str]) -> Table {
    Table::new(titles)
}

/// A cell of text.
#[must_use]
pub fn text(text: impl ToString) -> Cell {
    Cell::new(text)
}

/// A cell of digits, to the right.
#[must_use]
pub fn number(number: u64) -> Cell {
    Cell::new(count(number)).set_alignment(CellAlignment::Right)
}

/// A cell of other figures, to the right.
#[must_use]
pub fn right(figure: impl ToString) -> Cell {
    Cell::new(figure).set_alignment(CellAlignment::Right)
}

/// A cell in a colour.
#[must_use]
pub fn coloured(text: impl ToString, colour: Color) -> Cell {
    Cell::new(text).fg(colour)
}

/// A count with thousands set apart: `336,776`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 row`, `1,200 rows`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        count(number),
        if number == 1 { "" } else { "s" }
    )
}

/// A span in its natural unit: `87 ms`, `1.2 s`, `4 min`, `2.5 h`.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        s if s <= 0.0 => String::from("0 s"),
        s if s < 0.001 => String::from("<1 ms"),
        s if s < 1.0 => format!("{:.0} ms", s * 1_000.0),
        s if s < 90.0 => format!("{s:.1} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// An RFC 3339 moment for people, in UTC: `2026-11-29 16:44:49`.
#[must_use]
pub fn moment(moment: &str) -> String {
    let whole = moment.split(['.', 'Z']).next().unwrap_or(moment);
    whole.replace('T', " ")
}

/// A block of lines that each drawing puts in the place of the last.
#[derive(Debug, Default)]
pub struct Canvas {
    lines: usize,
}

impl Canvas {
    /// Draws `block` over what was drawn before.
    ///
    /// # Errors
    /// When stdout is closed.
    pub fn draw(&mut self, block: &str) -> io::Result<()> {
        if self.lines == 0 && block.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if self.lines > 0 {
            // Up to the first line of the last drawing, then clear to the end of the screen.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        self.lines = block.lines().count();
        // A line of the block is one of the screen: what is longer ends at its edge.
        write!(out, "\x1b[?7l")?;
        for line in block.lines() {
            writeln!(out, "{line}")?;
        }
        write!(out, "\x1b[?7h")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_easily() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(336_776)],
            ["0", "999", "1,000", "336,776"]
        );
        assert_eq!(counted(1, "row"), "1 row");
        for at in ["2026-11-29T16:44:49Z", "2026-11-29T16:44:49.936947Z"] {
            assert_eq!(moment(at), "2026-11-29 16:44:49");
        }
        let spans = [0, 250, 87_000, 1_234_000, 300_000_000, 9_000_000_000]
            .map(Duration::from_micros)
            .map(span);
        assert_eq!(spans, ["0 s", "<1 ms", "87 ms", "1.2 s", "5 min", "2.5 h"]);
    }
}
