//! A table that fits its terminal: text goes over several lines; numbers, names and moments never do.

use std::fmt;

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, TableComponent,
    Width, presets,
};

use super::is_coloured;

/// Longest figure or moment that is kept on one line though it has spaces in it, in characters.
const FIGURE_MAX: usize = 32;
/// Longest word that is kept on one line, in characters: a digest in hexadecimal digits.
const WORD_MAX: usize = 64;
/// Blanks around the content of a cell.
const PADDING: u16 = 2;

/// Rows under titles.
#[derive(Clone, Debug)]
pub struct Table {
    inner: comfy_table::Table,
    /// What each column needs at least, its padding included; 0 for one that is left out.
    least: Vec<u16>,
    /// Columns that are left out of a screen too narrow for all, the first of them first.
    spare: Vec<usize>,
    /// Columns of the screen; none when there is no screen, or when it does not say.
    width: Option<u16>,
}

impl Table {
    /// An empty table with these titles, those with `>` before them to the right.
    pub(super) fn new(titles: &[&str]) -> Self {
        let mut inner = comfy_table::Table::new();
        if is_coloured() {
            inner.enforce_styling();
        } else {
            inner.force_no_tty();
        }
        let width = inner.width();
        Self::over(inner, titles, width)
    }

    fn over(mut inner: comfy_table::Table, titles: &[&str], width: Option<u16>) -> Self {
        inner.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        // A rule under the titles is enough; one under every row drowns the rows.
        for line in [
            TableComponent::HorizontalLines,
            TableComponent::MiddleIntersections,
            TableComponent::TopBorder,
            TableComponent::TopBorderIntersections,
            TableComponent::TopLeftCorner,
            TableComponent::TopRightCorner,
            TableComponent::BottomBorder,
            TableComponent::BottomBorderIntersections,
            TableComponent::BottomLeftCorner,
            TableComponent::BottomRightCorner,
        ] {
            inner.remove_style(line);
        }
        // A terminal that tells no width, or none, is as wide as the rows.
        let width = width.filter(|width| *width > 0);
        let arrangement = match width {
            Some(_) => ContentArrangement::Dynamic,
            None => ContentArrangement::Disabled,
        };
        inner.set_content_arrangement(arrangement);
        let titles: Vec<(&str, CellAlignment)> = titles
            .iter()
            .map(|title| match title.strip_prefix('>') {
                Some(name) => (name, CellAlignment::Right),
                None => (*title, CellAlignment::Left),
            })
            .collect();
        inner.set_header(titles.iter().map(|(name, alignment)| {
            let cell = Cell::new(name).set_alignment(*alignment);
            cell.add_attribute(Attribute::Bold)
        }));
        let mut table = Self {
            inner,
            least: Vec::new(),
            spare: Vec::new(),
            width,
        };
        table.widen(titles.iter().map(|(name, _)| least(name)).collect());
        table
    }

    /// The same table, which may leave these columns out where there is no room for all, the first of them first.
    #[must_use]
    pub fn with_spare(mut self, columns: &[usize]) -> Self {
        self.spare = columns.iter().rev().copied().collect();
        self
    }

    /// Adds a row.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        let needed = cells.iter().map(|cell| least(&cell.content())).collect();
        self.inner.add_row(Row::from(cells));
        self.widen(needed);
    }

    /// Has columns be as wide as words need that must not be broken.
    fn widen(&mut self, needed: Vec<u16>) {
        let Some(width) = self.width else {
            return;
        };
        for (at, needed) in needed.into_iter().enumerate() {
            if self.least.len() <= at {
                self.least.push(0);
            } else if self.least[at] == 0 {
                continue;
            }
            if needed > self.least[at]
                && let Some(column) = self.inner.column_mut(at)
            {
                self.least[at] = needed;
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(needed)));
            }
        }
        while self
            .least
            .iter()
            .map(|least| u32::from(*least))
            .sum::<u32>()
            > u32::from(width)
            && let Some(at) = self.spare.pop()
        {
            if let Some(column) = self.inner.column_mut(at) {
                self.least[at] = 0;
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
    }
}

/// The least width of a cell.
fn least(content: &str) -> u16 {
    let line = |line: &str| {
        let length = line.chars().count();
        let is_figure = line.starts_with(|c: char| c.is_ascii_digit() || "-+<".contains(c));
        if is_figure && length <= FIGURE_MAX {
            return length;
        }
        let words = line.split(' ').map(|word| word.chars().count());
        words.max().unwrap_or(0).min(WORD_MAX)
    };
    let longest = content.lines().map(line).max().unwrap_or(0);
    PADDING + u16::try_from(longest).unwrap_or(u16::MAX - PADDING)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: Option<u16>, spare: &[usize], titles: &[&str], rows: &[&[&str]]) -> String {
        let mut inner = comfy_table::Table::new();
        inner.force_no_tty();
        inner.set_width(width.unwrap_or(0));
        let mut table = Table::over(inner, titles, width).with_spare(spare);
        for row in rows {
            table.add_row(row.iter().map(Cell::new));
        }
        table.to_string()
    }

    const ROWS: &[&[&str]] = &[&[
        "silver.orders",
        "1,545",
        "2026-11-30 07:52:43",
        "a sentence that goes on for longer than there is room for it in a line",
    ]];
    const TITLES: &[&str] = &["model", ">rows", "last refresh", "why"];

    #[test]
    fn names_figures_and_moments_stay_on_one_line() {
        for width in [10, 40, 60, 80, 200] {
            let text = drawn(Some(width), &[], TITLES, ROWS);
            for word in ["silver.orders", "1,545", "2026-11-30 07:52:43", "sentence"] {
                assert!(text.contains(word), "{width}: no `{word}` in\n{text}");
            }
        }
        let text = drawn(Some(80), &[], TITLES, ROWS);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{text}");
    }

    #[test]
    fn a_screen_without_a_width_is_wide_enough() {
        for width in [None, Some(0)] {
            let text = drawn(width, &[], TITLES, ROWS);
            assert!(text.contains(ROWS[0][3]), "{width:?}\n{text}");
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }

    #[test]
    fn a_narrow_screen_leaves_spare_columns_out() {
        let wide = drawn(Some(120), &[2], TITLES, ROWS);
        assert!(wide.contains("07:52:43"), "{wide}");
        let narrow = drawn(Some(40), &[2], TITLES, ROWS);
        assert!(!narrow.contains("07:52:43"), "{narrow}");
        assert!(!narrow.contains("refresh"), "{narrow}");
        assert!(narrow.contains("silver.orders"), "{narrow}");
    }
}
