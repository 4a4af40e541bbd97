//! Texts of settings as values: sizes, booleans, counts, column types, and the nearest of several
//! names.

/// Bytes: `16MB`, `512 KiB`, `1GB`, `4096`. Units are powers of 1024, with or without the `i`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(not_a_size(text)),
    };
    let number: usize = number
        .replace('_', "")
        .parse()
        .map_err(|_| not_a_size(text))?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| not_a_size(text))
}

fn not_a_size(text: &str) -> String {
    format!("`{text}` is not a size: write a whole number above 0 and a unit, such as `16MB`")
}

/// `true`, `false`, and what people write for them in variables.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}

/// A whole number above 0.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.trim().replace('_', "").parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{text}` is not a whole number above 0")),
    }
}

/// Names with `between` between them: `shop, sku`.
pub(crate) fn names(text: &str, between: char) -> Result<Vec<String>, String> {
    let names: Vec<_> = text
        .split(between)
        .map(|name| name.trim().to_owned())
        .collect();
    if names.iter().any(String::is_empty) {
        return Err(format!(
            "`{text}` must be names with `{between}` between them"
        ));
    }
    Ok(names)
}

/// A column type of a landing table, in its canonical spelling.
pub(crate) fn column_kind(text: &str) -> Result<String, String> {
    const PLAIN: [&str; 7] = [
        "BIGINT",
        "DOUBLE",
        "VARCHAR",
        "BOOLEAN",
        "TIMESTAMP",
        "DATE",
        "BLOB",
    ];
    let upper: String = text.to_ascii_uppercase().split_whitespace().collect();
    if PLAIN.contains(&upper.as_str()) || is_decimal(&upper) {
        return Ok(upper);
    }
    let hint = nearest(&upper, PLAIN)
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default();
    Err(format!(
        "`{text}` is not a column type (one of {}, DECIMAL(p,s)){hint}",
        PLAIN.join(", ")
    ))
}

fn is_decimal(upper: &str) -> bool {
    let inner = upper
        .strip_prefix("DECIMAL(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some((precision, scale)) = inner.and_then(|inner| inner.split_once(',')) else {
        return false;
    };
    match (precision.parse::<u8>(), scale.parse::<u8>()) {
        (Ok(precision), Ok(scale)) => (1..=38).contains(&precision) && scale <= precision,
        _ => false,
    }
}

/// The name most like `name`, if one is close enough to have been meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The name that is all but `name`: one edit away, or two of a long one.
pub(crate) fn mistyped<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let mut near = known.into_iter();
    near.find(|candidate| (1..=candidate.len() / 4).contains(&edits(name, candidate)))
}

/// Edits from one text to the other: insertions, deletions and replacements of a character.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, bytes) in [
            ("16MB", 16 << 20),
            ("512 KiB", 512 << 10),
            ("1g", 1 << 30),
            ("4_096", 4096),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "MB", "1.5MB", "-1", "0", "99999999999GB", "12 parsecs"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn column_types_are_spelled_one_way() {
        assert_eq!(
            column_kind("decimal( 10, 2 )").as_deref(),
            Ok("DECIMAL(10,2)")
        );
        assert_eq!(column_kind("bigint").as_deref(), Ok("BIGINT"));
        assert!(
            column_kind("BIGINTS")
                .expect_err("no type")
                .contains("did you mean `BIGINT`?")
        );
        assert!(column_kind("DECIMAL(50,2)").is_err());
    }

    #[test]
    fn the_nearest_name_is_a_plausible_one() {
        let known = ["debounce", "min_interval", "max_lag"];
        assert_eq!(nearest("debonce", known), Some("debounce"));
        assert_eq!(nearest("colour", known), None);
    }
}
