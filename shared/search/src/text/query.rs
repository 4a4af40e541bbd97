//! Queries: from their text to the best rows.

use std::sync::Arc;

use ports::{
    Error, Kind, Result,
    search::{Hit, Words},
};
use tantivy::{
    DocAddress, Score, Searcher,
    collector::{FilterCollector, TopDocs},
    query::{Query, QueryParser, QueryParserError},
    query_grammar::parse_query_lenient,
    schema::Field,
};

use super::{ROW, TextIndex, unread};

/// Longest query in bytes, and how deep its parentheses may be: the parser goes as deep as they do.
const BYTES_MAX: usize = 4 << 10;
const DEPTH_MAX: usize = 8;

fn invalid(why: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, "read query", "query").because(why.into())
}

/// Runs a query, on a thread that may block.
pub(super) fn run(text: &TextIndex, words: Words) -> Result<Vec<Hit>> {
    let query = parse(text, &words)?;
    let searcher = text.reader.searcher();
    let failed = |error| unread(&text.source, error);
    let best = TopDocs::with_limit(words.limit.max(1))
        .and_offset(words.offset)
        .order_by_score();
    let found = match words.among {
        None => searcher.search(&*query, &best).map_err(failed)?,
        Some(among) => {
            let among = Arc::new(among);
            let counts = move |row: u64| u32::try_from(row).is_ok_and(|row| among.contains(row));
            let best = FilterCollector::new(ROW.to_owned(), counts, best);
            searcher.search(&*query, &best).map_err(failed)?
        }
    };
    hits(&searcher, found).map_err(failed)
}

fn hits(searcher: &Searcher, found: Vec<(Score, DocAddress)>) -> tantivy::Result<Vec<Hit>> {
    let mut hits = Vec::with_capacity(found.len());
    for (score, address) in found {
        let segment = searcher.segment_reader(address.segment_ord);
        let row = segment.fast_fields().u64(ROW)?.first(address.doc_id);
        let row = row.and_then(|row| u32::try_from(row).ok());
        let row = row.ok_or_else(|| {
            tantivy::TantivyError::InternalError(String::from("a document without a row"))
        })?;
        hits.push(Hit { row, score });
    }
    // Equal ones by their row, wherever they lie.
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    Ok(hits)
}

fn parse(text: &TextIndex, words: &Words) -> Result<Box<dyn Query>> {
    let query = words.query.as_str();
    if query.trim().is_empty() {
        return Err(invalid("it is empty: write a word to look for"));
    }
    if query.len() > BYTES_MAX {
        return Err(invalid(format!("it is longer than {BYTES_MAX} bytes")));
    }
    if let Some(at) = too_deep(query) {
        return Err(invalid(format!(
            "at character {at}: parentheses are more than {DEPTH_MAX} deep"
        )));
    }
    if let Some((at, mark)) = marked(query) {
        return Err(invalid(format!(
            "at character {at}: `{mark}` is no syntax at a word, which is looked for as it is written; write the words \
             that you look for, or put it into quotes"
        )));
    }
    let (_, errors) = parse_query_lenient(query);
    if let Some(error) = errors.first() {
        return Err(invalid(format!(
            "at character {}: {}; put what is no syntax into quotes",
            place(query, error.pos),
            error.message
        )));
    }
    let parser = QueryParser::for_index(&text.index, defaults(text, &words.columns)?);
    parser.parse_query(query).map_err(|error| {
        let known: Vec<&str> = text.columns.iter().map(|(name, _)| name.as_str()).collect();
        let known = known.join(", ");
        match at_fault(query, &error) {
            Some(at) => invalid(format!(
                "at character {at}: {error}; the index is over {known}"
            )),
            None => invalid(format!("{error}; the index is over {known}")),
        }
    })
}

/// Which character a byte belongs to, counted from 1; the one behind the last for what is missing at the end.
fn place(query: &str, byte: usize) -> usize {
    query.get(..byte).unwrap_or(query).chars().count() + 1
}

/// The character from which on a query that was understood cannot be run.
fn at_fault(query: &str, error: &QueryParserError) -> Option<usize> {
    let byte = match error {
        QueryParserError::FieldDoesNotExist(name) => query.find(&format!("{name}:")),
        QueryParserError::PhrasePrefixRequiresAtLeastTwoTerms { phrase, .. } => query.find(phrase),
        _ => None,
    };
    byte.map(|byte| place(query, byte))
}

fn defaults(text: &TextIndex, columns: &[String]) -> Result<Vec<Field>> {
    if columns.is_empty() {
        return Ok(text.columns.iter().map(|(_, field)| *field).collect());
    }
    let field = |column: &String| {
        let found = text.columns.iter().find(|(name, _)| name == column);
        found
            .map(|(_, field)| *field)
            .ok_or_else(|| invalid(format!("the index is not over `{column}`")))
    };
    columns.iter().map(field).collect()
}

/// The letters outside of quotes that are not escaped, each with its place, counted from 1.
fn bare(query: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut escaped) = (None, false);
    let mut outside = move |letter: char| {
        match (letter, quote) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(letter),
            _ => return true,
        }
        false
    };
    let placed = query.chars().enumerate();
    placed
        .map(|(at, letter)| (at + 1, letter))
        .filter(move |(_, letter)| outside(*letter))
}

/// Where parentheses are deeper than they may be.
fn too_deep(query: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in bare(query) {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Some(at);
        }
    }
    None
}

/// Where a word has a mark that elsewhere means words that begin or are spelled like it: it would be left out silently.
fn marked(query: &str) -> Option<(usize, char)> {
    let letters: Vec<(usize, char)> = bare(query).collect();
    let is_of_word = |place: usize| {
        let found = letters.binary_search_by_key(&place, |(at, _)| *at);
        found.is_ok_and(|found| letters[found].1.is_alphanumeric())
    };
    let marks = letters.iter().find(|(at, letter)| match letter {
        '*' => is_of_word(at - 1) || is_of_word(at + 1),
        '~' => is_of_word(at - 1),
        _ => false,
    });
    marks.copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_at_words_are_found_where_they_are() {
        for (query, expected) in [
            ("do*", Some((3, '*'))),
            ("quick do* fox", Some((9, '*'))),
            ("*dog", Some((1, '*'))),
            ("w*rd", Some((2, '*'))),
            ("dog~2", Some((4, '~'))),
            ("title:dog~", Some((10, '~'))),
            ("größe* x", Some((6, '*'))),
            ("\"do*\" 'dog~2'", None),
            ("\"lazy dog\"~2", None),
            ("\"lazy do\"*", None),
            ("do\\*", None),
            ("*", None),
            ("title:*", None),
            ("title:[a TO *]", None),
            ("dog^2 ~5 * and", None),
        ] {
            assert_eq!(marked(query), expected, "{query}");
        }
    }

    #[test]
    fn places_are_characters_and_no_bytes() {
        assert_eq!(place("äöü )", 7), 5);
        assert_eq!(place("title:", 6), 7);
        assert_eq!(place("ä", 9), 2);
        let missing = QueryParserError::FieldDoesNotExist(String::from("nobody"));
        assert_eq!(at_fault("ä nobody nobody:a", &missing), Some(10));
    }
}
