//! What stands in the parentheses.

use proc_macro2::Span;
use syn::{
    Error, Expr, ExprArray, ExprCall, ExprLit, ExprPath, Ident, Lit, LitBool, LitInt, LitStr,
    Result, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned,
};

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1_000;
const ALL: &str = "key, ttl, version, mode, background, on_error, index, key_fn, lease, client";

/// How long a result is good for.
pub(crate) enum Ttl {
    Never,
    Millis(u64),
}

/// An index: its kind and its column.
pub(crate) struct Index {
    pub(crate) kind: Ident,
    pub(crate) column: LitStr,
}

/// All words.
#[derive(Default)]
pub(crate) struct Words {
    pub(crate) key: Option<LitStr>,
    pub(crate) ttl: Option<(Ttl, Span)>,
    pub(crate) version: Option<LitInt>,
    /// Whether strict.
    pub(crate) strict: Option<(bool, Span)>,
    pub(crate) background: Option<LitBool>,
    /// Whether errors are raised.
    pub(crate) raise: Option<bool>,
    pub(crate) index: Vec<Index>,
    pub(crate) key_fn: Option<Expr>,
    pub(crate) lease: Option<u64>,
    pub(crate) client: Option<Expr>,
}

impl Parse for Words {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut words = Self::default();
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            if seen.contains(&name.to_string()) {
                return Err(Error::new(name.span(), format!("`{name}` is said twice")));
            }
            seen.push(name.to_string());
            input.parse::<Token![=]>()?;
            words.take(&name, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        words.check()?;
        Ok(words)
    }
}

impl Words {
    fn take(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "key" => self.key = Some(input.parse()?),
            "ttl" => {
                let value: Expr = input.parse()?;
                self.ttl = Some((ttl(&value)?, value.span()));
            }
            "version" => self.version = Some(input.parse()?),
            "mode" => {
                let (strict, span) = either(input, "mode", ["swr", "strict"])?;
                self.strict = Some((strict, span));
            }
            "background" => self.background = Some(input.parse()?),
            "on_error" => self.raise = Some(either(input, "on_error", ["fallback", "raise"])?.0),
            "index" => self.index = indexes(&input.parse()?)?,
            "key_fn" => self.key_fn = Some(input.parse()?),
            "lease" => {
                let value: Expr = input.parse()?;
                self.lease = Some(millis(&value, "lease")?);
            }
            "client" => self.client = Some(input.parse()?),
            other => {
                return Err(Error::new(
                    name.span(),
                    format!("`{other}` is no word of `materialize`; there are {ALL}"),
                ));
            }
        }
        Ok(())
    }

    /// Words that make no sense together.
    fn check(&self) -> Result<()> {
        if let Some(key) = &self.key {
            let length = key.value().len();
            if length == 0 || length > KEY_BYTES_MAX {
                return Err(Error::new(
                    key.span(),
                    format!("a key has 1 to {KEY_BYTES_MAX} bytes"),
                ));
            }
        }
        if let (Some((Ttl::Never, _)), Some((_, span))) = (&self.ttl, &self.strict) {
            return Err(Error::new(
                *span,
                "an entry that never expires is never stale: `mode` says nothing about it",
            ));
        }
        for (at, index) in self.index.iter().enumerate() {
            let same = |other: &&Index| {
                other.kind == index.kind && other.column.value() == index.column.value()
            };
            if self.index[..at].iter().any(|other| same(&other)) {
                return Err(Error::new(index.column.span(), "this index is said twice"));
            }
        }
        Ok(())
    }
}

/// One of two texts: whether it is the second.
fn either(input: ParseStream<'_>, name: &str, words: [&str; 2]) -> Result<(bool, Span)> {
    let text: LitStr = input.parse()?;
    match words.iter().position(|word| *word == text.value()) {
        Some(at) => Ok((at == 1, text.span())),
        None => Err(Error::new(
            text.span(),
            format!("`{name}` is \"{}\" or \"{}\"", words[0], words[1]),
        )),
    }
}

fn ttl(value: &Expr) -> Result<Ttl> {
    if let Expr::Path(ExprPath { path, .. }) = value
        && path.is_ident("never")
    {
        return Ok(Ttl::Never);
    }
    match millis(value, "ttl")? {
        0 => Err(Error::new(
            value.span(),
            "a result that expires at once is never a hit: leave the attribute away",
        )),
        millis => Ok(Ttl::Millis(millis)),
    }
}

/// Seconds, or text such as `10m`.
fn millis(value: &Expr, name: &str) -> Result<u64> {
    let wrong = || {
        Error::new(
            value.span(),
            format!("`{name}` is a number of seconds, or text such as \"10m\", \"1h\", \"500ms\""),
        )
    };
    let Expr::Lit(ExprLit { lit, .. }) = value else {
        return Err(wrong());
    };
    match lit {
        Lit::Int(seconds) => seconds
            .base10_parse::<u64>()?
            .checked_mul(1_000)
            .ok_or_else(wrong),
        Lit::Str(text) => {
            let text = text.value();
            let end = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            let unit = match &text[end..] {
                "ms" => 1,
                "" | "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(wrong()),
            };
            let number: u64 = text[..end].parse().map_err(|_| wrong())?;
            number.checked_mul(unit).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn indexes(value: &Expr) -> Result<Vec<Index>> {
    match value {
        Expr::Array(ExprArray { elems, .. }) => elems.iter().map(index).collect(),
        one => Ok(vec![index(one)?]),
    }
}

fn index(value: &Expr) -> Result<Index> {
    let wrong = || {
        Error::new(
            value.span(),
            "an index is bm25(\"column\") or vector(\"column\")",
        )
    };
    let Expr::Call(ExprCall { func, args, .. }) = value else {
        return Err(wrong());
    };
    let Expr::Path(ExprPath { path, .. }) = &**func else {
        return Err(wrong());
    };
    let kind = path
        .get_ident()
        .filter(|kind| *kind == "bm25" || *kind == "vector");
    let args: &Punctuated<Expr, Token![,]> = args;
    match (kind, args.len(), args.first()) {
        (
            Some(kind),
            1,
            Some(Expr::Lit(ExprLit {
                lit: Lit::Str(column),
                ..
            })),
        ) => Ok(Index {
            kind: kind.clone(),
            column: column.clone(),
        }),
        _ => Err(wrong()),
    }
}
