//! What the suite and the benchmarks share: worlds to run in, projects to serve, the real program as a child process,
//! a small HTTP client, and the real input data.
//!
//! Rules are tested beside the code; here the product is tested from outside, in the user's words.

pub mod addresses;
pub mod aws;
pub mod case;
pub mod data;
pub mod folder;
pub mod http;
pub mod parquet;
pub mod program;
pub mod rows;
pub mod site;
pub mod transport;
pub mod week;
pub mod wire;
pub mod world;

use std::path::PathBuf;

/// The repository's root folder.
#[must_use]
pub fn root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).unwrap_or(package)
}

/// A folder named by a variable, or `fallback` relative to the repository's root; none when it does not exist.
#[must_use]
pub fn folder_of(variable: &str, fallback: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or_else(|| root().join(fallback), PathBuf::from);
    path.is_dir().then_some(path)
}

/// Whether a variable is set to something else than nothing and `0`.
#[must_use]
pub fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}
