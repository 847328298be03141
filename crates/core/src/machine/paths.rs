//! Paths of a config that exclude one another.
//!
//! A machine cannot have a file and a path below it, nor a file in place of a directory that every
//! system needs. Such a config is refused before it reaches a node.

use std::collections::HashSet;

use mco_ignition::Config;

use super::{UNITS, dropin_path, has_file, unit_path};

/// A path of a config that no machine can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathConflict {
    /// The path lies below a file of the same config.
    #[error("{path} is below {file}, which is a file of the same config")]
    BelowFile {
        /// The path.
        path: String,
        /// The file or link above it.
        file: String,
    },
    /// The path is that of a directory.
    #[error("{path} cannot be a file: it is a directory of the system")]
    SystemDirectory {
        /// The path.
        path: String,
    },
}

impl PathConflict {
    /// Returns the path that cannot be written.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::BelowFile { path, .. } | Self::SystemDirectory { path } => path,
        }
    }
}

/// Directories that a running machine, or the daemon itself, cannot do without.
const SYSTEM_DIRECTORIES: [&str; 54] = [
    "/",
    "/bin",
    "/boot",
    "/boot/efi",
    "/boot/loader",
    "/boot/loader/entries",
    "/dev",
    "/etc",
    "/etc/kubernetes",
    "/etc/kubernetes/manifests",
    "/etc/machine-config-daemon",
    "/etc/machine-config-daemon/noorig",
    "/etc/machine-config-daemon/orig",
    "/etc/ssh",
    "/etc/systemd",
    "/etc/systemd/system",
    "/home",
    "/home/core",
    "/home/core/.ssh",
    "/home/core/.ssh/authorized_keys.d",
    "/lib",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/ostree",
    "/proc",
    "/root",
    "/run",
    "/run/systemd",
    "/run/systemd/system",
    "/sbin",
    "/srv",
    "/sys",
    "/sysroot",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/etc",
    "/usr/lib",
    "/usr/lib/systemd",
    "/usr/lib/systemd/system",
    "/usr/lib64",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/var",
    "/var/home",
    "/var/lib",
    "/var/lib/kubelet",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// Suffixes of directories beside a unit file.
const UNIT_DIRECTORIES: [&str; 4] = [".d", ".wants", ".requires", ".upholds"];

/// Returns every path of a config that no machine can have, in the order of the config.
#[must_use]
pub fn conflicts(config: &Config) -> Vec<PathConflict> {
    let units = config.systemd.units.iter();
    let units = units.flat_map(|unit| {
        let own = has_file(unit).then(|| unit_path(&unit.name));
        let is_written =
            |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let dropins = unit.dropins.iter().filter(move |dropin| is_written(&dropin.contents));
        own.into_iter().chain(dropins.map(|dropin| dropin_path(&unit.name, &dropin.name)))
    });
    let units: Vec<String> = units.collect();
    let storage = &config.storage;
    let files = storage.files.iter().map(|file| file.path.as_str());
    let links = storage.links.iter().map(|link| link.path.as_str());
    let written: Vec<&str> = files.chain(links).chain(units.iter().map(String::as_str)).collect();
    let set: HashSet<&str> = written.iter().copied().collect();
    let directories = storage.directories.iter().map(|directory| directory.path.as_str());
    let mut found = Vec::new();
    // Many files share a directory, which is looked up once.
    let mut free: HashSet<&str> = HashSet::new();
    for path in written.iter().copied().chain(directories) {
        if let Some(file) = file_above(path, &set, &mut free) {
            let (path, file) = (path.to_owned(), file.to_owned());
            found.push(PathConflict::BelowFile { path, file });
        }
    }
    let taken = written.into_iter().filter(|path| is_system_directory(path));
    found.extend(taken.map(|path| PathConflict::SystemDirectory { path: path.to_owned() }));
    found
}

/// Directories that an image contains and a running machine cannot write: `/usr`, and the links to
/// its directories.
const IMAGE_DIRECTORIES: [&str; 5] = ["/bin/", "/lib/", "/lib64/", "/sbin/", "/usr/"];

/// Returns true if an image-based system has this path in its read-only image.
///
/// `/usr/local` is a link to `/var/usrlocal` there.
#[must_use]
pub fn is_in_image(path: &str) -> bool {
    IMAGE_DIRECTORIES.iter().any(|it| path.starts_with(it)) && !path.starts_with("/usr/local/")
}

/// Returns true if one path lies below the other.
#[must_use]
pub fn are_related(one: &str, other: &str) -> bool {
    let is_below = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
    };
    is_below(one, other) || is_below(other, one)
}

