//! `headwater init`: a project that runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use settings::{FILE, TRANSFORM};

use super::{Context, print_json};
use crate::{failure::Failure, screen::say};

/// Where the events of the template's data go.
const WEBHOOK: &str = "http://127.0.0.1:8080/api/ingest/webhook/orders";

/// What keeps files out of a repository.
const IGNORE: &str = ".gitignore";

/// The template's files: path and text.
pub(super) const TEMPLATE: [(&str, &str); 7] = [
    (FILE, include_str!("../template/headwater.yml")),
    // What the program keeps beside a project is no part of it.
    (IGNORE, "/.headwater/\n"),
    ("README.md", include_str!("../template/README.md")),
    (
        "data/orders.ndjson",
        include_str!("../template/orders.ndjson"),
    ),
    (
        "transform/bronze/orders.sql",
        include_str!("../template/bronze_orders.sql"),
    ),
    (
        "transform/silver/orders.sql",
        include_str!("../template/silver_orders.sql"),
    ),
    (
        "transform/gold/revenue.sql",
        include_str!("../template/gold_revenue.sql"),
    ),
];

/// Makes a project.
pub(super) fn init(context: &Context, dir: Option<PathBuf>) -> Result<(), Failure> {
    let dir = dir.unwrap_or_else(|| context.project.clone());
    write(&dir)?;
    if context.json {
        let files: Vec<&str> = TEMPLATE.iter().map(|(path, _)| *path).collect();
        return print_json(&json!({ "project": dir, "files": files }));
    }
    let shown = dir.display();
    say(&format!(
        "made a project in {shown}: {} files",
        TEMPLATE.len()
    ))?;
    let at = quoted(&shown.to_string());
    let data = format!("@{}", dir.join("data/orders.ndjson").display());
    say(&format!(
        "\nnext, in one terminal:\n  headwater --project {at} serve\nand in another:"
    ))?;
    say(&format!(
        "  curl -H 'content-type: application/x-ndjson' --data-binary {} {WEBHOOK}",
        quoted(&data)
    ))?;
    let sql = "SELECT * FROM gold.revenue";
    say(&format!("  headwater --project {at} query \"{sql}\""))?;
    Ok(())
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Writes the template into a folder that holds no project yet.
pub(super) fn write(dir: &Path) -> Result<(), Failure> {
    if let Some(file) = dir.ancestors().find(|above| above.is_file()) {
        return Err(Failure::usage(format!(
            "`{}` is a file: name a folder for the project, such as `headwater init shop`",
            file.display()
        )));
    }
    for taken in [FILE, TRANSFORM] {
        if dir.join(taken).exists() {
            return Err(Failure::project(format!(
                "`{}` holds a project already: `{taken}` is there",
                dir.display()
            )));
        }
    }
    // A repository's own is left as it is.
    let is_kept = |path: &str| path == IGNORE && dir.join(path).exists();
    let taken = |(path, _): &&(&str, &str)| !is_kept(path) && dir.join(path).exists();
    if let Some((path, _)) = TEMPLATE.iter().find(taken) {
        return Err(Failure::project(format!(
            "`{}` is there already; nothing was written",
            dir.join(path).display()
        )));
    }
    for (path, text) in TEMPLATE.into_iter().filter(|(path, _)| !is_kept(path)) {
        let path = dir.join(path);
        let folder = path.parent().unwrap_or(dir);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| {
                Failure::unavailable(format!("write `{}`: {error}", path.display()))
            })?;
    }
    Ok(())
}
