//! The boot loader of a machine with ostree deployments, and its disk.

use std::fs::File;

use super::IMAGE;
use crate::lab::{namespaces::Namespaces, run::run};

const BOOT_SCRIPT: &str = include_str!("../../../ostree/machine/boot.sh");

/// Boots the deployment of the first boot entry. The paths are those inside of the lab.
#[derive(Debug)]
pub(in crate::lab) struct BootLoader {
    /// Folder with the sysroot and the registry, a file system in memory.
    disk: String,
    /// Mount point of the machine's root.
    root: String,
}

impl BootLoader {
    pub(super) fn new(disk: String, root: String) -> Self {
        Self { disk, root }
    }

    /// Creates the disk and extracts its archive.
    pub(super) fn make_disk(&self, namespaces: &Namespaces, archive: File) -> anyhow::Result<()> {
        let Self { disk, root } = self;
        let script = format!(
            "mkdir -p {disk} {root}\n\
             mount -t tmpfs -o mode=0755 tmpfs {disk}\n\
             tar -C {disk} --xattrs -xf -"
        );
        let mut command = namespaces.command();
        run("extracting the disk", command.args(["sh", "-euc", &script]).stdin(archive)).map(drop)
    }

    /// Replaces the deployment of a machine that is off by one of a ref of its repository.
    pub(super) fn install(&self, namespaces: &Namespaces, name: &str) -> anyhow::Result<()> {
        let disk = &self.disk;
        let script = format!(
            "sysroot={disk}/sysroot\n\
             commit=$(ostree rev-parse --repo=$sysroot/ostree/repo {name})\n\
             printf '[origin]\\ncontainer-image-reference=ostree-unverified-registry:%s\\n' \
             {IMAGE}@sha256:$commit >{disk}/origin\n\
             ostree admin --sysroot=$sysroot deploy --os=mco --origin-file={disk}/origin $commit\n\
             ostree admin --sysroot=$sysroot undeploy 1"
        );
        namespaces.shell(&format!("deploying {name}"), &script).map(drop)
    }

    /// Removes the refs of images from the machine's repository: only deployments keep them there.
    pub(super) fn forget_images(&self, namespaces: &Namespaces) -> anyhow::Result<()> {
        let repo = format!("--repo={}/sysroot/ostree/repo", self.disk);
        let script = format!("ostree refs {repo} --delete base image");
        namespaces.shell("forgetting images", &script).map(drop)
    }

    /// Mounts the root of the deployment that boots next.
    pub(in crate::lab) fn load(&self, namespaces: &Namespaces) -> anyhow::Result<()> {
        let mut command = namespaces.command();
        command.args(["sh", "-c", BOOT_SCRIPT, "boot", &self.disk, &self.root]);
        run("the boot loader", &mut command).map(drop)
    }

    /// Returns the arguments of nspawn for files of the boot loader and for the registry.
    pub(in crate::lab) fn mounts(&self) -> [String; 5] {
        let disk = &self.disk;
        [
            format!("--bind-ro={disk}/entry/booted:/run/ostree-booted"),
            format!("--bind-ro={disk}/entry:/run/boot-entry"),
            format!("--bind-ro={disk}/registry:/run/registry"),
            // nspawn must not change the machine's /etc.
            "--resolv-conf=off".to_owned(),
            "--timezone=off".to_owned(),
        ]
    }
}
