//! The text that is run for a build: the filter joined in, placeholders substituted.

use sqlparser::{
    ast::{
        Expr, GroupByExpr, Query, Select, SelectFlavor, SelectItem, SetExpr, Statement, TableFactor,
    },
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

use super::{Bindings, SqlError, parse, placeholders::Offsets, rows, substitute, tokenize};
use crate::Model;

/// The query of a model for one build. With `filtered` its `incremental_filter` is joined in:
///
/// * it wraps the query (`SELECT * FROM (query) <filter>`) when the query is more than one plain SELECT, groups,
///   aggregates, deduplicates, limits or joins, or gives a column of the filter's name to something else, and all
///   columns of the filter are among its output columns;
/// * otherwise it is ANDed into the query's WHERE, where it may name columns the query does not output.
///
/// # Errors
/// SQL that cannot be read, or a placeholder that stands for nothing, with its place in the query.
pub fn text(model: &Model, bindings: &Bindings<'_>, filtered: bool) -> Result<String, SqlError> {
    let query = substitute(&model.sql, bindings)?;
    let query = query.trim().trim_end_matches(';').trim_end().to_owned();
    let Some(filter) = model.config.filter.as_deref().filter(|_| filtered) else {
        parse(&query)?;
        return Ok(query);
    };
    let filter = substitute(filter, bindings)?;
    let Statement::Query(tree) = parse(&query)? else {
        return Err(SqlError::nowhere("a model is one SELECT"));
    };
    let condition = condition(&filter)?;
    match tree.body.as_ref() {
        SetExpr::Select(select) if goes_inside(&tree, select, &condition.columns) => {
            inside(&query, &condition.text)
        }
        _ => Ok(format!(
            "SELECT * FROM (\n{query}\n) AS _q\nWHERE {}",
            condition.text
        )),
    }
}

/// The filter without its WHERE, and the columns it names: qualified or not, in lower case.
struct Condition {
    text: String,
    columns: Vec<(bool, String)>,
}

fn condition(filter: &str) -> Result<Condition, SqlError> {
    let trimmed = filter.trim();
    let starts = trimmed
        .get(..5)
        .is_some_and(|word| word.eq_ignore_ascii_case("where"));
    if !starts {
        return Err(SqlError::nowhere("incremental_filter starts with WHERE"));
    }
    let text = trimmed[5..].trim().to_owned();
    // Parsed for its errors; columns are read off the tokens outside of any subquery.
    parse(&format!("SELECT 1 {trimmed}"))?;
    let tokens: Vec<Token> = tokenize(&text)?
        .into_iter()
        .map(|token| token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let mut columns = Vec::new();
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word)
                if depth == 0
                    && (word.keyword == Keyword::NoKeyword || word.quote_style.is_some()) =>
            {
                let after_dot = index > 0 && tokens[index - 1] == Token::Period;
                let before = tokens.get(index + 1);
                if !matches!(before, Some(Token::Period | Token::LParen)) {
                    columns.push((after_dot, word.value.to_ascii_lowercase()));
                }
            }
            _ => {}
        }
    }
    Ok(Condition { text, columns })
}

fn goes_inside(query: &Query, select: &Select, columns: &[(bool, String)]) -> bool {
    let joins = select.from.len() != 1 || select.from.iter().any(|from| !from.joins.is_empty());
    let groups = !matches!(&select.group_by, GroupByExpr::Expressions(list, _) if list.is_empty());
    let plain = !groups
        && select.distinct.is_none()
        && select.qualify.is_none()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.flavor != SelectFlavor::FromFirstNoSelect
        && !rows::computes_over_rows(select)
        && !columns
            .iter()
            .any(|(qualified, name)| !qualified && rows::is_output_alias(select, name))
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && (!joins || columns.iter().any(|(qualified, _)| *qualified));
    if plain {
        return true;
    }
    let outputs = output_names(select);
    // A wildcard may hold anything; then the outer place is tried.
    outputs.is_some_and(|names| !columns.iter().all(|(_, name)| names.contains(name)))
}

/// Whether every row of a query comes from one row of the one table it names, whatever the others are: no join, no group, no
/// window, no limit. A query that has a placeholder in it is taken for one that is not.
#[must_use]
pub fn is_row_by_row(sql: &str) -> bool {
    let Ok(Statement::Query(query)) = parse(sql) else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let groups = !matches!(&select.group_by, GroupByExpr::Expressions(list, _) if list.is_empty());
    let one_table = match select.from.as_slice() {
        [only] => only.joins.is_empty() && matches!(only.relation, TableFactor::Table { .. }),
        _ => false,
    };
    let selects = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::SELECT);
    // Another SELECT anywhere may look at other rows.
    let one_select =
        tokenize(sql).is_ok_and(|tokens| tokens.iter().filter(|t| selects(t)).count() == 1);
    one_table
        && one_select
        && !groups
        && query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && !rows::computes_over_rows(select)
}

fn output_names(select: &Select) -> Option<Vec<String>> {
    if select.flavor == SelectFlavor::FromFirstNoSelect {
        return None;
    }
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => names.push(alias.value.to_ascii_lowercase()),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                names.push(ident.value.to_ascii_lowercase())
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                names.extend(parts.last().map(|part| part.value.to_ascii_lowercase()));
            }
            SelectItem::UnnamedExpr(_) => {}
            _ => return None,
        }
    }
    Some(names)
}

/// ANDs a condition into the WHERE of the outermost SELECT, by place in the text.
fn inside(query: &str, condition: &str) -> Result<String, SqlError> {
    let tokens = tokenize(query)?;
    let offsets = Offsets::of(query);
    let mut depth = 0_usize;
    let (mut selected, mut where_ends, mut tail) = (false, None, query.len());
    for TokenWithSpan { token, span } in &tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 => match word.keyword {
                Keyword::SELECT => selected = true,
                Keyword::WHERE if selected => where_ends = Some(offsets.at(span.end)),
                Keyword::GROUP
                | Keyword::HAVING
                | Keyword::QUALIFY
                | Keyword::WINDOW
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::FETCH
                    if selected =>
                {
                    tail = offsets.at(span.start);
                    break;
                }
                _ => {}
            },
            _ => {}
        }
    }
    // Line breaks, so that a trailing line comment swallows nothing.
    let (head, rest) = (&query[..tail], &query[tail..]);
    Ok(match where_ends {
        Some(end) => format!(
            "{} ({}\n) AND ({condition}\n)\n{rest}",
            &head[..end],
            head[end..].trim()
        ),
        None => format!("{head}\nWHERE {condition}\n{rest}"),
    }
    .trim_end()
    .to_owned())
}
