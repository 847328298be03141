//! A copy of this program on the machine, for units that must run whatever else the machine has.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use mco_host::{
    Attribute, Owner, Root, RootError,
    input::{self, InputError},
};

/// Name of the program in its directory.
pub const PROGRAM: &str = "mco";

/// A program whose SELinux label is copied: where labels are enforced, systemd does not start just
/// any file in `/var`.
const LABEL_SOURCE: &str = "/usr/bin/env";
const LABEL: &str = "security.selinux";

/// Larger than any build of this program.
const MAX_PROGRAM_SIZE: u64 = 1 << 30;
/// Larger than any `/proc/PID/maps`.
const MAX_MAPS_SIZE: u64 = 4 << 20;

/// A failure to copy the program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// This program cannot be read.
    #[error(transparent)]
    Program(#[from] InputError),
    /// A file cannot be written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// A program that runs on the machine, whatever libraries the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The files to copy, by their target names.
    files: BTreeMap<String, PathBuf>,
    /// The dynamic loader among the files, if any.
    loader: Option<String>,
}

impl Program {
    /// Returns this program, with its libraries if it runs in a container.
    pub fn own() -> Result<Self, InputError> {
        let maps = input::file(Path::new("/proc/self/maps"), MAX_MAPS_SIZE)?;
        Ok(Self::new(PathBuf::from("/proc/self/exe"), &String::from_utf8_lossy(&maps)))
    }

    /// Builds the program with the libraries in `maps`, in the format of `/proc/PID/maps`.
    #[must_use]
    pub fn new(program: PathBuf, maps: &str) -> Self {
        // After the address, the permissions, the offset, the device and the inode.
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let libraries: BTreeMap<String, PathBuf> = paths
            .filter_map(|path| Some((path.rsplit_once('/')?.1.to_owned(), PathBuf::from(path))))
            .filter(|(name, _)| name.contains(".so"))
            .collect();
        let loader = libraries.keys().find(|name| name.starts_with("ld")).cloned();
        // Older systems name the files by version and not as a loader looks for them; there the
        // machine's own libraries are used.
        let (mut files, loader) = match loader {
            Some(loader) if libraries.contains_key("libc.so.6") => (libraries, Some(loader)),
            _ => (BTreeMap::new(), None),
        };
        files.insert(PROGRAM.to_owned(), program);
        Self { files, loader }
    }

    /// Returns the command line that runs the copy in `folder` with these arguments.
    #[must_use]
    pub fn command(&self, folder: &str, arguments: &str) -> String {
        let program = format!("{folder}/{PROGRAM} {arguments}");
        match &self.loader {
            Some(loader) => format!("{folder}/{loader} --library-path {folder} {program}"),
            None => program,
        }
    }

    /// Copies the program to `folder`; skips files that are up to date.
    pub fn install(&self, root: &Root, folder: &str) -> Result<(), ProgramError> {
        let label: Vec<Attribute> =
            root.attributes(LABEL_SOURCE)?.into_iter().filter(|it| it.name == LABEL).collect();
        for (name, path) in &self.files {
            let bytes = input::file(path, MAX_PROGRAM_SIZE)?;
            let target = format!("{folder}/{name}");
            if root.read(&target)?.as_ref() == Some(&bytes) {
                root.set_mode(&target, 0o755)?;
            } else if label.is_empty() {
                root.write(&target, &bytes, 0o755)?;
            } else {
                root.write_labelled(&target, &bytes, 0o755, Owner::default(), &label)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0-55d1 r--p 00000000 08:01 12 /usr/bin/mco
55d1-55d2 rw-p 00000000 00:00 0 [heap]
7f00-7f01 r-xp 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 r--p 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r--p 00000000 08:01 14 /usr/lib/x86_64-linux-gnu/libgcc_s.so.1
7f03-7f04 r--p 00000000 08:01 15 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7f04-7f05 ---p 00000000 00:00 0
";

    #[test]
    fn a_program_brings_its_libraries_if_the_loader_finds_them() {
        let names = |maps: &str| {
            let program = Program::new(PathBuf::from("/proc/self/exe"), maps);
            let names: Vec<&str> = program.files.keys().map(String::as_str).collect();
            (names.join(" "), program.command("/f", "a b"))
        };
        let (files, command) = names(MAPS);
        assert_eq!(files, "ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 mco");
        assert_eq!(command, "/f/ld-linux-x86-64.so.2 --library-path /f /f/mco a b");
        // Linked statically, or with file names that the loader does not look for.
        for maps in ["", &MAPS.replace("libc.so.6", "libc-2.28.so")] {
            assert_eq!(names(maps), ("mco".to_owned(), "/f/mco a b".to_owned()));
        }
    }
}
