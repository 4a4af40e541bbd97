//! `headwater token`: a token for callers, and the digest that settings name.

use rand::TryRngCore;
use serde_json::json;

use super::{Context, print_json};
use crate::{failure::Failure, screen::say};

/// Random bytes of a token: more than anybody can try.
const BYTES: usize = 32;

/// Makes a token. It is shown once and kept nowhere.
pub(super) fn token(context: &Context) -> Result<(), Failure> {
    let mut bytes = [0; BYTES];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| {
            Failure::unavailable(format!("the system gives no random bytes: {error}"))
        })?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = format!("blake3:{}", blake3::hash(token.as_bytes()).to_hex());
    if context.json {
        return print_json(&json!({ "token": token, "digest": digest }));
    }
    say(&format!(
        "token   {token}\ndigest  {digest}\n\nCallers send `Authorization: Bearer TOKEN`; the server is told the digest:\n\nauth:\n  tokens: {digest}"
    ))?;
    Ok(())
}
