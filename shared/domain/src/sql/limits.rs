//! Limits on tokens, checked before anything recurses (a long chain of operators is a deep tree).

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

use super::SqlError;

/// Most bytes of one statement.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of parentheses, brackets, braces and CASE.
pub const NESTING_MAX: usize = 128;
/// Most operators in one chain: between two commas or clause words of one nesting level.
pub const CHAIN_MAX: usize = 1_000;
/// Most UNION, EXCEPT and INTERSECT in one statement.
pub const SET_OPERATIONS_MAX: usize = 200;
/// Most joins in one statement.
pub const JOINS_MAX: usize = 200;

/// Counts what could make a tree deep.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut chains = vec![0_usize];
    let (mut set_operations, mut joins) = (0, 0);
    for TokenWithSpan { token, span } in tokens {
        let over = |what: &str, limit: usize| {
            Err(SqlError::at(
                span.start,
                format!("{what}; the limit is {limit}"),
            ))
        };
        match kind(token) {
            Role::Open => {
                chains.push(0);
                if chains.len() > NESTING_MAX + 1 {
                    return over("nested too deep", NESTING_MAX);
                }
            }
            Role::Close => {
                if chains.len() > 1 {
                    chains.pop();
                }
            }
            Role::Restart => set_last(&mut chains, 0),
            Role::SetOperation => {
                set_last(&mut chains, 0);
                set_operations += 1;
                if set_operations > SET_OPERATIONS_MAX {
                    return over("too many UNION, EXCEPT or INTERSECT", SET_OPERATIONS_MAX);
                }
            }
            Role::Join => {
                joins += 1;
                if joins > JOINS_MAX {
                    return over("too many joins", JOINS_MAX);
                }
            }
            Role::Operator => {
                let length = chains.last().copied().unwrap_or(0) + 1;
                set_last(&mut chains, length);
                if length > CHAIN_MAX {
                    return over("too many operators in one expression", CHAIN_MAX);
                }
            }
            Role::Other => {}
        }
    }
    Ok(())
}

fn set_last(chains: &mut [usize], value: usize) {
    if let Some(last) = chains.last_mut() {
        *last = value;
    }
}

enum Role {
    Open,
    Close,
    Restart,
    SetOperation,
    Join,
    Operator,
    Other,
}

fn kind(token: &Token) -> Role {
    match token {
        Token::LParen | Token::LBracket | Token::LBrace => Role::Open,
        Token::RParen | Token::RBracket | Token::RBrace => Role::Close,
        Token::Comma | Token::SemiColon => Role::Restart,
        Token::Word(word) => match word.keyword {
            Keyword::CASE => Role::Open,
            Keyword::END => Role::Close,
            Keyword::SELECT
            | Keyword::FROM
            | Keyword::WHERE
            | Keyword::HAVING
            | Keyword::QUALIFY => Role::Restart,
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => {
                Role::SetOperation
            }
            Keyword::JOIN => Role::Join,
            Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::BETWEEN
            | Keyword::IN
            | Keyword::DIV
            | Keyword::XOR
            | Keyword::COLLATE => Role::Operator,
            _ => Role::Other,
        },
        Token::EOF
        | Token::Whitespace(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::Period
        | Token::Placeholder(_) => Role::Other,
        Token::SingleQuotedString(_)
        | Token::DoubleQuotedString(_)
        | Token::NationalStringLiteral(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::DollarQuotedString(_) => Role::Other,
        // Everything else is punctuation that combines expressions.
        _ => Role::Operator,
    }
}
