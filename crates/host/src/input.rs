//! Reads the files, directories and standard input that a user names on the command line.
//!
//! Everything is bounded, so that a wrong path (a disk image, a device) ends in an error and not in
//! exhausted memory.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// A failure to read an input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The operating system refused.
    #[error("failed to read {path}")]
    Read {
        /// The input.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The input is too large.
    #[error("{path} is larger than {} MiB", limit / (1024 * 1024))]
    TooLarge {
        /// The input.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
}

/// The depth of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descend {
    /// Only the directory itself.
    No,
    /// The whole tree.
    Yes,
}

/// Reads a file of at most `limit` bytes.
pub fn file(path: &Path, limit: u64) -> Result<Vec<u8>, InputError> {
    let shown = path.display().to_string();
    let file =
        File::open(path).map_err(|source| InputError::Read { path: shown.clone(), source })?;
    bounded(file, shown, limit)
}

/// Reads all files of a directory and its subdirectories, at most `limit` bytes together: relative
/// paths and contents, in path order. Links to directories are not followed.
pub fn tree(directory: &Path, limit: u64) -> Result<Vec<(String, Vec<u8>)>, InputError> {
    let mut files = Vec::new();
    let mut left = limit;
    for path in files_where(directory, Descend::Yes, |_| true)? {
        let bytes = file(&path, left).map_err(|error| match error {
            InputError::TooLarge { .. } => {
                InputError::TooLarge { path: directory.display().to_string(), limit }
            }
            InputError::Read { .. } => error,
        })?;
        left = left.saturating_sub(bytes.len() as u64);
        let relative = path.strip_prefix(directory).unwrap_or(&path);
        files.push((relative.display().to_string(), bytes));
    }
    Ok(files)
}

/// Reads standard input of at most `limit` bytes.
pub fn stdin(limit: u64) -> Result<Vec<u8>, InputError> {
    bounded(io::stdin().lock(), "standard input".to_owned(), limit)
}

/// Returns true if the path is a directory; fails if it does not exist.
pub fn is_directory(path: &Path) -> Result<bool, InputError> {
    fs::metadata(path).map(|found| found.is_dir()).map_err(|source| refused(path, source))
}

/// Returns true if the directory has no entries.
pub fn is_empty(directory: &Path) -> Result<bool, InputError> {
    let mut entries = fs::read_dir(directory).map_err(|source| refused(directory, source))?;
    Ok(entries.next().is_none())
}

/// Lists the files of a directory with one of `extensions`, in path order.
pub fn files_in(
    directory: &Path,
    extensions: &[&str],
    descend: Descend,
) -> Result<Vec<PathBuf>, InputError> {
    files_where(directory, descend, |path| has_extension(path, extensions))
}

fn files_where(
    directory: &Path,
    descend: Descend,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, InputError> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let refuse = |source| refused(&directory, source);
        for entry in fs::read_dir(&directory).map_err(refuse)? {
            let entry = entry.map_err(refuse)?;
            let path = entry.path();
            // Links to directories are not followed: a loop of them would have no end.
            if entry.file_type().map_err(refuse)?.is_dir() {
                if descend == Descend::Yes {
                    pending.push(path);
                }
            } else if is_wanted(&path) && !path.is_dir() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
}

fn refused(path: &Path, source: io::Error) -> InputError {
    InputError::Read { path: path.display().to_string(), source }
}

fn bounded(source: impl Read, path: String, limit: u64) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    let read = source.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    match read {
        Err(source) => Err(InputError::Read { path, source }),
        Ok(count) if count as u64 > limit => Err(InputError::TooLarge { path, limit }),
        Ok(_) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_at_the_limit_is_read_and_one_above_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(file(&path, 5).unwrap(), b"12345");
        assert!(matches!(file(&path, 4), Err(InputError::TooLarge { limit: 4, .. })));
    }

    #[test]
    fn a_tree_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/c"), b"123").unwrap();
        fs::write(folder.path().join("d"), b"45").unwrap();
        let expected = [("a/b/c".to_owned(), b"123".to_vec()), ("d".to_owned(), b"45".to_vec())];
        assert_eq!(tree(folder.path(), 5).unwrap(), expected);
        assert!(matches!(tree(folder.path(), 4), Err(InputError::TooLarge { limit: 4, .. })));
    }

    #[test]
    fn the_error_names_a_missing_file() {
        let error = file(Path::new("/no/such/file"), 5).unwrap_err();
        assert_eq!(error.to_string(), "failed to read /no/such/file");
    }

    #[test]
    fn only_manifests_are_listed_and_subdirectories_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("deep/er.yaml")).unwrap();
        for name in ["b.yaml", "a.yml", "c.json", "README.md", "deep/d.yaml", "deep/er.yaml/e.yaml"]
        {
            fs::write(at(name), "").unwrap();
        }
        symlink(folder.path(), at("loop.yaml")).unwrap();
        let list = |descend| {
            files_in(folder.path(), &["yaml", "yml", "json"], descend)
                .unwrap()
                .iter()
                .map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(list(Descend::No), "a.yml b.yaml c.json");
        assert_eq!(list(Descend::Yes), "a.yml b.yaml c.json deep/d.yaml deep/er.yaml/e.yaml");
    }
}
