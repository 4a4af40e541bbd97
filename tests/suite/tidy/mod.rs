//! Tidy: the rules of the house that a program can check.

mod documents;
mod layers;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::plain::test;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("tidy::imports_point_down", layers::imports_point_down),
        test("tidy::domain_stays_pure", layers::domain_stays_pure),
        test(
            "tidy::every_crate_inherits_the_lints",
            layers::every_crate_inherits_the_lints,
        ),
        test("tidy::files_are_short", text::files_are_short),
        test(
            "tidy::mains_are_introductions",
            text::mains_are_introductions,
        ),
        test(
            "tidy::names_say_what_is_inside",
            text::names_say_what_is_inside,
        ),
        test(
            "tidy::nothing_names_the_machine_it_was_written_on",
            text::nothing_names_this_machine,
        ),
        test("tidy::nothing_is_left_to_do", text::nothing_is_left_to_do),
        test(
            "tidy::no_shipped_line_is_written_by_what_panics",
            text::nothing_prints,
        ),
        test(
            "tidy::the_readme_is_short_and_has_both_commands",
            documents::readme_has_both_commands,
        ),
        test(
            "tidy::commands_of_the_documents_exist",
            documents::commands_exist,
        ),
        test(
            "tidy::every_setting_is_documented",
            documents::every_setting_is_documented,
        ),
    ]
}

/// A file of the repository.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// Its text; none when it is not text.
    pub(crate) text: Option<String>,
}

/// Every file of the repository that is ours: what git ignores is left out by name.
pub(crate) fn files() -> Result<Vec<File>> {
    let root = tests::root();
    let mut files = Vec::new();
    walk(&root, &root, &mut files)?;
    ensure!(
        files.len() > 50,
        "only {} files under {}",
        files.len(),
        root.display()
    );
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("target")
            || name == ".git"
            || name == ".headwater"
            || name == "node_modules"
        {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, files)?;
            continue;
        }
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let relative = path
            .strip_prefix(root)?
            .to_string_lossy()
            .replace('\\', "/");
        files.push(File {
            path: relative,
            text: String::from_utf8(bytes).ok(),
        });
    }
    Ok(())
}

/// Fails with all complaints at once.
pub(crate) fn report(complaints: &[String]) -> Result<()> {
    ensure!(
        complaints.is_empty(),
        "{} complaints:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
    Ok(())
}
