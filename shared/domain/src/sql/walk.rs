//! Walks over syntax trees. A visitor that the parser's own walk is handed has all of that walk compiled for itself, some
//! hundreds of functions; these walk on behalf of any visitor by one and the same code.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// Shows the parts of a node to a visitor; what it broke off with.
pub fn visit<N: Visit + ?Sized, V: Visitor>(node: &N, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut told = Told {
        visitor,
        broke: None,
    };
    let _: ControlFlow<()> = node.visit(&mut Any(&mut told));
    told.broke
        .map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Shows the parts of a node to a visitor that may change them; what it broke off with.
pub fn visit_mut<N: VisitMut + ?Sized, V: VisitorMut>(
    node: &mut N,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut told = Told {
        visitor,
        broke: None,
    };
    let _: ControlFlow<()> = node.visit(&mut AnyMut(&mut told));
    told.broke
        .map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// A visitor, and what it broke off with.
struct Told<'a, V, B> {
    visitor: &'a mut V,
    broke: Option<B>,
}

impl<V, B> Told<'_, V, B> {
    fn note(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(with) => {
                self.broke = Some(with);
                ControlFlow::Break(())
            }
        }
    }
}

/// A visitor by reference: `$any` is one, `$dynamic` what it needs of the visitor, whose methods have the same names.
macro_rules! erased {
    ($any:ident, $dynamic:ident, $visitor:ident, $($method:ident: $node:ty),* $(,)?) => {
        struct $any<'a>(&'a mut dyn $dynamic);

        trait $dynamic {
            $(fn $method(&mut self, node: $node) -> ControlFlow<()>;)*
        }

        impl<V: $visitor> $dynamic for Told<'_, V, V::Break> {
            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                let flow = self.visitor.$method(node);
                self.note(flow)
            })*
        }

        impl $visitor for $any<'_> {
            type Break = ();
            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }
    };
}

erased!(
    Any,
    Dynamic,
    Visitor,
    pre_visit_query: &Query,
    post_visit_query: &Query,
    pre_visit_select: &Select,
    post_visit_select: &Select,
    pre_visit_relation: &ObjectName,
    post_visit_relation: &ObjectName,
    pre_visit_table_factor: &TableFactor,
    post_visit_table_factor: &TableFactor,
    pre_visit_expr: &Expr,
    post_visit_expr: &Expr,
    pre_visit_statement: &Statement,
    post_visit_statement: &Statement,
    pre_visit_value: &ValueWithSpan,
    post_visit_value: &ValueWithSpan,
);

erased!(
    AnyMut,
    DynamicMut,
    VisitorMut,
    pre_visit_query: &mut Query,
    post_visit_query: &mut Query,
    pre_visit_select: &mut Select,
    post_visit_select: &mut Select,
    pre_visit_relation: &mut ObjectName,
    post_visit_relation: &mut ObjectName,
    pre_visit_table_factor: &mut TableFactor,
    post_visit_table_factor: &mut TableFactor,
    pre_visit_expr: &mut Expr,
    post_visit_expr: &mut Expr,
    pre_visit_statement: &mut Statement,
    post_visit_statement: &mut Statement,
    pre_visit_value: &mut ValueWithSpan,
    post_visit_value: &mut ValueWithSpan,
);
