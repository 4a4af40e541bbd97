//! The function that stands in its place.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, ItemFn, LitStr, Result};

use crate::{
    function::shape,
    words::{Ttl, Words},
};

pub(crate) fn expand(words: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let words: Words = syn::parse2(words)?;
    let function: ItemFn = syn::parse2(function).map_err(|error| {
        Error::new(
            error.span(),
            format!("`materialize` stands before an async function ({error})"),
        )
    })?;
    let shape = shape(&function)?;
    let ItemFn {
        attrs,
        vis,
        sig,
        block,
    } = &function;
    let (name, inputs, returns) = (&sig.ident, &sig.inputs, shape.returns);
    let names: Vec<&Ident> = shape.arguments.iter().map(|(name, _)| *name).collect();
    let version = match &words.version {
        Some(version) => quote!(#version),
        None => quote!(0),
    };
    let identity = identity(&words, &function, &names)?;
    let spec = spec(&words, name, &version);
    let client = match &words.client {
        Some(client) => quote!(::client::Client::clone(&#client)),
        None => quote!(::client::Client::installed()?),
    };
    let statements = &block.stmts;
    Ok(quote! {
        #(#attrs)*
        #vis async fn #name(#inputs) -> ::client::Result<::client::MaterializedFrame> {
            let __client: ::client::Client = #client;
            let __identity = #identity;
            let __call = ::client::Call::new(__identity, #spec, move || {
                #(let #names = ::core::clone::Clone::clone(&#names);)*
                async move {
                    // Never so; it tells the compiler what `?` and `return` are about.
                    if let ::core::option::Option::Some(__returned) = ::core::option::Option::None::<#returns> {
                        return __returned;
                    }
                    let __returned: #returns = { #(#statements)* };
                    #[allow(unreachable_code)]
                    __returned
                }
            });
            __client.get(__call).await
        }
    })
}

/// The identity of a call: where the function is, its version, its arguments.
fn identity(words: &Words, function: &ItemFn, names: &[&Ident]) -> Result<TokenStream> {
    let name = function.sig.ident.to_string();
    let version = words
        .version
        .as_ref()
        .map_or_else(|| quote!(0), |version| quote!(#version));
    // Functions within functions and types may share a path: their text tells them apart.
    let block = &function.block;
    let code = format!("{:016x}", digest(&quote!(#block).to_string()));
    let begun = quote! {
        ::client::Identity::of(
            ::core::any::type_name_of_val(&|| ()),
            ::core::concat!(::core::module_path!(), "::", #name),
            #code,
            #version,
        )
    };
    match &words.key_fn {
        Some(_) if names.is_empty() => Err(Error::new(
            function.sig.ident.span(),
            "`key_fn` identifies a call by its arguments, and there are none",
        )),
        Some(key_fn) => Ok(quote!(#begun.argument("key_fn", &(#key_fn)(#(&#names),*))?)),
        None => {
            let texts = names
                .iter()
                .map(|name| LitStr::new(&name.to_string(), name.span()));
            Ok(quote!(#begun #(.argument(#texts, &#names)?)*))
        }
    }
}

fn spec(words: &Words, name: &Ident, version: &TokenStream) -> TokenStream {
    let key = words
        .key
        .clone()
        .unwrap_or_else(|| LitStr::new(&name.to_string(), name.span()));
    let span = |millis: u64| quote!(::core::time::Duration::from_millis(#millis));
    let some = |value: TokenStream| quote!(::core::option::Option::Some(#value));
    let none = quote!(::core::option::Option::None);
    let ttl = match &words.ttl {
        None => quote!(::client::Ttl::Default),
        Some((Ttl::Never, _)) => quote!(::client::Ttl::Never),
        Some((Ttl::Millis(millis), _)) => {
            let ttl = span(*millis);
            quote!(::client::Ttl::For(#ttl))
        }
    };
    let mode = match words.strict {
        None => none.clone(),
        Some((false, _)) => some(quote!(::client::Mode::Swr)),
        Some((true, _)) => some(quote!(::client::Mode::Strict)),
    };
    let on_error = match words.raise {
        None => none.clone(),
        Some(false) => some(quote!(::client::OnError::Fallback)),
        Some(true) => some(quote!(::client::OnError::Raise)),
    };
    let background = words
        .background
        .as_ref()
        .map_or(none.clone(), |background| some(quote!(#background)));
    let lease = words.lease.map_or(none, |lease| some(span(lease)));
    let index = words.index.iter().map(|index| {
        let (kind, column) = (&index.kind, &index.column);
        quote!(::client::Index::#kind(#column))
    });
    quote! {
        ::client::Spec {
            key: ::std::string::String::from(#key),
            version: #version,
            ttl: #ttl,
            mode: #mode,
            background: #background,
            on_error: #on_error,
            lease: #lease,
            index: ::std::vec![#(#index),*],
        }
    }
}

/// FNV-1a of a text: the same in every build.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(words: &str, function: &str) -> String {
        let (words, function) = (
            words.parse().expect("tokens"),
            function.parse().expect("tokens"),
        );
        expand(words, function)
            .expect_err("it is refused")
            .to_string()
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let plain = "async fn f(a: i64) -> Vec<Row> { vec![] }";
        for (words, function, said) in [
            ("", "fn f() -> Vec<Row> { vec![] }", "async fn"),
            ("", "async fn f() {}", "returns nothing"),
            (
                "",
                "async fn f(a: &str) -> Vec<Row> { vec![] }",
                "owned type",
            ),
            ("", "async fn f(&self) -> Vec<Row> { vec![] }", "receiver"),
            (
                "",
                "async fn f<T>(a: T) -> Vec<Row> { vec![] }",
                "many functions of one name",
            ),
            (
                "",
                "async fn f(a: impl Into<String>) -> Vec<Row> { vec![] }",
                "name its type",
            ),
            (
                "",
                "async fn f((a, b): (i64, i64)) -> Vec<Row> { vec![] }",
                "a name",
            ),
            ("", "struct S;", "async function"),
            ("tll = 5", plain, "`tll` is no word"),
            ("ttl = 0", plain, "never a hit"),
            ("ttl = \"10 parsecs\"", plain, "number of seconds"),
            ("ttl = never, mode = \"swr\"", plain, "never stale"),
            ("mode = \"lazy\"", plain, "\"swr\" or \"strict\""),
            ("on_error = \"ignore\"", plain, "\"fallback\" or \"raise\""),
            ("key = \"\"", plain, "1 to 1000 bytes"),
            ("version = 1, version = 2", plain, "said twice"),
            ("index = bm25(notes)", plain, "bm25(\"column\")"),
            ("index = [bm25(\"a\"), bm25(\"a\")]", plain, "said twice"),
            (
                "key_fn = || 1",
                "async fn f() -> Vec<Row> { vec![] }",
                "there are none",
            ),
        ] {
            let complaint = complaint(words, function);
            assert!(complaint.contains(said), "{words} {function}: {complaint}");
        }
    }

    #[test]
    fn all_words_are_taken() {
        let words = "key = \"k\", ttl = \"10m\", version = 2, mode = \"strict\", background = false, on_error = \"raise\", \
                     index = [bm25(\"a\"), vector(\"b\")], key_fn = |a| a, lease = 60, client = here";
        let function = "pub async fn f(a: i64) -> Result<Vec<Row>, E> { Ok(vec![]) }";
        let expanded = expand(
            words.parse().expect("tokens"),
            function.parse().expect("tokens"),
        );
        assert!(expanded.is_ok_and(|expanded| syn::parse2::<ItemFn>(expanded).is_ok()));
    }
}
