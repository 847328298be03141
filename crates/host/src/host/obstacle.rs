//! Paths of the machine that are in the way of those of a config.
//!
//! A file replaces a directory only if the directory is one that a config left behind: it contains
//! nothing else than directories, no package and no image has it, and it has the permissions of a new one, so
//! that going back to the earlier config creates an equal one.

use std::collections::{BTreeMap, BTreeSet};

use mco_core::{
    machine::{self, Machine, paths},
    plan::{NodePlan, Step},
};
use mco_ignition::config::File;

use super::{Host, HostError, IMAGE_BOOTED};
use crate::{
    original,
    root::{Location, Root, RootError, Stat},
    system::{Packaged, System},
};

/// Permissions of a directory that a write creates.
const NEW_DIRECTORY: u32 = 0o755;

impl<S: System> Host<S> {
    /// Fails if a step of `plan`, which leads from one config to another, cannot write its path, changes
    /// a file that the new config also has by another path, or cannot enable its unit.
    ///
    /// Called before the node is drained: a change that a machine cannot take must not touch it.
    pub fn check_paths(
        &self,
        from: &Machine,
        to: &Machine,
        plan: &NodePlan,
    ) -> Result<(), HostError> {
        self.check_same_files(from, to, plan)?;
        let mut free = BTreeSet::new();
        for step in &plan.steps {
            free.extend(self.freed_path(from, step)?);
        }
        for step in &plan.steps {
            let path = step.path().unwrap_or_default();
            if let Step::WriteFile(_) | Step::WriteUnit(_) | Step::WriteDropin { .. } = step {
                self.check_image(&path)?;
                self.check_above(&path, &free)?;
                self.check_directory(&path, &path, &free)?;
            } else if let Step::MaskUnit(_) = step {
                // A mask replaces a directory, too.
                self.check_above(&path, &free)?;
            }
        }
        self.check_units(from, to, plan)
    }

