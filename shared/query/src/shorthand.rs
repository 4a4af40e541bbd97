//! Functions other engines have and DataFusion has not, written out in terms of those it has.

use std::ops::ControlFlow;

use domain::sql::{HeadwaterDialect, visit_mut};
use sqlparser::{
    ast::{
        Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Statement, Value,
        VisitorMut,
    },
    parser::Parser,
};

/// Writes them out: `if`, `iff`, `max_by`, `arg_max`, `min_by`, `arg_min`, `datediff`, `date_diff`.
pub(crate) fn write_out(statement: &mut Statement) {
    let _ = visit_mut(statement, &mut Shorthand);
}

struct Shorthand;

impl VisitorMut for Shorthand {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && let Some(written) = written(call)
        {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

fn written(call: &Function) -> Option<Expr> {
    let [name] = call.name.0.as_slice() else {
        return None;
    };
    let name = name.as_ident()?.value.to_ascii_lowercase();
    let args = positional(&call.args)?;
    let plain = call.over.is_none() && call.filter.is_none();
    let template = match (name.as_str(), args.len()) {
        ("if" | "iff", 3) if plain => "CASE WHEN _0 THEN _1 ELSE _2 END",
        ("max_by" | "arg_max", 2) if plain => {
            "first_value(_0 ORDER BY _1 DESC NULLS LAST) FILTER (WHERE _1 IS NOT NULL)"
        }
        ("min_by" | "arg_min", 2) if plain => {
            "first_value(_0 ORDER BY _1 ASC NULLS LAST) FILTER (WHERE _1 IS NOT NULL)"
        }
        ("datediff" | "date_diff", 3) => difference(&args[0])?,
        _ => return None,
    };
    fill(template, &args)
}

fn positional(args: &FunctionArguments) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = args else {
        return None;
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(arg).collect()
}

/// Boundaries of a unit between two moments: `_1` the earlier, `_2` the later.
fn difference(unit: &Expr) -> Option<&'static str> {
    let unit = match unit {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.to_ascii_lowercase(),
            _ => return None,
        },
        Expr::Identifier(Ident { value, .. }) => value.to_ascii_lowercase(),
        _ => return None,
    };
    Some(match unit.as_str() {
        "year" => "CAST(date_part('year', _2) - date_part('year', _1) AS BIGINT)",
        "quarter" => {
            "CAST((date_part('year', _2) - date_part('year', _1)) * 4 \
             + date_part('quarter', _2) - date_part('quarter', _1) AS BIGINT)"
        }
        "month" => {
            "CAST((date_part('year', _2) - date_part('year', _1)) * 12 \
             + date_part('month', _2) - date_part('month', _1) AS BIGINT)"
        }
        "week" => {
            "CAST((date_part('epoch', date_trunc('week', _2)) \
             - date_part('epoch', date_trunc('week', _1))) / 604800 AS BIGINT)"
        }
        "day" => {
            "CAST((date_part('epoch', date_trunc('day', _2)) \
             - date_part('epoch', date_trunc('day', _1))) / 86400 AS BIGINT)"
        }
        "hour" => {
            "CAST((date_part('epoch', date_trunc('hour', _2)) \
             - date_part('epoch', date_trunc('hour', _1))) / 3600 AS BIGINT)"
        }
        "minute" => {
            "CAST((date_part('epoch', date_trunc('minute', _2)) \
             - date_part('epoch', date_trunc('minute', _1))) / 60 AS BIGINT)"
        }
        "second" => {
            "CAST(date_part('epoch', date_trunc('second', _2)) \
             - date_part('epoch', date_trunc('second', _1)) AS BIGINT)"
        }
        _ => return None,
    })
}

/// A template with `_0`, `_1`, `_2` as the arguments.
fn fill(template: &str, args: &[Expr]) -> Option<Expr> {
    let mut written = Parser::new(&HeadwaterDialect)
        .try_with_sql(template)
        .ok()?
        .parse_expr()
        .ok()?;
    let _ = visit_mut(&mut written, &mut Fill(args));
    Some(written)
}

/// Puts arguments where a template names them.
struct Fill<'a>(&'a [Expr]);

impl VisitorMut for Fill<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = &*expr
            && let Some(index) = name.value.strip_prefix('_')
            && let Some(arg) = index
                .parse()
                .ok()
                .and_then(|index: usize| self.0.get(index))
        {
            *expr = Expr::Nested(Box::new(arg.clone()));
        }
        ControlFlow::Continue(())
    }
}
