//! Queries: from their text to the best rows.

use std::sync::Arc;

use ports::{
    Error, Kind, Result,
    search::{Hit, Words},
};
use tantivy::{
    DocAddress, Score, Searcher,
    collector::{FilterCollector, TopDocs},
    query::{Query, QueryParser},
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
    let (_, errors) = parse_query_lenient(query);
    if let Some(error) = errors.first() {
        // What is left over is counted from the end of what was understood.
        let at = query.chars().count().min(error.pos) + 1;
        return Err(invalid(format!(
            "at character {at}: {}; put what is no syntax into quotes",
            error.message
        )));
    }
    let parser = QueryParser::for_index(&text.index, defaults(text, &words.columns)?);
    parser.parse_query(query).map_err(|error| {
        let known: Vec<&str> = text.columns.iter().map(|(name, _)| name.as_str()).collect();
        invalid(format!("{error}; the index is over {}", known.join(", ")))
    })
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

/// Where parentheses are deeper than they may be, outside of quotes.
fn too_deep(query: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, letter) in query.chars().enumerate() {
        match (letter, quote) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(letter),
            ('(' | '[' | '{', None) => depth += 1,
            (')' | ']' | '}', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Some(at + 1);
        }
    }
    None
}
