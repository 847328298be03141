//! The cgroups of a lab: one of its own in every hierarchy, with one below for each machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::place::Place;

const MOUNTS: &str = "/sys/fs/cgroup";

/// The lab's own group in every hierarchy.
#[derive(Debug)]
pub(super) struct Groups {
    tops: Vec<PathBuf>,
}

/// What a lab takes of the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What its processes have for themselves, in bytes; files that are cached do not count.
    pub processes: u64,
    /// The same with cached files, at its highest, in bytes.
    pub peak: u64,
}

impl Groups {
    /// Makes them, and notes them first so that they are found whatever happens.
    pub(super) fn make(place: &Place) -> anyhow::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").context("cannot read our cgroups")?;
        let hybrid = Path::new(MOUNTS).join("unified").exists();
        let parents = own.lines().filter_map(|line| parent(line, hybrid));
        let tops: Vec<PathBuf> =
            parents.map(|parent| parent.join(format!("mco-lab-{}", place.id))).collect();
        let names: Vec<_> = tops.iter().map(|top| top.to_string_lossy()).collect();
        let note = names.join("\n") + "\n";
        fs::write(place.folder.join("cgroups"), note).context("cannot note the lab's cgroups")?;
        for top in &tops {
            make(top)?;
            delegate(top);
        }
        Ok(Self { tops })
    }

    /// Makes the groups of one part of the lab.
    pub(super) fn add(&self, part: &str) -> anyhow::Result<()> {
        self.tops.iter().try_for_each(|top| make(&top.join(part)))
    }

    /// Removes what the machine `part` has left below its groups: they outlive its processes, and
    /// the next kubelet would wait for each.
    pub(super) fn clear(&self, part: &str) {
        for top in &self.tops {
            for entry in folders(&top.join(part)) {
                remove(&entry);
            }
        }
    }

    /// What the lab takes now.
    pub(super) fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for top in &self.tops {
            let number = |file: &str| fs::read_to_string(top.join(file)).ok()?.trim().parse().ok();
            let stat = fs::read_to_string(top.join("memory.stat")).unwrap_or_default();
            let processes = stat.lines().find_map(|line| {
                line.strip_prefix("total_rss ").or_else(|| line.strip_prefix("anon "))
            });
            let Some(processes) = processes.and_then(|text| text.parse().ok()) else { continue };
            let peak = number("memory.max_usage_in_bytes").or_else(|| number("memory.peak"));
            memory = Memory { processes, peak: peak.unwrap_or_default() };
        }
        memory
    }
}

/// Where our own group of a hierarchy is, from a line of `/proc/self/cgroup`.
fn parent(line: &str, hybrid: bool) -> Option<PathBuf> {
    let mut words = line.splitn(3, ':').skip(1);
    let (controllers, path) = (words.next()?, words.next()?);
    let mount = Path::new(MOUNTS);
    let below = path.trim_start_matches('/');
    let parent = match controllers.strip_prefix("name=").unwrap_or(controllers) {
        "" if hybrid => mount.join("unified").join(below),
        // Below our own group there could be no controllers as long as we are in it.
        "" => mount.to_owned(),
        name => mount.join(name).join(below),
    };
    parent.is_dir().then_some(parent)
}

fn make(group: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(group).with_context(|| format!("cannot make cgroup {}", group.display()))?;
    // A new group of cpuset has no processors, and nothing can run in it.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let above = group.parent().map(|parent| parent.join(file));
        if let Some(Ok(value)) = above.map(fs::read_to_string)
            && fs::read_to_string(group.join(file)).is_ok_and(|own| own.trim().is_empty())
        {
            fs::write(group.join(file), value.trim())
                .with_context(|| format!("cannot set {file} of {}", group.display()))?;
        }
    }
    Ok(())
}

/// Lets the groups below have the controllers of cgroup v2; those that the host keeps are left out.
fn delegate(group: &Path) {
    let file = group.join("cgroup.subtree_control");
    for controller in
        fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default().split_whitespace()
    {
        drop(fs::write(&file, format!("+{controller}")));
    }
}

fn folders(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().filter_map(Result::ok);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn remove(group: &Path) {
    for below in folders(group) {
        remove(&below);
    }
    // Somebody who is still in it keeps it; kubelet then sees it as well.
    let removed: io::Result<()> = fs::remove_dir(group);
    drop(removed);
}
