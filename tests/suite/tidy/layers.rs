//! Who may import whom, as the design says: imports point down.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::{File, files, report};

/// Levels from the bottom up; a crate imports only crates of lower levels. Crates of one level are strangers.
const LEVELS: [&[&str]; 7] = [
    &["domain", "client-macros"],
    &["ports", "settings"],
    &["engine", "testkit"],
    &["lake", "query", "search", "embedded", "aws"],
    &["lambda", "web", "client"],
    &[
        "headwater",
        "ingest",
        "coalesce",
        "materialize",
        "sweep",
        "sql",
    ],
    &["tests"],
];

/// What `testkit` and the functions without SQL may not reach, although it is lower.
const REFUSED: [(&str, &[&str]); 5] = [
    ("ports", &["settings"]),
    ("ingest", &["query", "datafusion", "search", "tantivy"]),
    ("coalesce", &["query", "datafusion", "search", "tantivy"]),
    ("sweep", &["query", "datafusion", "search", "tantivy"]),
    ("testkit", &["engine"]),
];

/// What the rules may be built with: values and parsers.
const PURE: [&str; 6] = [
    "serde",
    "serde_json",
    "sqlparser",
    "thiserror",
    "sha2",
    "regex",
];

/// One `Cargo.toml`: where it is, the crate's name, and the names of its production dependencies.
struct Manifest {
    path: String,
    name: String,
    uses: Vec<String>,
    inherits_lints: bool,
}

fn manifests() -> Result<Vec<Manifest>> {
    let members = files()?
        .into_iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"));
    members.map(|file| read(&file)).collect()
}

/// Enough of TOML for manifests of one form: `[section]` and `name = ..` or `name.workspace = true`.
fn read(file: &File) -> Result<Manifest> {
    let text = file.text.as_deref().unwrap_or_default();
    let mut section = "";
    let mut manifest = Manifest {
        path: file.path.clone(),
        name: String::new(),
        uses: Vec::new(),
        inherits_lints: false,
    };
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            if let Some(name) = section.strip_prefix("dependencies.") {
                manifest.uses.push(name.to_owned());
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match section {
            "package" if key == "name" => manifest.name = value.trim_matches('"').to_owned(),
            "dependencies" | "build-dependencies" => {
                manifest
                    .uses
                    .push(key.split('.').next().unwrap_or(key).to_owned());
            }
            "lints" if key == "workspace" && value == "true" => manifest.inherits_lints = true,
            _ => {}
        }
    }
    (!manifest.name.is_empty())
        .then_some(manifest)
        .with_context(|| format!("{} names no package", file.path))
}

pub(super) fn imports_point_down() -> Result<()> {
    let levels: BTreeMap<&str, usize> = LEVELS
        .iter()
        .enumerate()
        .flat_map(|(level, names)| names.iter().map(move |name| (*name, level)))
        .collect();
    let mut complaints = Vec::new();
    for manifest in manifests()? {
        let Some(own) = levels.get(manifest.name.as_str()) else {
            complaints.push(format!(
                "{}: `{}` has no level; give it one here",
                manifest.path, manifest.name
            ));
            continue;
        };
        for used in &manifest.uses {
            if levels.get(used.as_str()).is_some_and(|level| level >= own) {
                complaints.push(format!(
                    "{}: `{}` may not import `{used}`",
                    manifest.path, manifest.name
                ));
            }
            let refused = REFUSED.iter().filter(|(name, _)| *name == manifest.name);
            if refused
                .into_iter()
                .any(|(_, names)| names.contains(&used.as_str()))
            {
                complaints.push(format!(
                    "{}: `{}` may not reach `{used}`",
                    manifest.path, manifest.name
                ));
            }
            // `tests` ships in nothing, and puts the adapters before an emulator.
            if (used.starts_with("aws") || used.starts_with("lambda_"))
                && !["aws", "lambda", "tests"].contains(&&*manifest.name)
            {
                complaints.push(format!(
                    "{}: only `aws` and `lambda` name an AWS type, not through `{used}`",
                    manifest.path
                ));
            }
        }
    }
    report(&complaints)
}

pub(super) fn domain_stays_pure() -> Result<()> {
    let domain = manifests()?
        .into_iter()
        .find(|manifest| manifest.name == "domain")
        .context("no domain")?;
    let foreign = domain
        .uses
        .iter()
        .filter(|used| !PURE.contains(&used.as_str()));
    report(
        &foreign
            .map(|used| format!("`domain` holds rules over values; `{used}` is not on its list"))
            .collect::<Vec<_>>(),
    )
}

pub(super) fn every_crate_inherits_the_lints() -> Result<()> {
    let without = manifests()?
        .into_iter()
        .filter(|manifest| !manifest.inherits_lints);
    report(
        &without
            .map(|manifest| format!("{}: [lints] workspace = true is missing", manifest.path))
            .collect::<Vec<_>>(),
    )
}