    /// Fails if the plan writes or removes a file by one path that the new config has by another, too:
    /// image-based systems, for instance, have `/home` as a link to `/var/home`.
    fn check_same_files(
        &self,
        from: &Machine,
        to: &Machine,
        plan: &NodePlan,
    ) -> Result<(), HostError> {
        let mut owners: BTreeMap<Location, Vec<&File>> = BTreeMap::new();
        for file in &to.config.storage.files {
            match self.root.location(&file.path) {
                Ok(location) => owners.entry(location).or_default().push(file),
                // Nothing is below a link to itself, so that no other path leads there.
                Err(error) if error.is_link_loop() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for step in &plan.steps {
            let is_removal = matches!(step, Step::RemoveFile(_));
            if !is_removal && !matches!(step, Step::WriteFile(_)) {
                continue;
            }
            let path = step.path().unwrap_or_default();
            // Two paths with the same contents, which the machine has already, are harmless.
            let is_harmless = |other: &File| {
                let file = to.file(&path).filter(|_| from.file(&path).is_some());
                file.is_some_and(|file| are_equal(file, other)) && from.file(&other.path).is_some()
            };
            let location = self.root.location(&path).map_err(|error| self.explain(&path, error))?;
            let files = owners.get(&location).into_iter().flatten();
            let other = files.filter(|it| it.path != path).find(|it| !is_harmless(it));
            if let Some(other) = other {
                let other = other.path.clone();
                return Err(HostError::SameFile { path, other });
            }
        }
        Ok(())
    }

    /// Names the link above a path that leads to itself, if that is why the path cannot be read.
    fn explain(&self, path: &str, error: RootError) -> HostError {
        if !error.is_link_loop() {
            return error.into();
        }
        let mut above: Vec<&str> = paths::ancestors(path).collect();
        above.reverse();
        let obstacle = above.into_iter().find(|above| self.root.directory(above).is_err());
        let (path, obstacle) = (path.to_owned(), obstacle.unwrap_or(path).to_owned());
        HostError::Obstructed { path, obstacle, kind: "a link to itself" }
    }

    /// Returns the path that a step leaves empty, if it does.
    fn freed_path(&self, from: &Machine, step: &Step) -> Result<Option<String>, HostError> {
        let is_removal = if let Step::RemoveUnit(unit) = step {
            from.unit(unit).is_some_and(machine::has_file)
        } else {
            matches!(step, Step::RemoveFile(_) | Step::RemoveDropin { .. } | Step::UnmaskUnit(_))
        };
        let Some(path) = step.path().filter(|_| is_removal) else { return Ok(None) };
        // The original comes back.
        let is_restored = self.root.stat(&original::copy_path(&path))?.is_some();
        Ok((!is_restored).then_some(path))
    }

    /// Fails if the path is in the read-only image of the machine.
    fn check_image(&self, path: &str) -> Result<(), HostError> {
        if paths::is_in_image(path) && self.root.exists(IMAGE_BOOTED)? {
            return Err(HostError::InImage { path: path.to_owned() });
        }
        Ok(())
    }

    /// Fails if a path above this one is not a directory and stays.
    fn check_above(&self, path: &str, free: &BTreeSet<String>) -> Result<(), HostError> {
        let mut above: Vec<&str> = paths::ancestors(path).collect();
        above.reverse();
        for obstacle in above {
            let directory = self.root.directory(obstacle);
            if directory.map_err(|error| self.explain(path, error))?.is_some() {
                continue;
            }
            return match self.root.stat(obstacle)? {
                Some(stat) if !free.contains(obstacle) => Err(obstructed(path, obstacle, stat)),
                _ => Ok(()),
            };
        }
        Ok(())
    }

    /// Fails if the directory at `at`, if there is one, cannot make place for the file at `path`.
    fn check_directory(
        &self,
        path: &str,
        at: &str,
        free: &BTreeSet<String>,
    ) -> Result<(), HostError> {
        let Some(stat) = self.root.stat(at)?.filter(Stat::is_directory) else { return Ok(()) };
        if !self.is_left_behind(at, stat)? {
            return Err(obstructed(path, at, stat));
        }
        for name in self.root.list(at)? {
            let child = format!("{at}/{name}");
            match self.root.stat(&child)? {
                Some(stat) if stat.is_directory() => self.check_directory(path, &child, free)?,
                Some(stat) if !free.contains(&child) => {
                    return Err(obstructed(path, &child, stat));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the directory at a path, if it contains nothing but directories that configs left
    /// behind.
    pub(super) fn clear_directory(&self, path: &str) -> Result<(), HostError> {
        let found = self.root.stat(path)?.filter(Stat::is_directory);
        if let Some(stat) = found
            && self.is_left_behind(path, stat)?
        {
            self.root.remove_directories(path)?;
        }
        Ok(())
    }

    fn is_left_behind(&self, path: &str, stat: Stat) -> Result<bool, HostError> {
        let is_new = stat.mode & 0o7777 == NEW_DIRECTORY && Root::is_own(stat.owner);
        let in_image =
            self.root.exists(IMAGE_BOOTED)? && self.root.exists(&format!("/usr{path}"))?;
        Ok(is_new && !in_image && self.system.packaged(path)? != Packaged::Yes)
    }
}

/// Returns true if two files differ in nothing but their paths.
fn are_equal(one: &File, other: &File) -> bool {
    File { path: other.path.clone(), ..one.clone() } == *other
}

fn obstructed(path: &str, obstacle: &str, stat: Stat) -> HostError {
    let kind = if stat.is_directory() {
        "a directory"
    } else if stat.is_link() {
        "a link"
    } else {
        "a file"
    };
    HostError::Obstructed { path: path.to_owned(), obstacle: obstacle.to_owned(), kind }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use mco_core::plan::{self, Circumstances, Force, default_policies};

    use super::*;
    use crate::simulated::SimulatedSystem;

    #[test]
    fn two_paths_of_one_file_are_refused_before_the_first_step() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_directory("/var/home/core").unwrap();
        root.link("var/home", "/home").unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let host = Host { root, system };
        let check = |from: &[&str], to: &[&str], force: Force| {
            let (from, to) = (config(from), config(to));
            let at = Circumstances { force, ..Circumstances::default() };
            let plan = plan::node(&from, &to, &default_policies(), &at).unwrap();
            host.check_paths(&from, &to, &plan).err().map(|error| error.to_string())
        };
        let (one, other) = ("/home/core/deep/a", "/var/home/core/deep/a");
        let refused = |path: &str, other: &str| {
            Some(format!(
                "cannot change {path}: it is the same file as {other}, because a directory above it \
                 is a link; use one of the two paths, or remove the file in a change of its own"
            ))
        };
        assert_eq!(check(&[one], &[other], Force::No), refused(one, other), "removed last");
        assert_eq!(check(&[], &[one, other], Force::No), refused(one, other));
        assert_eq!(check(&[one, other], &[one], Force::No), refused(other, one));
        for (from, to) in [(&[one][..], &[][..]), (&[], &[other]), (&[one], &["/var/home/core/a"])]
        {
            assert_eq!(check(from, to, Force::No), None, "{from:?} {to:?}");
        }
        let both = [one, other];
        assert_eq!(check(&both, &both, Force::Yes), None, "the machine has both already");
    }

    #[test]
    fn a_link_to_itself_is_in_the_way_of_changed_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.link("loop", "/etc/loop").unwrap();
        root.link("/etc/loop/deep", "/etc/systemd").unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let host = Host { root, system };
        let check = |from: &Machine, to: &Machine| {
            let plan = plan::node(from, to, &default_policies(), &Circumstances::default());
            host.check_paths(from, to, &plan.unwrap()).err().map(|error| error.to_string())
        };
        let (old, new) = (config(&["/etc/loop/a"]), config(&["/etc/loop/a", "/etc/b"]));
        assert_eq!(check(&old, &new), None);
        let refused = |path: &str, obstacle: &str| {
            Some(format!(
                "cannot write {path}: {obstacle} is a link to itself that no config manages; remove it, \
                 or change the config"
            ))
        };
        assert_eq!(check(&config(&[]), &old), refused("/etc/loop/a", "/etc/loop"));
        assert_eq!(check(&old, &config(&[])), refused("/etc/loop/a", "/etc/loop"));
        let mut with_unit = config(&[]);
        let unit = mco_ignition::config::Unit {
            name: "u.service".to_owned(),
            contents: Some("[Service]\n".to_owned()),
            ..Default::default()
        };
        with_unit.config.systemd.units.push(unit);
        let want = refused("/etc/systemd/system/u.service", "/etc/systemd");
        assert_eq!(check(&config(&[]), &with_unit), want);
    }

    /// Returns the config with these files.
    fn config(paths: &[&str]) -> Machine {
        let mut machine = Machine::blank();
        for path in paths {
            let file = mco_ignition::config::File {
                path: (*path).to_owned(),
                ..mco_ignition::config::File::default()
            };
            machine.config.storage.files.push(file);
        }
        machine
    }

    // covers: C60
    #[test]
    fn a_path_that_cannot_be_written_is_found_before_the_first_step() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for path in ["/etc/ours/a", "/etc/ours/b/c", "/etc/dir/file", "/etc/file"] {
            root.write(path, b"", 0o644).unwrap();
        }
        for (path, mode) in [("/etc/empty", 0o755), ("/etc/closed", 0o700)] {
            root.create_directory(path).unwrap();
            let at = folder.path().join(path.trim_start_matches('/'));
            fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        }
        root.link("ours", "/etc/link").unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let mut host = Host { root, system };
        let from = config(&["/etc/ours/a", "/etc/ours/b/c", "/etc/file"]);
        let check = |host: &Host<SimulatedSystem>, paths: &[&str]| {
            let to = config(paths);
            let plan = plan::node(&from, &to, &default_policies(), &Circumstances::default());
            host.check_paths(&from, &to, &plan.unwrap()).err().map(|error| error.to_string())
        };
        assert_eq!(check(&host, &["/etc/ours"]), None);
        assert_eq!(check(&host, &["/etc/ours/b"]), None, "its only file is removed");
        assert_eq!(check(&host, &["/etc/file/below"]), None);
        assert_eq!(check(&host, &["/etc/empty"]), None);
        assert_eq!(check(&host, &["/etc/link/new"]), None, "the link leads to a directory");
        let refused = "that no config manages; remove it, or change the config";
        let cases = [
            ("/etc/dir", "cannot write /etc/dir: /etc/dir/file is a file"),
            ("/etc/closed", "cannot write /etc/closed: /etc/closed is a directory"),
            ("/etc/dir/file/x", "cannot write /etc/dir/file/x: /etc/dir/file is a file"),
        ];
        for (path, want) in cases {
            assert_eq!(check(&host, &[path]).unwrap(), format!("{want} {refused}"));
        }
        assert_eq!(check(&host, &["/usr/bin/a"]), None, "the system is no image");
        host.root.write(IMAGE_BOOTED, b"", 0o644).unwrap();
        assert_eq!(
            check(&host, &["/usr/bin/a"]).unwrap(),
            "cannot write /usr/bin/a: it is part of the machine's read-only image; use a path below \
             /usr/local, /etc or /var"
        );
        assert_eq!(check(&host, &["/usr/local/bin/a"]), None);
        host.root.create_directory("/usr/etc/empty").unwrap();
        assert!(check(&host, &["/etc/empty"]).is_some(), "the image has the directory");
        host.root.remove_directories("/usr/etc/empty").unwrap();
        assert_eq!(check(&host, &["/etc/empty"]), None);
        host.system.set_packaged_paths(Some(BTreeSet::from(["/etc/empty".to_owned()])));
        assert!(check(&host, &["/etc/empty"]).is_some(), "a package owns the directory");
        host.root.write(&original::copy_path("/etc/file"), b"", 0o644).unwrap();
        assert!(check(&host, &["/etc/file/below"]).is_some(), "its original comes back");
    }
}
