//! Assertions as SQL: each becomes a count of what breaks it.

use domain::{
    Assert, TableName,
    name::{is_identifier, nearest},
    sql,
};
use ports::{Error, Kind, Result};

/// What an assertion measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Rows of the table that meet a predicate break it.
    Rows(String),
    /// A statement of its own returns the number that breaks it.
    Count(String),
    /// The number of rows is compared.
    RowCount(Comparison, u64),
}

/// How a number of rows is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `=` or `==`
    Equal,
    /// `!=` or `<>`
    NotEqual,
}

impl Comparison {
    /// Whether it holds.
    pub(crate) fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl Check {
    /// Reads an assertion.
    ///
    /// # Errors
    /// `Invalid` for a form nobody knows.
    pub(crate) fn read(table: &TableName, assert: &Assert) -> Result<Self> {
        let text = assert.expression.trim();
        read(table, text).map_err(|why| {
            Error::new(Kind::Invalid, "read assertion", text).because(format!("{why} ({table})"))
        })
    }

    /// The statement that asks for its count alone, over the model's table.
    pub(crate) fn statement(&self, table: &TableName) -> String {
        match self {
            Self::Rows(predicate) => {
                format!("SELECT COUNT(*) FILTER (WHERE {predicate}) FROM {table}")
            }
            Self::Count(sql) => sql.clone(),
            Self::RowCount(..) => format!("SELECT COUNT(*) FROM {table}"),
        }
    }

    /// What the check found wrong, if anything; `found` is the count it asked for.
    pub(crate) fn verdict(&self, expression: &str, found: u64) -> Option<String> {
        match self {
            Self::RowCount(comparison, wanted) if comparison.holds(found, *wanted) => None,
            Self::RowCount(..) => Some(format!("`{expression}`: the table has {found} rows")),
            Self::Rows(_) | Self::Count(_) if found == 0 => None,
            Self::Rows(_) | Self::Count(_) => {
                let rows = if found == 1 {
                    "row breaks"
                } else {
                    "rows break"
                };
                Some(format!("`{expression}`: {found} {rows} it"))
            }
        }
    }
}

/// Names of the checks that are written as calls.
const FORMS: [&str; 5] = [
    "no_nulls",
    "not_null",
    "unique",
    "accepted_values",
    "relationships",
];

fn read(table: &TableName, text: &str) -> Result<Check, String> {
    if let Some(rest) = text.strip_prefix("row_count") {
        return row_count(rest.trim_start());
    }
    let Some((name, arguments)) = call(text) else {
        return condition(text);
    };
    match name.to_ascii_lowercase().as_str() {
        "no_nulls" | "not_null" => {
            let nulls: Vec<_> = columns(&arguments)?
                .iter()
                .map(|c| format!("{c} IS NULL"))
                .collect();
            Ok(Check::Rows(nulls.join(" OR ")))
        }
        "unique" => {
            let key = columns(&arguments)?.join(", ");
            Ok(Check::Count(format!(
                "SELECT COUNT(*) FROM (SELECT COUNT(*) AS _rows FROM {table} GROUP BY {key}) AS _keys WHERE _rows > 1"
            )))
        }
        "accepted_values" => accepted_values(&arguments),
        "relationships" => relationships(table, &arguments),
        other => match nearest(other, FORMS) {
            Some(near) => Err(format!("there is no `{name}`; did you mean `{near}`?")),
            None => condition(text),
        },
    }
}

/// `name(arguments)`, when the text is one call and nothing else.
fn call(text: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    is_identifier(name.trim()).then(|| (name.trim(), split(inner)))
}

/// Splits at commas outside brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_i32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            (None, _) => {}
        }
    }
    let last = text[from..].trim();
    if !last.is_empty() || !parts.is_empty() {
        parts.push(last);
    }
    parts
}

fn columns(arguments: &[&str]) -> Result<Vec<String>, String> {
    if arguments.is_empty() {
        return Err(String::from("it names no column"));
    }
    arguments.iter().map(|argument| column(argument)).collect()
}

