//! The name that was probably meant.

use domain::TableName;

/// Most names listed when none is near.
const LISTED_MAX: usize = 5;

/// A clause for a message: the nearest of the names, or the first few of them.
pub(crate) fn hint<'a>(name: &TableName, known: impl Iterator<Item = &'a TableName>) -> String {
    let asked = name.to_string();
    let mut names: Vec<String> = known.map(ToString::to_string).collect();
    let near = names
        .iter()
        .map(|name| (distance(&asked, name), name))
        .min();
    if let Some((distance, name)) = near
        && distance <= 1 + asked.len() / 4
    {
        return format!("; did you mean {name}?");
    }
    names.truncate(LISTED_MAX);
    if names.is_empty() {
        String::new()
    } else {
        format!("; there are {}", names.join(", "))
    }
}

/// Edits that turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
