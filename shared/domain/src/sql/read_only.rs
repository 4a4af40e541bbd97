//! Only statements that read.

use std::ops::ControlFlow;

use sqlparser::{
    ast::{
        Join, JoinConstraint, JoinOperator, PipeOperator, Query, Select, SetExpr, SetOperator,
        SetQuantifier, Spanned, Statement, TableFactor, Visitor,
    },
    tokenizer::Location,
};

use super::{SqlError, dialect::ONLY_SELECT, visit};

/// Refuses everything but a query or the EXPLAIN of one, and inside it everything that writes or that the planner would
/// silently leave out.
pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    match statement {
        Statement::Query(_) => {}
        Statement::Explain {
            statement: inner, ..
        } if matches!(**inner, Statement::Query(_)) => {}
        Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowVariable { .. }
        | Statement::ExplainTable { .. } => {
            return Err(SqlError::at(
                statement.span().start,
                "only SELECT is allowed here; `headwater tables` lists tables, `headwater tables schema.name` the columns of one",
            ));
        }
        _ => {
            return Err(SqlError::at(statement.span().start, ONLY_SELECT));
        }
    }
    match visit(statement, &mut Reads) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break((at, what)) => Err(SqlError::at(at, what)),
    }
}

struct Reads;

impl Visitor for Reads {
    type Break = (Location, &'static str);

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        // Spans are worked out for errors only: finding one walks the whole tree.
        if !query.locks.is_empty() {
            let at = query.span().start;
            return ControlFlow::Break((
                at,
                "FOR UPDATE and FOR SHARE are not available: reads never lock",
            ));
        }
        let piped = query.pipe_operators.iter().find_map(|step| match step {
            PipeOperator::Join(join) => refused_join(join),
            _ => None,
        });
        match refused(&query.body).or(piped) {
            Some(why) => ControlFlow::Break((query.span().start, why)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        if select.into.is_some() {
            return ControlFlow::Break((select.span().start, "SELECT INTO writes: use a model"));
        }
        let mut joins = select.from.iter().flat_map(|from| &from.joins);
        match joins.find_map(refused_join) {
            Some(why) => ControlFlow::Break((select.span().start, why)),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
            && let Some(why) = table_with_joins.joins.iter().find_map(refused_join)
        {
            return ControlFlow::Break((factor.span().start, why));
        }
        if let TableFactor::Table {
            sample, version, ..
        } = factor
        {
            if sample.is_some() {
                let at = factor.span().start;
                return ControlFlow::Break((
                    at,
                    "TABLESAMPLE is not available: filter on random() instead",
                ));
            }
            if version.is_some() {
                let at = factor.span().start;
                return ControlFlow::Break((
                    at,
                    "time travel by FOR SYSTEM_TIME is not available here",
                ));
            }
        }
        ControlFlow::Continue(())
    }
}

/// What is said of a join that [`loses_keys`].
const LOST_KEYS: &str = "RIGHT and FULL JOIN with USING or NATURAL are not available: join ON a.x = b.x and select coalesce(a.x, b.x)";

/// Why a join is not run.
fn refused_join(join: &Join) -> Option<&'static str> {
    // What DataFusion does not plan it answers with its own tree.
    match &join.join_operator {
        JoinOperator::Semi(_) => Some(
            "SEMI JOIN is not available: use WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x) or WHERE a.x IN (SELECT x FROM b)",
        ),
        JoinOperator::Anti(_) => Some(
            "ANTI JOIN is not available: use WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
        ),
        JoinOperator::CrossApply | JoinOperator::OuterApply => {
            Some("CROSS APPLY and OUTER APPLY are not available: use JOIN, or a subquery")
        }
        JoinOperator::AsOf { .. } => Some(
            "ASOF JOIN is not available: join ON the keys and a.at >= b.at, and keep the latest with row_number()",
        ),
        JoinOperator::StraightJoin(_) => Some("STRAIGHT_JOIN is not available: use JOIN"),
        _ => loses_keys(join).then_some(LOST_KEYS),
    }
}

/// Whether the column that both sides share would be NULL where only the right side has a row: DataFusion takes the left
/// side's for it.
fn loses_keys(join: &Join) -> bool {
    let how = match &join.join_operator {
        JoinOperator::Right(how) | JoinOperator::RightOuter(how) | JoinOperator::FullOuter(how) => {
            how
        }
        _ => return false,
    };
    matches!(how, JoinConstraint::Using(_) | JoinConstraint::Natural)
}

/// Why the body of a query is not run.
fn refused(body: &SetExpr) -> Option<&'static str> {
    match body {
        // `TABLE name` reads, but names its table where `tables` does not look and the planner does not either.
        SetExpr::Insert(_)
        | SetExpr::Update(_)
        | SetExpr::Delete(_)
        | SetExpr::Merge(_)
        | SetExpr::Table(_) => {
            Some("only SELECT is allowed here: nothing that writes, and no `TABLE name`")
        }
        // DataFusion plans them as joins, which do not count how often a row is there.
        SetExpr::SetOperation {
            op: SetOperator::Except | SetOperator::Intersect | SetOperator::Minus,
            set_quantifier: SetQuantifier::All | SetQuantifier::AllByName,
            ..
        } => Some(
            "EXCEPT ALL and INTERSECT ALL are not available: number equal rows with row_number() and leave out ALL",
        ),
        SetExpr::SetOperation { left, right, .. } => refused(left).or_else(|| refused(right)),
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => None,
    }
}
