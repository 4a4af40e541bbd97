//! Where a request goes, in the form that the adapter takes for granted.
//!
//! The adapter writes host and path into the text of a URL and reads that again: a path that the gateway has decoded would lose
//! what comes after `#` and `?`, tabs and line ends, and be resolved where it says `..`: another table. What is no URL makes it
//! panic. So the path is encoded again, the host is kept out of it, and what nobody can mean is refused.

use lambda_http::{
    http::{HeaderMap, HeaderValue, Uri, header::HOST, uri::Authority},
    request::LambdaRequest,
};

/// Longest path and query: an address holds 64 KB with what else is in it.
const LENGTH_MAX: usize = 60_000;

/// Settles path and query of a request, and takes its host out, which is to be given back to what the adapter makes of it.
///
/// # Errors
/// What is wrong with one of them.
pub(crate) fn settle(request: &mut LambdaRequest) -> Result<Vec<HeaderValue>, &'static str> {
    let mut none = HeaderMap::new();
    let (path, headers, others, query) = match request {
        LambdaRequest::ApiGatewayV2(request) => {
            request.request_context.domain_name = None;
            let query = request.raw_query_string.clone().unwrap_or_default();
            (
                &mut request.raw_path,
                &mut request.headers,
                &mut none,
                query,
            )
        }
        LambdaRequest::ApiGatewayV1(request) => {
            request.request_context.domain_name = None;
            let others = &mut request.multi_value_headers;
            // It comes decoded, and the adapter encodes it.
            let query = String::new();
            (&mut request.path, &mut request.headers, others, query)
        }
        LambdaRequest::Alb(request) => {
            let others = &mut request.multi_value_headers;
            let query = String::new();
            (&mut request.path, &mut request.headers, others, query)
        }
        // The type may grow.
        _ => return Ok(Vec::new()),
    };
    let settled = encoded(path.as_deref().unwrap_or_default())?;
    is_query(&settled, &query)?;
    *path = Some(settled);
    let (first, second) = (taken(headers), taken(others));
    let hosts = if first.is_empty() { second } else { first };
    if hosts.iter().any(|host| !is_host(host)) {
        return Err("the header `host` names no host");
    }
    Ok(hosts)
}

/// A path with all encoded that may not be in one; what is encoded stays as it is.
fn encoded(path: &str) -> Result<String, &'static str> {
    if !path.is_empty() && !path.starts_with('/') {
        return Err("the path does not begin with `/`");
    }
    if path.split('/').any(is_dots) {
        return Err("a path with `.` or `..` in it is not resolved");
    }
    let bytes = path.as_bytes();
    let mut text = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let is_code = |code: &[u8]| code.iter().all(u8::is_ascii_hexdigit);
        let may_stand = match byte {
            b'%' => bytes.get(at + 1..at + 3).is_some_and(is_code),
            b'/' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => true,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
            other => other.is_ascii_alphanumeric(),
        };
        match may_stand {
            true => text.push(char::from(*byte)),
            false => text.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    if text.is_empty() {
        text.push('/');
    }
    Ok(text)
}

fn digit(four: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(four)])
}

/// Whether a part of a path says this folder or the one above, encoded or not.
fn is_dots(part: &str) -> bool {
    let plain = part.replace("%2e", ".").replace("%2E", ".");
    plain == "." || plain == ".."
}

/// Whether a query may stand behind a path: what is in it came encoded, or nobody knows what it means.
fn is_query(path: &str, query: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>".contains(&byte);
    let text = format!("{path}?{query}");
    if text.len() > LENGTH_MAX {
        return Err("the address is too long");
    }
    match query.bytes().all(is_plain) && Uri::try_from(text).is_ok() {
        true => Ok(()),
        false => Err("the query holds what has to be percent-encoded"),
    }
}

fn taken(headers: &mut HeaderMap) -> Vec<HeaderValue> {
    let hosts = headers.get_all(HOST).iter().cloned().collect();
    headers.remove(HOST);
    hosts
}

fn is_host(host: &HeaderValue) -> bool {
    host.to_str()
        .is_ok_and(|host| Authority::try_from(host).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_was_decoded_stays_one_path() {
        let check = |path: &str, want: &str| assert_eq!(encoded(path).as_deref(), Ok(want));
        check("", "/");
        check("/a/b-c_d.e~f", "/a/b-c_d.e~f");
        check("/or#ders", "/or%23ders");
        check("/or?ders", "/or%3Fders");
        check("/or\nd\ters", "/or%0Ad%09ers");
        check("/x\\..\\orders", "/x%5C..%5Corders");
        check(
            "/or ders/ä\"<>{}|^`",
            "/or%20ders/%C3%A4%22%3C%3E%7B%7D%7C%5E%60",
        );
        check("/or%64ers/100%/%4", "/or%64ers/100%25/%254");
        check("/...", "/...");
        for bad in [
            "/x/../orders",
            "/x/%2e%2E/y",
            "/.%2e",
            "/a/./b",
            "x",
            "../a",
        ] {
            assert!(encoded(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_query_that_is_none_is_refused() {
        for good in ["", "a=1&b=%20", "q={}", "x=?/"] {
            assert_eq!(is_query("/", good), Ok(()), "{good}");
        }
        let long = "x".repeat(LENGTH_MAX);
        for bad in ["a b", "a=<", "a=\"x\"", "a#b", "ä", "a\n", &long] {
            assert!(is_query("/", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_that_is_none_is_known() {
        let is = |host: &str| is_host(&HeaderValue::from_str(host).expect("a value"));
        assert!(is("a.example:8080") && is("[::1]:80") && is("localhost"));
        assert!(!is("a b c") && !is("") && !is("a/b"));
    }
}
