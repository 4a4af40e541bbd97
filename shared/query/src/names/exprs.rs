//! Names inside expressions.

use std::ops::ControlFlow;

use domain::sql::visit_mut;
use sqlparser::ast::{Expr, Ident, Query, VisitMut, VisitorMut};

use super::{Ambiguous, Resolver, Result, ident, scope::Found};

/// The schema that stands before a relation which has none.
const ANY_SCHEMA: &str = "around";

/// Resolves the names of an expression, or of whatever holds expressions, where the resolver stands.
pub(super) struct Exprs<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    /// Queries around the current place that are resolved already.
    inside: usize,
}

impl<'r, 'a> Exprs<'r, 'a> {
    pub(super) fn resolve(
        resolver: &'r mut Resolver<'a>,
        holder: &mut impl VisitMut,
    ) -> Result<()> {
        let mut exprs = Exprs {
            resolver,
            inside: 0,
        };
        match visit_mut(holder, &mut exprs) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(ambiguous) => Err(ambiguous),
        }
    }
}

impl VisitorMut for Exprs<'_, '_> {
    type Break = Ambiguous;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Ambiguous> {
        self.inside += 1;
        match self.inside {
            1 => flow(self.resolver.query(query).map(drop)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Ambiguous> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Ambiguous> {
        if self.inside > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(name) => flow(self.resolver.column(name)),
            Expr::CompoundIdentifier(parts) => flow(self.resolver.qualified(parts)),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn flow(result: Result<()>) -> ControlFlow<Ambiguous> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(ambiguous) => ControlFlow::Break(ambiguous),
    }
}

impl Resolver<'_> {
    /// A column named alone.
    pub(super) fn column(&mut self, name: &mut Ident) -> Result<()> {
        if name.quote_style.is_some() {
            return Ok(());
        }
        let found = self
            .levels
            .iter()
            .rev()
            .map(|level| level.find(&name.value));
        apply(
            name,
            found.into_iter().find(|found| *found != Found::Nothing),
        )
    }

    /// A column behind its table's name, or a field of a struct column.
    fn qualified(&mut self, parts: &mut Vec<Ident>) -> Result<()> {
        for split in (1..parts.len()).rev() {
            let qualifier: Vec<String> = parts[..split].iter().map(ident).collect();
            let qualifier = qualifier.join(".");
            let name = &mut parts[split];
            let found = self.levels.iter().enumerate().rev();
            let found = found
                .filter_map(|(at, level)| Some((at, level.find_in(&qualifier, &name.value)?)))
                .next();
            if let Some((at, found)) = found {
                if name.quote_style.is_none() {
                    apply(name, Some(found))?;
                }
                self.reach(parts, at);
                return Ok(());
            }
        }
        self.column(&mut parts[0])
    }

    /// Makes `c.id` mean the relation `c` of the level `at` where a level inside of it has a column `c`, of which the
    /// planner would take `id` for a field: behind a schema it takes `c` for a relation and nothing else. A relation with
    /// an alias has no schema, and answers to any.
    fn reach(&self, parts: &mut Vec<Ident>, at: usize) {
        let [qualifier, _] = parts.as_slice() else {
            return;
        };
        let name = ident(qualifier);
        let inside = self.levels.get(at + 1..).unwrap_or_default();
        if inside.iter().any(|level| level.has_column(&name)) {
            let schema = self.levels[at].schema_of(&name);
            parts.insert(0, Ident::with_quote('"', schema.unwrap_or(ANY_SCHEMA)));
        }
    }
}

fn apply(name: &mut Ident, found: Option<Found>) -> Result<()> {
    match found {
        Some(Found::Spelled(spelling)) => {
            name.value = spelling;
            name.quote_style = Some('"');
            Ok(())
        }
        Some(Found::Several(spellings)) => Err(Ambiguous {
            name: name.clone(),
            spellings,
        }),
        Some(Found::Nothing | Found::AsWritten) | None => Ok(()),
    }
}
