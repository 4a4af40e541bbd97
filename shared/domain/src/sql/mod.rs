//! SQL as text and as trees: one dialect, limits before any recursion, read-only statements, placeholders by token.

use std::fmt;

use sqlparser::{
    ast::Statement,
    parser::Parser,
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer},
};

mod build;
mod condition;
mod dialect;
mod expansion;
mod limits;
mod names;
mod placeholders;
mod read_only;
mod roles;
mod rows;
mod scopes;
#[cfg(test)]
mod tests;
pub mod trace;
mod walk;

use dialect::Budgeted;

pub use build::{is_row_by_row, text};
pub use condition::condition;
pub use dialect::HeadwaterDialect;
pub use limits::{
    CHAIN_MAX, CTES_MAX, JOIN_NESTING_MAX, JOINS_MAX, NESTING_MAX, PATH_MAX, PIPES_MAX,
    QUERIES_MAX, SET_OPERATIONS_MAX, STATEMENT_BYTES_MAX, TABLES_MAX, TYPES_MAX,
};
pub use names::{tables, tables_over_entry};
pub use placeholders::{
    Bindings, FEED_PREFIX, Placed, Placeholder, fed_by, feed, placed, placeholders, substitute,
};
pub use walk::{visit, visit_mut};

/// What [`parse`] says of a text without any statement.
pub(crate) const NO_STATEMENT: &str = "there is no statement";

/// What is wrong with a statement, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SqlError {
    /// What and, when it helps, what to do.
    pub message: String,
    /// Line, from 1; 0 when unknown.
    pub line: usize,
    /// Column in characters, from 1; 0 when unknown.
    pub column: usize,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl SqlError {
    fn at(location: Location, message: impl Into<String>) -> Self {
        let place = |number| usize::try_from(number).unwrap_or(0);
        Self {
            message: message.into(),
            line: place(location.line),
            column: place(location.column),
        }
    }

    fn nowhere(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 0,
            column: 0,
        }
    }
}

/// Parses exactly one read-only statement: SELECT, VALUES, WITH, a set operation, or EXPLAIN of one. Size, nesting and
/// chains are limited on the tokens, before the parser recurses.
///
/// # Errors
/// What is wrong and where: syntax, a limit with its value, several statements, or one that writes.
pub fn parse(sql: &str) -> Result<Statement, SqlError> {
    let tokens = tokenize(sql)?;
    limits::check(&tokens)?;
    let end = tokens
        .iter()
        .rev()
        .find(|t| roles::is_solid(&t.token))
        .map(|t| t.span.end);
    let Some(end) = end else {
        return Err(SqlError::nowhere(NO_STATEMENT));
    };
    let dialect = Budgeted::new(limits::steps(tokens.len()));
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(limits::PARSER_DEPTH)
        .with_tokens_with_locations(tokens);
    let statement = parser
        .parse_statement()
        .map_err(|error| from_parser(error, end))?;
    let mut ended = false;
    while parser.consume_token(&Token::SemiColon) {
        ended = true;
    }
    let next = parser.peek_token();
    match next.token {
        Token::EOF => {}
        Token::Word(_) if ended => {
            return Err(SqlError::at(
                next.span.start,
                "one statement at a time: it ends before this",
            ));
        }
        other => {
            return Err(SqlError::at(
                next.span.start,
                format!(
                    "`{other}` is not expected here; is a keyword or a comma before it missing or misspelt?"
                ),
            ));
        }
    }
    read_only::check(&statement)?;
    expansion::check(&statement)?;
    Ok(statement)
}

/// Tokens with their places; comments and white space included.
fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    if sql.len() > STATEMENT_BYTES_MAX {
        let message = format!(
            "{} bytes of SQL; the limit is {STATEMENT_BYTES_MAX}",
            sql.len()
        );
        return Err(SqlError::at(Location { line: 1, column: 1 }, message));
    }
    Tokenizer::new(&HeadwaterDialect, sql)
        .tokenize_with_location()
        .map_err(|e| SqlError::at(e.location, e.message))
}

/// The parser writes the place into its text; takes it out again.
fn from_parser(error: sqlparser::parser::ParserError, end: Location) -> SqlError {
    use sqlparser::parser::ParserError as E;
    let text = match error {
        E::ParserError(text) | E::TokenizerError(text) => text,
        E::RecursionLimitExceeded => {
            return SqlError::at(end, limits::too_deep());
        }
    };
    if text == dialect::OUT_OF_STEPS {
        let message =
            "this cannot be parsed: the syntax error is in deeply nested parts; write it flatter";
        return SqlError::at(end, message);
    }
    let Some((message, place)) = text.rsplit_once(" at Line: ") else {
        return SqlError::at(end, text);
    };
    let numbers = place
        .split_once(", Column: ")
        .and_then(|(l, c)| Some((l.parse().ok()?, c.parse().ok()?)));
    match numbers {
        Some((line, column)) => SqlError {
            message: message.to_owned(),
            line,
            column,
        },
        None => SqlError::at(end, text),
    }
}

#[cfg(test)]
mod filters;
#[cfg(test)]
mod statements;
