//! A machine whose disk is an ostree sysroot: deployments, their own `/etc`, a shared `/var`, and a
//! boot loader's menu. `rpm-ostree` and `bootc` there are thin programs over libostree.
//!
//! The disk is in memory: it ends with the machine, deployments that cannot be removed included.

mod loader;

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::Context as _;

pub(super) use self::loader::BootLoader;
use super::{
    LabPrerequisites, Machine,
    cgroup::Cgroups,
    folder::LabFolder,
    namespaces::{LAB, Namespaces},
    run::run,
};

/// Name of all images of the operating system.
const IMAGE: &str = "quay.example/os";
/// Folder of the machine's disk.
const DISK: &str = "m1/disk";
/// Folder in which the `mco` under test is on the disk; `/usr/local` leads there.
const PROGRAMS: &str = "sysroot/ostree/deploy/mco/var/usrlocal/bin";

/// The prerequisites of a machine with ostree deployments, prepared by `scripts/ostree`.
#[derive(Clone, Debug)]
pub struct OstreePrerequisites {
    lab: LabPrerequisites,
    /// Archive of the disk.
    disk: PathBuf,
}

impl OstreePrerequisites {
    /// Finds the prerequisites. The error names the missing one in one line.
    pub fn find() -> Result<Self, String> {
        let lab = LabPrerequisites::find()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ostree");
        let found = Command::new(&script).arg("where").output();
        let found = found.map_err(|error| format!("{}: {error}", script.display()))?;
        if !found.status.success() {
            return Err(String::from_utf8_lossy(&found.stderr).trim().to_owned());
        }
        let stdout = String::from_utf8_lossy(&found.stdout);
        let disk = stdout.lines().find_map(|line| line.strip_prefix("disk="));
        let disk = disk.ok_or("scripts/ostree did not print disk")?;
        Ok(Self { lab, disk: PathBuf::from(disk) })
    }
}

/// The program that changes the operating system of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// rpm-ostree.
    RpmOstree,
    /// bootc.
    Bootc,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
        }
    }
}

/// A running machine with ostree deployments, and the registry of its images. Removed when dropped.
#[derive(Debug)]
pub struct OstreeMachine {
    machine: Machine,
    tool: Tool,
    namespaces: Arc<Namespaces>,
    // The lock on the folder lasts as long as the machine.
    folder: LabFolder,
}

impl OstreeMachine {
    /// Creates a machine and boots it, with `program` as `/usr/local/bin/mco`.
    pub fn up(
        ingredients: &OstreePrerequisites,
        program: &Path,
        tool: Tool,
    ) -> anyhow::Result<Self> {
        let OstreePrerequisites { lab, disk } = ingredients;
        let folder = LabFolder::make(&lab.labs())?;
        let cgroups = Arc::new(Cgroups::make(&folder)?);
        let namespaces = Arc::new(Namespaces::make(&folder, &lab.base, &lab.kube)?);
        let loader = BootLoader::new(format!("{LAB}/{DISK}"), format!("{LAB}/m1/root"));
        loader.make_disk(&namespaces, File::open(disk).context("failed to open the disk")?)?;
        if tool == Tool::Bootc {
            loader.install(&namespaces, "base/bootc")?;
        }
        loader.forget_images(&namespaces)?;
        // Strips debug information, which makes a test binary many times larger.
        let stripped = folder.path.join("mco");
        run(
            "strip",
            Command::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(program),
        )?;
        let copy = format!("install -D {LAB}/mco {LAB}/{DISK}/{PROGRAMS}/mco");
        namespaces.shell("installing mco", &copy)?;
        let machine = Machine::with_boot_loader(1, &namespaces, &cgroups, loader)?;
        machine.boot()?;
        Ok(Self { machine, tool, namespaces, folder })
    }

    /// Returns the folder of the machine's disk, which is removed with the machine.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Returns the machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Publishes an image: the operating system with these files, whose paths begin with `usr/`.
    /// Returns its name with its digest.
    pub fn publish_image(&self, files: &[(&str, &str)]) -> anyhow::Result<String> {
        let base = format!("--tree=ref=base/{}", self.tool.name());
        let commit = self.commit(&base, files)?;
        self.registry(&format!("ostree refs --create=image/{IMAGE}/{commit} {commit}"))?;
        Ok(format!("{IMAGE}@sha256:{commit}"))
    }

    /// Publishes a package, with a file for `rpm -q`.
    pub fn publish_package(&self, name: &str, files: &[(&str, &str)]) -> anyhow::Result<()> {
        let listed = format!("usr/share/packages/{name}");
        let files: Vec<_> = files.iter().copied().chain([(listed.as_str(), name)]).collect();
        let commit = self.commit("", &files)?;
        self.registry(&format!("ostree refs --create=package/{name} {commit}")).map(drop)
    }

    /// Commits files on top of a tree to the registry.
    fn commit(&self, base: &str, files: &[(&str, &str)]) -> anyhow::Result<String> {
        let folder = format!("{LAB}/{DISK}/files");
        let mut script = format!("rm -rf {folder}\nmkdir -p {folder}/usr\n");
        for (path, text) in files {
            let (to, text) = (format!("{folder}/{path}"), text.replace('\'', "'\\''"));
            let write = format!("mkdir -p $(dirname {to})\nprintf %s '{text}' >{to}\n");
            script.push_str(&write);
        }
        let author = "--owner-uid=0 --owner-gid=0 --no-xattrs";
        let commit = format!("ostree commit --orphan {author} {base} --tree=dir={folder}\n");
        script.push_str(&commit);
        Ok(self.registry(&script)?.trim().to_owned())
    }

    fn registry(&self, script: &str) -> anyhow::Result<String> {
        let repo = format!("export OSTREE_REPO={LAB}/{DISK}/registry\n");
        self.namespaces.shell("publishing in the registry", &(repo + script))
    }
}

impl Drop for OstreeMachine {
    fn drop(&mut self) {
        drop(self.namespaces.end());
    }
}
