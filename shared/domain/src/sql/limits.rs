//! Limits of a statement, checked on its tokens before anything recurses over it.
//!
//! The parser grows its stack on demand, but dropping, walking and planning its tree recurse once per level of the tree.
//! A level comes from nesting or from a chain of operators, so both are bounded where it costs nothing: on the tokens.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

use super::{
    SqlError,
    roles::{Role, is_solid, role_after},
};

/// Longest statement, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of parentheses, brackets, braces and CASE.
pub const NESTING_MAX: usize = 128;
/// Deepest nesting of queries. On a stack of 2 MB their trees can be copied to a depth of 96 and no further.
pub const QUERIES_MAX: usize = 64;
/// Most operators in one expression, those of the expressions around it counted; a comma or a clause word begins another.
pub const CHAIN_MAX: usize = 1_000;
/// Deepest nesting of types in angle brackets, `ARRAY<ARRAY<..>>`.
pub const TYPES_MAX: usize = 32;
/// Most parts of a name, and steps of a path of names and indexes, `a.b[1].c`: the parser takes time by their square.
pub const PATH_MAX: usize = 64;
/// Most steps of a pipe, `FROM t.x |> WHERE ..`.
pub const PIPES_MAX: usize = 200;
/// Deepest nesting of doubled parentheses in FROM, `FROM ((..) JOIN ..)`: the parser reads each twice.
pub const JOIN_NESTING_MAX: usize = 6;
/// Most UNION, INTERSECT and EXCEPT in a statement.
pub const SET_OPERATIONS_MAX: usize = 200;
/// Most joins in a statement; a comma in FROM is one.
pub const JOINS_MAX: usize = 200;

/// Most CTEs in one WITH.
pub const CTES_MAX: usize = 200;
/// Most tables of a statement once each CTE is written out where it is used, as the planner does.
pub const TABLES_MAX: u64 = 2_000;

/// Depth the parser itself may reach: it counts several per nesting level and one per operator of a chain that binds
/// ever more tightly.
pub(super) const PARSER_DEPTH: usize = 8 * NESTING_MAX + 2 * CHAIN_MAX;

/// Expressions the parser may begin: far more than any sensible statement has.
pub(super) fn steps(tokens: usize) -> usize {
    10_000 + 4 * tokens
}

/// What to say when nesting is too deep.
pub(super) fn too_deep() -> String {
    format!("nested too deep; the limit is {NESTING_MAX}")
}

/// One nesting level.
#[derive(Debug, Default)]
struct Level {
    operators: usize,
    is_case: bool,
    is_query: bool,
    in_from: bool,
    /// A parenthesis where a table is expected.
    is_table: bool,
    /// The same, with another one right behind it.
    is_doubled: bool,
    /// Rows of VALUES in FROM: the commas between them are no joins.
    is_values: bool,
    /// Periods of the name or path that is being read.
    path: usize,
}

/// Checks every limit but the size.
///
/// # Errors
/// The limit, and the position of the first token beyond it.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut depth = Depth::default();
    let (mut before, mut last) = (Role::Comma, &Token::EOF);
    for token in tokens.iter().filter(|t| is_solid(&t.token)) {
        let role = role_after(before, last, &token.token);
        depth
            .types(last, &token.token)
            .and_then(|()| depth.chains(role, before, last, &token.token))
            .and_then(|()| depth.take(role, before, last))
            .map_err(|limit| SqlError::at(token.span.start, limit))?;
        (before, last) = (role, &token.token);
    }
    Ok(())
}

/// What has been counted so far.
#[derive(Debug)]
struct Depth {
    levels: Vec<Level>,
    /// Operators of all open levels: they add up in the tree.
    operators: usize,
    queries: usize,
    doubled: usize,
    types: usize,
    set_operations: usize,
    joins: usize,
    pipes: usize,
}

impl Default for Depth {
    fn default() -> Self {
        Self {
            levels: vec![Level::default()],
            operators: 0,
            queries: 0,
            doubled: 0,
            types: 0,
            set_operations: 0,
            joins: 0,
            pipes: 0,
        }
    }
}

impl Depth {
    /// Counts one token; `Err` is the limit it goes beyond.
    fn take(&mut self, role: Role, before: Role, last: &Token) -> Result<(), String> {
        let after_operand = matches!(before, Role::Operand | Role::Closes | Role::End);
        match role {
            Role::Opens => self.open(before)?,
            Role::Case => self.push(Level {
                is_case: true,
                ..Level::default()
            })?,
            Role::Index => {
                // `int[][]..` is a chain as well as a level.
                self.operator()?;
                self.push(Level::default())?;
            }
            Role::Closes => self.close(),
            Role::End => {
                if after_operand && self.level().is_case {
                    self.pop();
                }
            }
            Role::Comma => {
                let (in_from, is_values) = (self.level().in_from, self.level().is_values);
                let between_rows = is_values && before == Role::Closes;
                if in_from && !between_rows {
                    self.join()?;
                }
                self.begin_expression(in_from);
                self.level().is_values = between_rows;
            }
            Role::Select if before != Role::Operator => {
                self.query()?;
                self.begin_expression(false);
            }
            Role::Clause if before != Role::Operator => {
                self.types = 0;
                self.begin_expression(false);
            }
            Role::From if before != Role::Operator && !is_distinct(last) => {
                self.query()?;
                self.begin_expression(true);
            }
            Role::Tail => self.level().in_from = false,
            Role::Operator => self.operator()?,
            Role::SetOperation => {
                self.set_operations += 1;
                if self.set_operations > SET_OPERATIONS_MAX {
                    return Err(format!(
                        "too many UNION, EXCEPT or INTERSECT; the limit is {SET_OPERATIONS_MAX}"
                    ));
                }
            }
            Role::Join => self.join()?,
            Role::Clause | Role::Select | Role::From | Role::Operand => {}
        }
        Ok(())
    }

