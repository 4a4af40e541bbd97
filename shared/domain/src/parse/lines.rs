//! Lines of a model file: which are directives, which are SQL.

use super::{Body, DIRECTIVES, Problem};

/// How a directive was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `@name text` or `@name: text`.
    Bare,
    /// `@name(text)`.
    Parenthesised,
    /// `-- name: text`.
    Comment,
}

/// One directive.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    /// Lower case.
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) body: Body,
    pub(super) line: usize,
    column: usize,
}

impl Directive {
    /// A problem at the directive.
    pub(super) fn problem(&self, code: &'static str, message: String) -> Problem {
        Problem {
            code,
            message,
            line: self.line,
            column: self.column,
        }
    }
}

/// A file, split.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) directives: Vec<Directive>,
    pub(super) sql: String,
    pub(super) sql_line: usize,
}

pub(super) fn split(text: &str) -> File {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .collect();
    let mut file = File::default();
    let mut sql: Vec<&str> = Vec::with_capacity(lines.len());
    let mut inside = Inside::Plain;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        match (inside == Inside::Plain)
            .then(|| begin(line, at + 1))
            .flatten()
        {
            Some(mut directive) => {
                let length = extend(&mut directive, &lines[at..], at + 1);
                if directive.form == Form::Parenthesised && !directive.body.unwrap_parentheses() {
                    directive.form = Form::Bare;
                }
                file.directives.push(directive);
                sql.extend(std::iter::repeat_n("", length));
                at += length;
            }
            None => {
                inside = inside.after(line);
                sql.push(line);
                at += 1;
            }
        }
    }
    let is_blank = |line: &&str| line.trim().is_empty();
    let first = sql.iter().position(|line| !is_blank(line)).unwrap_or(0);
    file.sql = sql[first..].join("\n").trim_end().to_owned();
    file.sql_line = first + 1;
    file
}

/// The directive that begins on a line, with what stands on that line.
fn begin(line: &str, number: usize) -> Option<Directive> {
    let trimmed = line.trim_start();
    let (comment, marked) = match trimmed.strip_prefix("--") {
        Some(rest) => (true, rest.trim_start()),
        None => (false, trimmed),
    };
    let named = marked.strip_prefix('@');
    let text = named.unwrap_or(marked);
    if named.is_none() && !comment {
        return None;
    }
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let name = name.to_ascii_lowercase();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let colon = rest.trim_start().strip_prefix(':');
    // A comment is prose unless it has exactly the old form.
    if comment && (!DIRECTIVES.contains(&name.as_str()) || (named.is_none() && colon.is_none())) {
        return None;
    }
    let form = match (comment, rest.starts_with('(')) {
        (_, true) => Form::Parenthesised,
        (true, false) => Form::Comment,
        (false, false) => Form::Bare,
    };
    let said = colon.unwrap_or(rest);
    let column_of = |part: &str| line[..line.len() - part.len()].chars().count() + 1;
    let mut body = Body::default();
    body.push(said, number, column_of(said));
    Some(Directive {
        name,
        form,
        body,
        line: number,
        column: column_of(text) - usize::from(named.is_some()),
    })
}

/// Adds the lines on which the directive continues; answers how many lines it has.
fn extend(directive: &mut Directive, lines: &[&str], number: usize) -> usize {
    // Prose may hold lone parentheses and apostrophes; only these two are code.
    let is_code = matches!(directive.name.as_str(), "config" | "assert");
    if is_code && directive.body.is_open() {
        // To where the parentheses close, however the lines are indented.
        let mut whole = directive.clone();
        for (offset, line) in lines.iter().enumerate().skip(1) {
            whole.body.push(
                uncommented(line, whole.form),
                number + offset,
                column_of_uncommented(line, whole.form),
            );
            if !whole.body.is_open() {
                *directive = whole;
                return offset
                    + 1
                    + continuation(directive, &lines[offset..], number + offset, is_code);
            }
            if begin(line, 0).is_some() {
                break;
            }
        }
    }
    1 + continuation(directive, lines, number, is_code)
}

/// Adds indented lines behind the first; answers how many.
fn continuation(directive: &mut Directive, lines: &[&str], number: usize, is_code: bool) -> usize {
    let mut added = 0;
    for (offset, line) in lines.iter().enumerate().skip(1) {
        let text = uncommented(line, directive.form);
        let follows = match directive.form {
            // `-- config: a=b,` goes on in a comment; any other comment is prose.
            Form::Comment => {
                line.trim_start().starts_with("--") && directive.body.text.ends_with(',')
            }
            Form::Bare | Form::Parenthesised => line.starts_with([' ', '\t']),
        };
        if !follows || text.trim().is_empty() || begin(line, 0).is_some() {
            break;
        }
        if !directive.body.is_open()
            && !directive.body.text.ends_with(',')
            && begins_query(text, is_code)
        {
            break;
        }
        directive.body.push(
            text,
            number + offset,
            column_of_uncommented(line, directive.form),
        );
        added += 1;
    }
    added
}

/// Whether an indented line is the query and not more of the directive. In prose only capitals are taken for SQL.
fn begins_query(text: &str, is_code: bool) -> bool {
    let word = text.split_whitespace().next().unwrap_or("");
    ["SELECT", "WITH", "VALUES", "FROM"].iter().any(|sql| {
        if is_code {
            word.eq_ignore_ascii_case(sql)
        } else {
            word == *sql
        }
    })
}

fn uncommented(line: &str, form: Form) -> &str {
    match form {
        Form::Comment => line.trim_start().strip_prefix("--").unwrap_or(line),
        Form::Bare | Form::Parenthesised => line,
    }
}

fn column_of_uncommented(line: &str, form: Form) -> usize {
    line[..line.len() - uncommented(line, form).len()]
        .chars()
        .count()
        + 1
}

/// What a line of SQL stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Plain,
    /// A string or quoted name, by its quote.
    Quoted(char),
    /// Block comments, by how deep they nest.
    Comment(usize),
}

impl Inside {
    /// What the next line stands in.
    fn after(mut self, line: &str) -> Self {
        let mut chars = line.chars().peekable();
        while let Some(ch) = chars.next() {
            let pair = (ch, chars.peek().copied());
            match (self, pair) {
                (Self::Plain, ('-', Some('-'))) => return self,
                (Self::Plain, ('/', Some('*'))) => {
                    chars.next();
                    self = Self::Comment(1);
                }
                (Self::Plain, ('\'' | '"' | '`', _)) => self = Self::Quoted(ch),
                // A doubled quote closes and opens again.
                (Self::Quoted(quote), _) if quote == ch => self = Self::Plain,
                (Self::Comment(depth), ('/', Some('*'))) => {
                    chars.next();
                    self = Self::Comment(depth + 1);
                }
                (Self::Comment(depth), ('*', Some('/'))) => {
                    chars.next();
                    self = if depth > 1 {
                        Self::Comment(depth - 1)
                    } else {
                        Self::Plain
                    };
                }
                (Self::Plain | Self::Quoted(_) | Self::Comment(_), _) => {}
            }
        }
        self
    }
}