/// Returns the directories above a path, the nearest first.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
        .skip(1)
        .filter(|above| !above.is_empty())
}

fn file_above<'p>(
    path: &'p str,
    files: &HashSet<&'p str>,
    free: &mut HashSet<&'p str>,
) -> Option<&'p str> {
    for above in ancestors(path) {
        if files.contains(above) {
            return Some(above);
        }
        if !free.insert(above) {
            return None;
        }
    }
    None
}

fn is_system_directory(path: &str) -> bool {
    let is_of_unit = || {
        let name = path.strip_prefix(UNITS).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| {
            !name.contains('/') && UNIT_DIRECTORIES.iter().any(|suffix| name.ends_with(suffix))
        })
    };
    SYSTEM_DIRECTORIES.binary_search(&path).is_ok() || is_of_unit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture::ignition, machine::Machine};

    fn found(storage: &str, units: &str) -> Vec<String> {
        let text = format!(
            r#"{{"ignition": {{"version": "3.5.0"}}, "storage": {storage}, "systemd": {{"units": {units}}}}}"#
        );
        let machine = Machine::read(&ignition("a", "worker", &text)).unwrap();
        conflicts(&machine.config).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_list_of_directories_is_sorted() {
        assert!(SYSTEM_DIRECTORIES.is_sorted());
    }

    // covers: C60
    #[test]
    fn a_path_below_a_file_and_a_file_in_place_of_a_directory_are_named() {
        let files =
            r#"{"files": [{"path": "/etc/a/b/c"}, {"path": "/etc/a"}, {"path": "/etc/ab"}]}"#;
        assert_eq!(
            found(files, "[]"),
            ["/etc/a/b/c is below /etc/a, which is a file of the same config"]
        );
        let files = r#"{"files": [{"path": "/etc/systemd"}]}"#;
        let unit = r#"[{"name": "u.service", "contents": "[Unit]"}]"#;
        assert_eq!(
            found(files, unit),
            [
                "/etc/systemd/system/u.service is below /etc/systemd, which is a file of the same \
                 config",
                "/etc/systemd cannot be a file: it is a directory of the system",
            ]
        );
        let files = r#"{"files": [{"path": "/etc/systemd/system/u.service.d"}]}"#;
        let dropin =
            r#"[{"name": "u.service", "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}]"#;
        assert_eq!(found(files, dropin).len(), 2);
        let empty = r#"[{"name": "u.service", "dropins": [{"name": "a.conf"}]}]"#;
        assert_eq!(found(files, empty).len(), 1, "an empty drop-in is no file");
        let directories = r#"{"directories": [{"path": "/etc/f/d"}, {"path": "/etc/d"}],
            "files": [{"path": "/etc/d/f"}, {"path": "/etc/f"}]}"#;
        assert_eq!(
            found(directories, "[]"),
            ["/etc/f/d is below /etc/f, which is a file of the same config"]
        );
    }

    // covers: C60
    #[test]
    fn only_usr_local_can_be_written_below_usr_of_an_image() {
        for path in ["/usr/bin/a", "/usr/lib/systemd/system/a.service", "/lib/a", "/sbin/a"] {
            assert!(is_in_image(path), "{path}");
        }
        for path in ["/usr/local/bin/a", "/etc/a", "/var/usrlocal/a", "/opt/a", "/library/a"] {
            assert!(!is_in_image(path), "{path}");
        }
    }

    #[test]
    fn paths_are_related_by_whole_names() {
        assert!(are_related("/etc/a", "/etc/a/b") && are_related("/etc/a/b", "/etc/a"));
        assert!(!are_related("/etc/a", "/etc/ab") && !are_related("/etc/a", "/etc/a"));
        assert_eq!(ancestors("/etc/a/b").collect::<Vec<_>>(), ["/etc/a", "/etc"]);
        assert_eq!(ancestors("/etc").count(), 0);
    }
}
