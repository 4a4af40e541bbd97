//! What a token can mean for the depth of a tree.

use sqlparser::{keywords::Keyword, tokenizer::Token};

/// Whether a token says something: neither white space nor a comment nor the end.
pub(super) fn is_solid(token: &Token) -> bool {
    !matches!(token, Token::Whitespace(_) | Token::EOF)
}

/// What a token means for depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Opens,
    /// `[`: opens, and is an operator.
    Index,
    Closes,
    /// Opens a level until END.
    Case,
    /// Closes the level of a CASE, when an operand stands before it.
    End,
    Operator,
    Comma,
    /// Begins another expression on the same level, when no operator stands before it.
    Clause,
    /// SELECT: a clause, and a query.
    Select,
    /// FROM: commas are joins from here on; a query, too, for those that begin with it.
    From,
    /// Ends the FROM clause, but may also stand inside an expression (`WITHIN GROUP`).
    Tail,
    SetOperation,
    Join,
    /// Names, literals, everything else.
    Operand,
}

fn role(token: &Token) -> Role {
    match token {
        Token::LParen | Token::LBrace => Role::Opens,
        Token::LBracket => Role::Index,
        Token::RParen | Token::RBracket | Token::RBrace => Role::Closes,
        Token::Comma | Token::SemiColon => Role::Comma,
        Token::Word(word) if word.quote_style.is_none() => keyword_role(word.keyword),
        Token::Word(_)
        | Token::Period
        | Token::Number(..)
        | Token::Placeholder(_)
        | Token::SingleQuotedString(_)
        | Token::DoubleQuotedString(_)
        | Token::TripleSingleQuotedString(_)
        | Token::TripleDoubleQuotedString(_)
        | Token::DollarQuotedString(_)
        | Token::SingleQuotedByteStringLiteral(_)
        | Token::DoubleQuotedByteStringLiteral(_)
        | Token::TripleSingleQuotedByteStringLiteral(_)
        | Token::TripleDoubleQuotedByteStringLiteral(_)
        | Token::SingleQuotedRawStringLiteral(_)
        | Token::DoubleQuotedRawStringLiteral(_)
        | Token::TripleSingleQuotedRawStringLiteral(_)
        | Token::TripleDoubleQuotedRawStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::QuoteDelimitedStringLiteral(_)
        | Token::NationalQuoteDelimitedStringLiteral(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::HexStringLiteral(_) => Role::Operand,
        // Whatever is left is punctuation, and all of it can be an operator somewhere.
        _ => Role::Operator,
    }
}

fn keyword_role(keyword: Keyword) -> Role {
    match keyword {
        Keyword::CASE => Role::Case,
        Keyword::END => Role::End,
        Keyword::AND
        | Keyword::OR
        | Keyword::NOT
        | Keyword::XOR
        | Keyword::IS
        | Keyword::IN
        | Keyword::LIKE
        | Keyword::ILIKE
        | Keyword::RLIKE
        | Keyword::REGEXP
        | Keyword::SIMILAR
        | Keyword::BETWEEN
        | Keyword::OVERLAPS
        | Keyword::MATCH
        | Keyword::MEMBER
        | Keyword::OPERATOR
        | Keyword::DIV
        | Keyword::NOTNULL
        | Keyword::COLLATE
        | Keyword::AT
        | Keyword::PRIOR
        | Keyword::INTERVAL
        | Keyword::BINARY
        | Keyword::EXPLAIN
        | Keyword::ANALYZE
        | Keyword::DESCRIBE
        | Keyword::DESC => Role::Operator,
        Keyword::SELECT => Role::Select,
        Keyword::WHERE
        | Keyword::HAVING
        | Keyword::QUALIFY
        | Keyword::ON
        | Keyword::WHEN
        | Keyword::THEN
        | Keyword::ELSE => Role::Clause,
        Keyword::FROM => Role::From,
        Keyword::GROUP
        | Keyword::ORDER
        | Keyword::WINDOW
        | Keyword::LIMIT
        | Keyword::OFFSET
        | Keyword::FETCH => Role::Tail,
        Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT | Keyword::MINUS => {
            Role::SetOperation
        }
        Keyword::JOIN
        | Keyword::STRAIGHT_JOIN
        | Keyword::APPLY
        | Keyword::PIVOT
        | Keyword::UNPIVOT
        | Keyword::MATCH_RECOGNIZE => Role::Join,
        _ => Role::Operand,
    }
}

/// The role of a token in its place. Behind a period every word is a name (`t.end`), and behind AS a word that would
/// end or begin something is one.
pub(super) fn role_after(before: Role, last: &Token, token: &Token) -> Role {
    let role = role(token);
    let is_word = matches!(token, Token::Word(_));
    // With nothing to multiply before it, it stands for all columns.
    if *token == Token::Mul && !matches!(before, Role::Operand | Role::Closes | Role::End) {
        return Role::Operand;
    }
    let after_as = matches!(last, Token::Word(w) if w.keyword == Keyword::AS);
    match role {
        _ if is_word && *last == Token::Period => Role::Operand,
        Role::End | Role::Clause | Role::Select | Role::From | Role::Tail if after_as => {
            Role::Operand
        }
        role => role,
    }
}
