//! The dialect of the product, and the same with a budget of steps for parsing what strangers send.

use std::{any::TypeId, cell::Cell};

use sqlparser::{
    ast::{Expr, Statement},
    dialect::{Dialect, GenericDialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

/// sqlparser's generic dialect, with JSON operators that bind as in PostgreSQL, so that `j->>'n' = '5'` compares the
/// extracted text, with `IS DISTINCT FROM` that ends before `AND`, with `ORDER BY ALL`, and without MATCH_RECOGNIZE, which nothing runs and whose patterns are as deep
/// as they are long.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadwaterDialect;

/// How tightly `->`, `->>` and their kin bind: looser than `+`, tighter than `=`, `IN`, `LIKE` and `BETWEEN`.
const JSON_PRECEDENCE: u8 = 28;

/// What the parser is told when its budget is spent; [`super::parse`] says it in other words.
pub(super) const OUT_OF_STEPS: &str = "out of steps";

/// What is said of a statement that does anything but read.
pub(super) const ONLY_SELECT: &str =
    "only SELECT is allowed here: nothing that writes, defines or configures";

/// [`HeadwaterDialect`] that lets the parser begin only so many expressions.
///
/// The parser tries some words first as a keyword and then, when that failed, as a name. Nested, each level doubles the
/// work of the levels below, so a short malformed statement could keep it busy for ever.
#[derive(Debug)]
pub(super) struct Budgeted {
    steps: Cell<usize>,
}

impl Budgeted {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            steps: Cell::new(steps),
        }
    }

    /// Takes one step; false when none is left.
    fn step(&self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        left > 0
    }
}

/// Answers each of the generic dialect's questions as `$to` does. Delegation has to be spelled out: a trait has no
/// `super`.
macro_rules! answer_as {
    ($to:expr) => {
        answer_as! { $to;
            supports_unicode_string_literal,
            supports_partition_by_after_order_by,
            supports_array_join_syntax,
            supports_group_by_expr,
            supports_group_by_with_modifier,
            supports_left_associative_joins_without_parens,
            supports_connect_by,
            supports_pipe_operator,
            supports_start_transaction_modifier,
            supports_window_function_null_treatment_arg,
            supports_dictionary_syntax,
            supports_window_clause_named_window_reference,
            supports_parenthesized_set_variables,
            supports_select_wildcard_except,
            support_map_literal_syntax,
            allow_extract_custom,
            allow_extract_single_quotes,
            supports_extract_comma_syntax,
            supports_create_view_comment_syntax,
            supports_parens_around_table_factor,
            supports_values_as_table_factor,
            supports_create_index_with_clause,
            supports_explain_with_utility_options,
            supports_limit_comma,
            supports_update_order_by,
            supports_from_first_select,
            supports_projection_trailing_commas,
            supports_asc_desc_in_column_definition,
            supports_try_convert,
            supports_bitwise_shift_operators,
            supports_comment_on,
            supports_load_extension,
            supports_named_fn_args_with_assignment_operator,
            supports_struct_literal,
            supports_empty_projections,
            supports_nested_comments,
            supports_multiline_comment_hints,
            supports_user_host_grantee,
            supports_string_escape_constant,
            supports_array_typedef_with_brackets,
            supports_match_against,
            supports_set_names,
            supports_comma_separated_set_assignments,
            supports_filter_during_aggregation,
            supports_select_wildcard_exclude,
            supports_data_type_signed_suffix,
            supports_interval_options,
            supports_quote_delimited_string,
            supports_select_wildcard_replace,
            supports_select_wildcard_ilike,
            supports_select_wildcard_rename,
            supports_optimize_table,
            supports_install,
            supports_detach,
            supports_prewhere,
            supports_with_fill,
            supports_limit_by,
            supports_interpolate,
            supports_settings,
            supports_select_format,
            supports_comment_optimizer_hint,
            supports_constraint_keyword_without_name,
            supports_key_column_option,
            supports_comma_separated_trim,
            supports_cte_without_as,
            supports_select_item_multi_column_alias,
            supports_xml_expressions,
        }

        /// The parser asks for the generic dialect by type in places; this one is to be taken for it.
        fn dialect(&self) -> TypeId {
            TypeId::of::<GenericDialect>()
        }

        fn is_delimited_identifier_start(&self, ch: char) -> bool {
            $to.is_delimited_identifier_start(ch)
        }

        fn is_identifier_start(&self, ch: char) -> bool {
            $to.is_identifier_start(ch)
        }

        fn is_identifier_part(&self, ch: char) -> bool {
            $to.is_identifier_part(ch)
        }
    };
    ($to:expr; $($question:ident,)*) => {
        $(
            fn $question(&self) -> bool {
                $to.$question()
            }
        )*
    };
}

impl Dialect for HeadwaterDialect {
    answer_as!(GenericDialect);

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::PgOther => JSON_PRECEDENCE,
            other => GenericDialect.prec_value(other),
        }
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    /// The parser itself takes all that follows as the second operand, with its ANDs and ORs.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let distinct = [Keyword::IS, Keyword::DISTINCT, Keyword::FROM];
        let same = [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];
        let build = match () {
            () if parser.parse_keywords(&distinct) => Expr::IsDistinctFrom,
            () if parser.parse_keywords(&same) => Expr::IsNotDistinctFrom,
            () => return None,
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }
}

impl Dialect for Budgeted {
    answer_as!(HeadwaterDialect);

    fn prec_value(&self, precedence: Precedence) -> u8 {
        HeadwaterDialect.prec_value(precedence)
    }

    fn supports_order_by_all(&self) -> bool {
        HeadwaterDialect.supports_order_by_all()
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        HeadwaterDialect.parse_infix(parser, left, precedence)
    }

    fn parse_prefix(&self, _: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        (!self.step()).then(|| Err(ParserError::ParserError(OUT_OF_STEPS.to_owned())))
    }

    /// Statements that hold statements are refused before the parser descends into them.
    fn parse_statement(&self, parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
        let token = parser.peek_token();
        let Token::Word(word) = &token.token else {
            return None;
        };
        let holds = matches!(
            word.keyword,
            Keyword::BEGIN
                | Keyword::CASE
                | Keyword::CREATE
                | Keyword::DECLARE
                | Keyword::IF
                | Keyword::PREPARE
                | Keyword::WHILE
        );
        holds.then(|| {
            let place = token.span.start;
            Err(ParserError::ParserError(format!("{ONLY_SELECT}{place}")))
        })
    }
}
