//! Conditions by themselves: what a search over an entry is filtered by.

use sqlparser::ast::{Expr, SetExpr, Statement};

use super::{SqlError, parse};

/// What a condition is parsed within; its own first line is the second.
const BEFORE: &str = "SELECT 1 FROM this WHERE (\n";

/// The text of one condition over `this`, written anew from its tree, so that nothing but a condition can be in it.
///
/// # Errors
/// What is wrong and where, in the condition's own lines.
pub fn condition(text: &str) -> Result<String, SqlError> {
    let parsed = parse(&format!("{BEFORE}{text}\n)")).map_err(|error| SqlError {
        line: error.line.saturating_sub(1),
        ..error
    })?;
    let no_condition =
        || SqlError::nowhere("this is not one condition, as it would stand after WHERE");
    let Statement::Query(mut query) = parsed else {
        return Err(no_condition());
    };
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(no_condition());
    };
    let Some(Expr::Nested(condition)) = select.selection.take() else {
        return Err(no_condition());
    };
    match query.to_string() == "SELECT 1 FROM this" {
        true => Ok(condition.to_string()),
        false => Err(no_condition()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_one_condition_and_nothing_else() {
        let good = |text: &str| condition(text).expect(text);
        assert_eq!(good("n > 5 -- much"), "n > 5");
        assert_eq!(
            good("a = ')' AND \"b c\" IN (1, 2)"),
            "a = ')' AND \"b c\" IN (1, 2)"
        );
        for bad in [
            "",
            "n >",
            "n > 5)",
            "true) OR (true",
            "true) ORDER BY (n",
            "true) UNION SELECT 2 FROM this WHERE (true",
            "n = 1; DROP TABLE this",
        ] {
            assert!(condition(bad).is_err(), "{bad}");
        }
        let error = condition("n >\n > 5").expect_err("is none");
        assert_eq!(error.line, 2, "{error}");
    }
}
