//! `#[materialize]`: an async function whose results are entries. The `client` crate re-exports it and says what it does.

mod expand;
mod function;
mod words;

use proc_macro::TokenStream;

/// Wraps an async function: its results are kept in the registry, and it answers with a `MaterializedFrame`.
///
/// | word | means |
/// |---|---|
/// | `key = "signups"` | what people call its entries; the function's name when nothing is said |
/// | `ttl = 3600`, `"10m"`, `never` | how long a result is good for, in seconds or as text |
/// | `version = 2` | raised when the function means something else than before |
/// | `mode = "swr"`, `"strict"` | an expired entry is served while one rebuild runs, or is a miss |
/// | `background = false` | the result is stored before its caller gets it |
/// | `on_error = "raise"`, `"fallback"` | when the registry is away its callers get the error, or the function runs |
/// | `index = [bm25("notes"), vector("embedding")]` | indexes that are built with the entry |
/// | `key_fn = \|a, b\| ..` | what identifies a call, of references to the arguments: for those that cannot be serialized |
/// | `lease = "10m"` | longest that one build takes before another takes over |
/// | `client = expression` | the client, where it is not the installed one |
///
/// Arguments are owned, can be cloned, and are serialized by `serde` into the identity of the call.
#[proc_macro_attribute]
pub fn materialize(words: TokenStream, function: TokenStream) -> TokenStream {
    let expanded = expand::expand(words.into(), function.clone().into());
    expanded
        .unwrap_or_else(|error| {
            // The function stays, so that its callers do not complain as well.
            let (error, function) = (
                error.to_compile_error(),
                proc_macro2::TokenStream::from(function),
            );
            quote::quote!(#error #function)
        })
        .into()
}
