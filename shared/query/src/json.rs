//! JSON functions and the operators `->` and `->>`.

use std::sync::Arc;

use datafusion::{
    common::{DFSchema, Result, config::ConfigOptions, tree_node::Transformed},
    execution::{FunctionRegistry, SessionState},
    logical_expr::{Cast, Expr, TryCast, expr::ScalarFunction, expr_rewriter::FunctionRewrite},
};
use datafusion_functions_json::udfs::json_as_text_udf;

/// Registers them.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    // Before the library's own rewrites, which read numbers through floating point or as NULL.
    state.register_function_rewrite(Arc::new(CastThroughText))?;
    datafusion_functions_json::register_all(state)
}

/// `(j->'k')::T` becomes `(j->>'k')::T`: the number's own digits are cast, so that integers beyond 2^53 and decimals
/// stay exact and what is no T is an error instead of NULL.
#[derive(Debug)]
struct CastThroughText;

impl FunctionRewrite for CastThroughText {
    fn name(&self) -> &'static str {
        "cast_json_through_text"
    }

    fn rewrite(
        &self,
        expr: Expr,
        _schema: &DFSchema,
        _config: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::Cast(Cast { expr, field }) => match as_text(&expr) {
                Some(text) => Transformed::yes(Expr::Cast(Cast {
                    expr: Box::new(text),
                    field,
                })),
                None => Transformed::no(Expr::Cast(Cast { expr, field })),
            },
            Expr::TryCast(TryCast { expr, field }) => match as_text(&expr) {
                Some(text) => Transformed::yes(Expr::TryCast(TryCast {
                    expr: Box::new(text),
                    field,
                })),
                None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
            },
            other => Transformed::no(other),
        })
    }
}

fn as_text(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "json_get" => {
            let call = ScalarFunction {
                func: json_as_text_udf(),
                args: call.args.clone(),
            };
            Some(Expr::ScalarFunction(call))
        }
        Expr::Alias(alias) => as_text(&alias.expr),
        _ => None,
    }
}
