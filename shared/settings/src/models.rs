//! The model files of a project.

use std::{fs, io, path::Path};

/// The folder of model files.
pub const TRANSFORM: &str = "transform";
/// Folders below `transform/` that are still looked into; deeper ones are a loop of links.
const DEPTH_MAX: usize = 16;

/// The model files of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFiles {
    /// Path below the project and text, in order of name.
    pub files: Vec<(String, String)>,
    /// Path below the project of what is no UTF-8, with line and column of where it is none, in order of name.
    pub foreign: Vec<(String, (usize, usize))>,
}

/// Every model file of a project. A project without the folder has none.
///
/// # Errors
/// When a folder or file cannot be read, naming it.
pub fn model_files(project: &Path) -> io::Result<ModelFiles> {
    let mut files = ModelFiles::default();
    let root = project.join(TRANSFORM);
    if root.is_dir() {
        collect(&root, TRANSFORM, 0, &mut files)?;
    }
    files.files.sort();
    files.foreign.sort();
    Ok(files)
}

fn collect(folder: &Path, relative: &str, depth: usize, files: &mut ModelFiles) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "`{relative}` is nested more than {DEPTH_MAX} folders deep"
        )));
    }
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("read `{relative}`: {error}"));
    for entry in fs::read_dir(folder).map_err(named)? {
        let entry = entry.map_err(named)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (path, relative) = (entry.path(), format!("{relative}/{name}"));
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            collect(&path, &relative, depth + 1, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("sql"))
        {
            let bytes = fs::read(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("read `{relative}`: {error}"))
            })?;
            match String::from_utf8(bytes) {
                Ok(text) => files.files.push((relative, text)),
                Err(error) => {
                    let place = place(error.as_bytes(), error.utf8_error().valid_up_to());
                    files.foreign.push((relative, place));
                }
            }
        }
    }
    Ok(())
}

/// Line and column, from 1, of a byte behind text.
fn place(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default());
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    (line, last.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_no_text_has_a_line_and_a_column() {
        assert_eq!(place(b"\xe9", 0), (1, 1));
        assert_eq!(place(b"SELECT\n '\xc3\xbc\xe9'", 11), (2, 4));
        assert_eq!(place(b"a\n\xe9", 2), (2, 1));
    }
}
