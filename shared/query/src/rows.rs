//! Which rows of a file are read: a window of row numbers without the deleted ones.

use std::ops::Range;

use datafusion::parquet::arrow::arrow_reader::RowSelection;
use ports::tables::FilePart;

/// Row numbers within `window` that are not deleted, as ascending ranges without empty ones.
pub(crate) fn live(file: &FilePart, window: Range<u64>) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut start = window.start;
    if let Some(deleted) = &file.deleted {
        for row in deleted.iter().skip_while(|row| *row < window.start) {
            if row >= window.end {
                break;
            }
            if row > start {
                ranges.push(start..row);
            }
            start = row + 1;
        }
    }
    if start < window.end {
        ranges.push(start..window.end);
    }
    ranges
}

/// Ascending row numbers as ranges of neighbours.
pub(crate) fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// The same for the parquet reader; `rows` is the file's row count.
pub(crate) fn selection(ranges: &[Range<u64>], rows: u64) -> RowSelection {
    let index = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
    let ranges = ranges
        .iter()
        .map(|range| index(range.start)..index(range.end));
    RowSelection::from_consecutive_ranges(ranges, index(rows))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn deleted_rows_split_the_window() {
        let file = |deleted: &[u64]| FilePart {
            path: String::new(),
            size: 0,
            rows: 10,
            first_sequence: None,
            deleted: Some(Arc::new(deleted.iter().copied().collect())),
            bounds: Default::default(),
        };
        assert_eq!(live(&file(&[]), 0..10), vec![0..10; 1]);
        assert_eq!(live(&file(&[0, 1, 4, 9]), 0..10), [2..4, 5..9]);
        assert_eq!(live(&file(&[0, 4, 7]), 4..7), vec![5..7; 1]);
        assert!(live(&file(&[3]), 3..4).is_empty());
        assert_eq!(runs([0, 1, 5, 7, 8].into_iter()), [0..2, 5..6, 7..9]);
        assert!(runs(std::iter::empty()).is_empty());
    }
}
