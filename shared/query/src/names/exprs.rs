//! Names inside expressions.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Ident, Query, VisitMut, VisitorMut};

use super::{Ambiguous, Resolver, Result, ident, scope::Found};

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
        match holder.visit(&mut Exprs {
            resolver,
            inside: 0,
        }) {
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
    fn qualified(&mut self, parts: &mut [Ident]) -> Result<()> {
        for split in (1..parts.len()).rev() {
            let qualifier: Vec<String> = parts[..split].iter().map(ident).collect();
            let qualifier = qualifier.join(".");
            let name = &mut parts[split];
            let found = self.levels.iter().rev();
            let found = found
                .filter_map(|level| level.find_in(&qualifier, &name.value))
                .next();
            if let Some(found) = found {
                let quoted = name.quote_style.is_some();
                return if quoted {
                    Ok(())
                } else {
                    apply(name, Some(found))
                };
            }
        }
        self.column(&mut parts[0])
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