/// A column name, as it may stand in SQL.
fn column(text: &str) -> Result<String, String> {
    let quoted = text.len() > 2 && text.starts_with('"') && text.ends_with('"');
    if is_identifier(text) || quoted && !text[1..text.len() - 1].contains('"') {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is no column name"))
}

fn row_count(rest: &str) -> Result<Check, String> {
    const WORDS: [(&str, Comparison); 8] = [
        (">=", Comparison::GreaterOrEqual),
        ("<=", Comparison::LessOrEqual),
        ("!=", Comparison::NotEqual),
        ("<>", Comparison::NotEqual),
        ("==", Comparison::Equal),
        (">", Comparison::Greater),
        ("<", Comparison::Less),
        ("=", Comparison::Equal),
    ];
    let found = WORDS.iter().find_map(|(word, comparison)| {
        let number = rest.strip_prefix(word)?.trim().replace('_', "");
        Some((*comparison, number.parse().ok()?))
    });
    let (comparison, number) = found
        .ok_or("write `row_count`, a comparison and a whole number, such as `row_count > 0`")?;
    Ok(Check::RowCount(comparison, number))
}

fn accepted_values(arguments: &[&str]) -> Result<Check, String> {
    const FORM: &str = "write `accepted_values(column, ['a', 'b'])`";
    let (name, values) = arguments.split_first().ok_or(FORM)?;
    let name = column(name)?;
    let list = match values {
        [list] => match list.strip_prefix('[') {
            Some(list) => split(list.strip_suffix(']').ok_or(FORM)?),
            None => vec![*list],
        },
        several => several.to_vec(),
    };
    let list: Vec<_> = list.into_iter().map(literal).collect::<Result<_, _>>()?;
    if list.is_empty() {
        return Err(String::from(FORM));
    }
    Ok(Check::Rows(format!(
        "{name} IS NOT NULL AND {name} NOT IN ({})",
        list.join(", ")
    )))
}

/// A number, a word, or a text in either quotes, as a SQL literal.
fn literal(text: &str) -> Result<String, String> {
    let inner = |quote| text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    if text.len() >= 2 {
        if let Some(inner) = inner('\'') {
            let doubled = inner.replace("''", "").contains('\'');
            return if doubled {
                Err(bad_value(text))
            } else {
                Ok(text.to_owned())
            };
        }
        if let Some(inner) = inner('"') {
            return Ok(format!("'{}'", inner.replace('\'', "''")));
        }
    }
    let word = matches!(text.to_ascii_lowercase().as_str(), "true" | "false");
    if word || text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Ok(text.to_owned());
    }
    Err(bad_value(text))
}

fn bad_value(text: &str) -> String {
    format!("`{text}` is no value: write a number, true, false, or a text in quotes")
}

fn relationships(table: &TableName, arguments: &[&str]) -> Result<Check, String> {
    const FORM: &str = "write `relationships(column, schema.table, column)`";
    let [name, other, key] = arguments else {
        return Err(String::from(FORM));
    };
    let (name, key) = (column(name)?, column(key)?);
    let other: TableName = other.parse().map_err(|error| format!("{error}; {FORM}"))?;
    Ok(Check::Count(format!(
        "SELECT COUNT(*) FROM {table} AS _t LEFT ANTI JOIN {other} AS _o ON _t.{name} = _o.{key} WHERE _t.{name} IS NOT NULL"
    )))
}

/// A condition that every row must meet; like a CHECK, it is met where it is NULL.
fn condition(text: &str) -> Result<Check, String> {
    if text.is_empty() {
        return Err(String::from("it is empty"));
    }
    let predicate = format!("NOT ({text})");
    // Brackets that close more than they open, or a comment, would make it part of another statement.
    sql::parse(&format!("SELECT {predicate}\n"))
        .and_then(|_| sql::parse(&format!("SELECT ({text}\n)")))
        .map_err(|error| {
            format!("it is no condition on a row ({error}); write one, such as `amount >= 0`")
        })?;
    Ok(Check::Rows(predicate))
}

#[cfg(test)]
mod tests {
    use domain::Severity;

    use super::*;

    fn check(text: &str) -> Result<Check, String> {
        let table = TableName::new("silver", "orders").expect("a name");
        let assert = Assert {
            expression: text.to_owned(),
            severity: Severity::Error,
            line: 1,
        };
        Check::read(&table, &assert).map_err(|error| error.chain())
    }

    fn rows(predicate: &str) -> Result<Check, String> {
        Ok(Check::Rows(predicate.to_owned()))
    }

    #[test]
    fn known_forms_count_what_breaks_them() {
        assert_eq!(check("no_nulls(x)"), rows("x IS NULL"));
        assert_eq!(
            check("not_null(a, \"b c\")"),
            rows("a IS NULL OR \"b c\" IS NULL")
        );
        assert_eq!(
            check("accepted_values(s, ['a', \"it's\", 3])"),
            rows("s IS NOT NULL AND s NOT IN ('a', 'it''s', 3)")
        );
        assert_eq!(
            check("row_count > 0"),
            Ok(Check::RowCount(Comparison::Greater, 0))
        );
        assert_eq!(
            check("row_count>=1_000"),
            Ok(Check::RowCount(Comparison::GreaterOrEqual, 1000))
        );
        assert_eq!(
            check("unique(a, b)"),
            Ok(Check::Count(
                "SELECT COUNT(*) FROM (SELECT COUNT(*) AS _rows FROM silver.orders GROUP BY a, b) AS _keys WHERE _rows > 1"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn any_other_text_is_a_condition_on_every_row() {
        assert_eq!(check("amount >= 0"), rows("NOT (amount >= 0)"));
        assert_eq!(
            check("length(name) > 0 AND x"),
            rows("NOT (length(name) > 0 AND x)")
        );
    }

    #[test]
    fn a_form_nobody_knows_says_what_to_write() {
        for (text, part) in [
            ("row_count about 5", "row_count > 0"),
            ("no_nulls()", "names no column"),
            ("uniqe(id)", "did you mean `unique`"),
            ("v >= ", "no condition on a row"),
            ("v >= 0 severity", "no condition on a row"),
            ("v -- x", "no condition on a row"),
            ("no_nulls(x; drop)", "`x; drop` is no column name"),
            ("accepted_values(s, [a])", "text in quotes"),
            ("relationships(a, b)", "schema.table"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
