//! SQL as text and as trees: one dialect, limits before any recursion, read-only statements, placeholders by token.

use std::fmt;

use sqlparser::{
    ast::Statement,
    tokenizer::{Location, TokenWithSpan, Tokenizer},
};

mod build;
mod dialect;
mod limits;
mod names;
mod placeholders;
mod read_only;
#[cfg(test)]
mod tests;

pub use build::text;
pub use dialect::HeadwaterDialect;
pub use limits::{CHAIN_MAX, JOINS_MAX, NESTING_MAX, SET_OPERATIONS_MAX, STATEMENT_BYTES_MAX};
pub use names::tables;
pub use placeholders::{Bindings, Placeholder, placeholders, substitute};

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
    let mut statements = sqlparser::parser::Parser::new(&HeadwaterDialect)
        .with_recursion_limit(8 * NESTING_MAX)
        .with_tokens_with_locations(tokens)
        .parse_statements()
        .map_err(from_parser)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => {
            read_only::check(&statement)?;
            Ok(statement)
        }
        (Some(_), false) => Err(SqlError::nowhere("one statement at a time")),
        (None, _) => Err(SqlError::nowhere("there is no statement")),
    }
}

/// Tokens with their places; comments and white space included.
fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    if sql.len() > STATEMENT_BYTES_MAX {
        let message = format!(
            "{} bytes of SQL; the limit is {STATEMENT_BYTES_MAX}",
            sql.len()
        );
        return Err(SqlError::nowhere(message));
    }
    Tokenizer::new(&HeadwaterDialect, sql)
        .tokenize_with_location()
        .map_err(|e| SqlError::at(e.location, e.message))
}

/// The parser writes the place into its text; takes it out again.
fn from_parser(error: sqlparser::parser::ParserError) -> SqlError {
    use sqlparser::parser::ParserError as E;
    let text = match error {
        E::ParserError(text) | E::TokenizerError(text) => text,
        E::RecursionLimitExceeded => {
            return SqlError::nowhere(format!("nested deeper than {NESTING_MAX} levels"));
        }
    };
    let Some((message, place)) = text.rsplit_once(" at Line: ") else {
        return SqlError::nowhere(text);
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
        None => SqlError::nowhere(text),
    }
}