    /// The innermost level; the outermost is never closed.
    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let innermost = self.levels.len() - 1;
        &mut self.levels[innermost]
    }

    fn push(&mut self, level: Level) -> Result<(), String> {
        self.levels.push(level);
        if self.levels.len() > NESTING_MAX + 1 {
            Err(too_deep())
        } else {
            Ok(())
        }
    }

    /// Closes the innermost level, if it is not the outermost.
    fn pop(&mut self) -> Option<Level> {
        let level = (self.levels.len() > 1)
            .then(|| self.levels.pop())
            .flatten()?;
        self.operators -= level.operators;
        self.doubled -= usize::from(level.is_doubled);
        self.queries -= usize::from(level.is_query);
        Some(level)
    }

    /// Opens a parenthesis. One where a table is expected may hold a query or a join, and the parser tries both: two in
    /// a row double the work of all that is inside.
    fn open(&mut self, before: Role) -> Result<(), String> {
        let around = self.level();
        let is_first = before == Role::Opens && around.is_table;
        let after_from = matches!(before, Role::From | Role::Comma | Role::Join);
        let is_table = is_first || (around.in_from && !around.is_values && after_from);
        if is_first && !around.is_doubled {
            around.is_doubled = true;
            self.doubled += 1;
            if self.doubled > JOIN_NESTING_MAX {
                return Err(format!(
                    "parentheses around joins nested too deep; the limit is {JOIN_NESTING_MAX}"
                ));
            }
        }
        // Inside parentheses around a join, what follows JOIN is a table again.
        self.push(Level {
            is_table,
            in_from: is_table,
            ..Level::default()
        })
    }

    /// A closing bracket also closes the CASEs inside that lack their END; the parser will say so.
    fn close(&mut self) {
        while let Some(level) = self.pop() {
            if !level.is_case {
                return;
            }
        }
    }

    /// The innermost level is a query.
    fn query(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.level().is_query, true) {
            self.queries += 1;
        }
        if self.queries > QUERIES_MAX {
            return Err(format!(
                "queries nested too deep; the limit is {QUERIES_MAX}"
            ));
        }
        Ok(())
    }

    /// Another expression begins on the innermost level.
    fn begin_expression(&mut self, in_from: bool) {
        self.operators -= self.level().operators;
        let level = self.level();
        (level.operators, level.in_from, level.is_values) = (0, in_from, false);
    }

    fn operator(&mut self) -> Result<(), String> {
        self.level().operators += 1;
        self.operators += 1;
        if self.operators > CHAIN_MAX {
            return Err(format!(
                "too many operators in one expression: use IN for a list of values, or break it into parts; the limit is {CHAIN_MAX}"
            ));
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(), String> {
        self.joins += 1;
        if self.joins > JOINS_MAX {
            return Err(format!("too many joins; the limit is {JOINS_MAX}"));
        }
        Ok(())
    }

    /// Counts what makes trees deep or parsing slow without an operator, and finds where rows begin.
    fn chains(
        &mut self,
        role: Role,
        before: Role,
        last: &Token,
        token: &Token,
    ) -> Result<(), String> {
        let level = self.level();
        match token {
            Token::Period => level.path += 1,
            // What follows them may go on with the path.
            Token::LParen | Token::LBracket | Token::RParen | Token::RBracket => {}
            _ if *last == Token::Period => {}
            _ => level.path = 0,
        }
        if level.path >= PATH_MAX {
            return Err(format!(
                "too many parts in one name or path; the limit is {PATH_MAX}"
            ));
        }
        let keyword = match token {
            Token::Word(word) if word.quote_style.is_none() => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let a_table = matches!(before, Role::From | Role::Comma | Role::Join | Role::Opens);
        if keyword == Keyword::VALUES && level.in_from && a_table {
            level.is_values = true;
        } else if !matches!(role, Role::Opens | Role::Closes | Role::Comma)
            && keyword != Keyword::ROW
        {
            level.is_values = false;
        }
        if *token == Token::VerticalBarRightAngleBracket {
            self.pipes += 1;
            if self.pipes > PIPES_MAX {
                return Err(format!("too many `|>`; the limit is {PIPES_MAX}"));
            }
        }
        if role == Role::Opens && before == Role::Closes {
            self.operator()?;
        }
        Ok(())
    }

    /// Follows the nesting of types in angle brackets.
    fn types(&mut self, last: &Token, token: &Token) -> Result<(), String> {
        let is_type = matches!(last, Token::Word(w)
            if matches!(w.keyword, Keyword::ARRAY | Keyword::STRUCT | Keyword::MAP));
        match token {
            Token::Lt if is_type => self.types += 1,
            Token::Gt => self.types = self.types.saturating_sub(1),
            Token::ShiftRight => self.types = self.types.saturating_sub(2),
            _ => {}
        }
        if self.types > TYPES_MAX {
            Err(format!("types nested too deep; the limit is {TYPES_MAX}"))
        } else {
            Ok(())
        }
    }
}

/// `IS DISTINCT FROM` is an operator.
fn is_distinct(token: &Token) -> bool {
    matches!(token, Token::Word(w) if w.keyword == Keyword::DISTINCT)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
