//! Which CTEs can be named where.

use std::collections::HashMap;

use sqlparser::ast::{Ident, Query};

/// The CTEs in scope while a visitor walks a statement, each with what the walk has learned of it.
#[derive(Debug, Default)]
pub(super) struct Scopes<T = ()> {
    open: Vec<Scope<T>>,
    /// By address of a CTE's query: index of its scope, its index there, and how many names it may use.
    ctes: HashMap<usize, (usize, usize, usize)>,
}

/// The CTEs of one query, of which the first `visible` can be named at this moment.
#[derive(Debug)]
struct Scope<T> {
    names: Vec<(String, T)>,
    visible: usize,
}

/// Identifies a query of a tree that is being walked and does not move.
fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl<T: Clone + Default> Scopes<T> {
    /// Before a query is visited. The visitor sees a query's CTEs first, in order, then its body.
    pub(super) fn enter(&mut self, query: &Query) {
        if let Some((scope, _, visible)) = self.ctes.get(&address(query)).copied()
            && let Some(scope) = self.open.get_mut(scope)
        {
            scope.visible = visible;
        }
        let mut scope = Scope {
            names: Vec::new(),
            visible: 0,
        };
        if let Some(with) = &query.with {
            for (index, cte) in with.cte_tables.iter().enumerate() {
                // Without RECURSIVE a CTE sees those before it; with it, itself and all others.
                let visible = if with.recursive {
                    with.cte_tables.len()
                } else {
                    index
                };
                self.ctes
                    .insert(address(&cte.query), (self.open.len(), index, visible));
                scope
                    .names
                    .push((cte.alias.name.value.clone(), T::default()));
            }
        }
        scope.visible = scope.names.len();
        self.open.push(scope);
    }

    /// After a query was visited. When it is a CTE's, `learned` is kept for those who name it; answers whether it is.
    pub(super) fn leave(&mut self, query: &Query, learned: T) -> bool {
        self.open.pop();
        let Some((scope, index, _)) = self.ctes.remove(&address(query)) else {
            return false;
        };
        if let Some(scope) = self.open.get_mut(scope) {
            scope.visible = scope.names.len();
            if let Some(cte) = scope.names.get_mut(index) {
                cte.1 = learned;
            }
        }
        true
    }

    /// What is known of the innermost CTE of this name.
    pub(super) fn find(&self, name: &Ident) -> Option<T> {
        let named = |scope: &Scope<T>| {
            let visible = &scope.names[..scope.visible];
            visible
                .iter()
                .find(|(cte, _)| cte.eq_ignore_ascii_case(&name.value))
                .map(|(_, known)| known.clone())
        };
        self.open.iter().rev().find_map(named)
    }
}
