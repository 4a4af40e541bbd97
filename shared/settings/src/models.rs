//! The model files of a project.

use std::{fs, io, path::Path};

/// The folder of model files.
pub const TRANSFORM: &str = "transform";
/// Folders below `transform/` that are still looked into; deeper ones are a loop of links.
const DEPTH_MAX: usize = 16;

/// Every model file of a project in order of name: path below the project and text. A project without the folder has
/// none.
///
/// # Errors
/// When a folder or file cannot be read, naming it.
pub fn model_files(project: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let root = project.join(TRANSFORM);
    if root.is_dir() {
        collect(&root, TRANSFORM, 0, &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect(
    folder: &Path,
    relative: &str,
    depth: usize,
    files: &mut Vec<(String, String)>,
) -> io::Result<()> {
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
            let text = fs::read_to_string(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("read `{relative}`: {error}"))
            })?;
            files.push((relative, text));
        }
    }
    Ok(())
}
