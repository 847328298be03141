//! The cgroups of a lab: one in every hierarchy, with a child for each machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::folder::LabFolder;

const MOUNTS: &str = "/sys/fs/cgroup";

/// The lab's cgroup in every hierarchy.
#[derive(Debug)]
pub(super) struct Cgroups {
    tops: Vec<PathBuf>,
}

/// Memory usage of a lab on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous memory of the processes in bytes, without the page cache.
    pub processes: u64,
    /// Peak memory including the page cache, in bytes.
    pub peak: u64,
}

impl Cgroups {
    /// Creates the cgroups. Their paths are recorded first, so that they can be removed after a
    /// crash.
    pub(super) fn make(folder: &LabFolder) -> anyhow::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").context("failed to read our cgroups")?;
        let hybrid = Path::new(MOUNTS).join("unified").exists();
        let parents = own.lines().filter_map(|line| parent(line, hybrid));
        let tops: Vec<PathBuf> =
            parents.map(|parent| parent.join(format!("mco-lab-{}", folder.id))).collect();
        let names: Vec<_> = tops.iter().map(|top| top.to_string_lossy()).collect();
        let note = names.join("\n") + "\n";
        fs::write(folder.path.join("cgroups"), note)
            .context("failed to record the lab's cgroups")?;
        for top in &tops {
            make(top)?;
            delegate(top);
        }
        Ok(Self { tops })
    }

    /// Creates the cgroups of one part of the lab.
    pub(super) fn add(&self, part: &str) -> anyhow::Result<()> {
        self.tops.iter().try_for_each(|top| make(&top.join(part)))
    }

    /// Removes the cgroups below those of the machine `part`. They outlive its processes, and the
    /// next kubelet would wait for each of them.
    pub(super) fn clear(&self, part: &str) {
        for top in &self.tops {
            for entry in folders(&top.join(part)) {
                remove(&entry);
            }
        }
    }

    /// Returns the current memory usage.
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

/// Returns the parent of the lab's cgroup in a hierarchy, given a line of `/proc/self/cgroup`.
fn parent(line: &str, hybrid: bool) -> Option<PathBuf> {
    let mut words = line.splitn(3, ':').skip(1);
    let (controllers, path) = (words.next()?, words.next()?);
    let mount = Path::new(MOUNTS);
    let below = path.trim_start_matches('/');
    let parent = match controllers.strip_prefix("name=").unwrap_or(controllers) {
        "" if hybrid => mount.join("unified").join(below),
        // cgroup v2 does not allow controllers below a cgroup that contains this process.
        "" => mount.to_owned(),
        name => mount.join(name).join(below),
    };
    parent.is_dir().then_some(parent)
}

fn make(group: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(group)
        .with_context(|| format!("failed to create cgroup {}", group.display()))?;
    // A new cpuset cgroup has no CPUs, so no process could run in it.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let above = group.parent().map(|parent| parent.join(file));
        if let Some(Ok(value)) = above.map(fs::read_to_string)
            && fs::read_to_string(group.join(file)).is_ok_and(|own| own.trim().is_empty())
        {
            fs::write(group.join(file), value.trim())
                .with_context(|| format!("failed to set {file} of {}", group.display()))?;
        }
    }
    Ok(())
}

/// Enables the cgroup v2 controllers for child groups. Controllers that the host does not delegate
/// are skipped.
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
    // A cgroup with a remaining process cannot be removed; the kubelet will see that cgroup too.
    let removed: io::Result<()> = fs::remove_dir(group);
    drop(removed);
}
