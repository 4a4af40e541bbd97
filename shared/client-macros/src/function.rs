//! Which functions can be wrapped.

use syn::{Error, FnArg, Ident, ItemFn, Pat, Result, ReturnType, Type, spanned::Spanned};

/// The arguments of a function that can be wrapped, and what it returns.
pub(crate) struct Shape<'a> {
    pub(crate) arguments: Vec<(&'a Ident, &'a Type)>,
    pub(crate) returns: &'a Type,
}

/// Looks at a function.
pub(crate) fn shape(function: &ItemFn) -> Result<Shape<'_>> {
    let signature = &function.sig;
    let refused = |at: &dyn Spanned, why: &str| Err(Error::new(at.span(), why));
    if signature.asyncness.is_none() {
        return refused(
            &signature.fn_token,
            "only async functions are materialized: write `async fn`",
        );
    }
    if let Some(generic) = signature.generics.params.first() {
        return refused(
            generic,
            "a generic function is many functions of one name: wrap one function for each type, which calls it",
        );
    }
    let ReturnType::Type(_, returns) = &signature.output else {
        return refused(
            &signature.ident,
            "it returns nothing that could be kept: return record batches, a stream of them, or rows",
        );
    };
    if matches!(&**returns, Type::ImplTrait(_)) {
        return refused(returns, "name the type that it returns");
    }
    let mut arguments = Vec::new();
    for input in &signature.inputs {
        let argument = match input {
            FnArg::Receiver(receiver) => {
                return refused(
                    receiver,
                    "what a receiver holds is no argument: pass what the result depends on",
                );
            }
            FnArg::Typed(argument) => argument,
        };
        let Pat::Ident(pattern) = &*argument.pat else {
            return refused(
                &argument.pat,
                "give the argument a name, which is part of the call's identity",
            );
        };
        match &*argument.ty {
            Type::Reference(reference) => {
                return refused(
                    reference,
                    "arguments are kept for the rebuild behind a stale answer: take an owned type (`String`, `Vec`, `Arc`)",
                );
            }
            Type::ImplTrait(kind) => {
                return refused(
                    kind,
                    "a generic argument is many functions of one name: name its type",
                );
            }
            kind => arguments.push((&pattern.ident, kind)),
        }
    }
    Ok(Shape { arguments, returns })
}
