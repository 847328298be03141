//! Writes the disk of a lab machine: the files that differ from the shared root file system.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use anyhow::Context as _;

use super::run::run;

macro_rules! ours {
    ($name:literal) => {
        include_str!(concat!("../../lab/machine/", $name))
    };
}

/// Path, mode and text of a file. `@NAME@`, `@ADDRESS@` and `@PODS@` are substituted.
type DiskFile = (&'static str, u32, &'static str);

/// The files of every machine. The network of pods is part of a machine, as if a DaemonSet had
/// brought it.
const FILES: &[DiskFile] = &[
    ("etc/hostname", 0o644, "@NAME@\n"),
    ("etc/hosts", 0o644, "127.0.0.1 localhost @NAME@\n10.77.0.1 control-plane\n"),
    ("etc/resolv.conf", 0o644, ""),
    // Empty: systemd generates a machine id at the first boot.
    ("etc/machine-id", 0o644, ""),
    ("etc/cni/net.d/10-bridge.conflist", 0o644, ours!("bridge.conflist")),
    ("etc/systemd/system/containerd.service.d/lab.conf", 0o644, ours!("containerd.service.conf")),
    ("etc/systemd/system/lab-prepare.service", 0o644, ours!("lab-prepare.service")),
    ("usr/local/lib/lab-prepare", 0o755, ours!("lab-prepare")),
];

/// The files of a machine that is a node from its first boot on.
const NODE_FILES: &[DiskFile] = &[
    ("etc/containerd/config.toml", 0o644, ours!("containerd.toml")),
    ("etc/systemd/system/kubelet.service", 0o644, ours!("kubelet.service")),
    ("etc/systemd/system/lab-images.service", 0o644, ours!("lab-images.service")),
    ("var/lib/kubelet/config.yaml", 0o644, ours!("kubelet.yaml")),
];

/// The files of a blank machine: the image of pauses, which cannot be pulled without a network.
const BLANK_FILES: &[DiskFile] =
    &[("etc/systemd/system/lab-images.service", 0o644, ours!("lab-pause.service"))];

const ENABLED: &[(&str, &str)] = &[
    ("containerd.service", "/lib/systemd/system/containerd.service"),
    ("lab-images.service", "/etc/systemd/system/lab-images.service"),
    ("lab-prepare.service", "/etc/systemd/system/lab-prepare.service"),
];
const NODE_ENABLED: &[(&str, &str)] = &[("kubelet.service", "/etc/systemd/system/kubelet.service")];

/// Contents of a machine's disk before its first boot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents<'c> {
    /// A kubelet with its unit, its config and these credentials.
    Node(&'c [(&'static str, String)]),
    /// The programs of containerd and the kubelet, and nothing that makes it a node.
    Blank,
}

/// Units that are not needed in a lab: clocks, terminals, upgrades, and network setup.
const MASKED: &[&str] = &[
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
];

/// The properties in which machines differ.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Host name, also the name of the node.
    pub(super) name: String,
    /// Address in the lab's network.
    pub(super) address: String,
    /// Address range of the machine's pods.
    pub(super) pods: String,
}

/// Writes the disk of a machine in `folder`: `upper`, which is overlaid on the shared root, and
/// `var`.
pub(super) fn write_disk(
    folder: &Path,
    base: &Path,
    identity: &Identity,
    contents: Contents<'_>,
) -> anyhow::Result<()> {
    let (more, enabled, credentials) = match contents {
        Contents::Node(credentials) => (NODE_FILES, NODE_ENABLED, credentials),
        Contents::Blank => (BLANK_FILES, &[][..], &[][..]),
    };
    let upper = folder.join("upper");
    for below in ["upper", "work", "root"] {
        let path = folder.join(below);
        fs::create_dir_all(&path)
            .with_context(|| format!("failed to create {}", path.display()))?;
    }
    // A real directory outside the overlay, because containerd creates overlays in it.
    let copy = &mut Command::new("cp");
    run("copying /var of a machine", copy.arg("-a").arg(base.join("var")).arg(folder))?;
    let disk = |path: &str| if path.starts_with("var/") { folder } else { &*upper };
    for (path, mode, text) in FILES.iter().chain(more) {
        let text = text
            .replace("@NAME@", &identity.name)
            .replace("@ADDRESS@", &identity.address)
            .replace("@PODS@", &identity.pods);
        write(&disk(path).join(path), *mode, &text)?;
    }
    let units = upper.join("etc/systemd/system");
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants).context("failed to enable units")?;
    for (name, target) in ENABLED.iter().chain(enabled) {
        symlink(target, wants.join(name)).with_context(|| format!("failed to enable {name}"))?;
    }
    for name in MASKED {
        symlink("/dev/null", units.join(name)).with_context(|| format!("failed to mask {name}"))?;
    }
    if matches!(contents, Contents::Blank) {
        let program = upper.join("usr/local/bin");
        fs::create_dir_all(&program).context("failed to create the folder of programs")?;
        symlink("/opt/lab/kube/kubelet", program.join("kubelet"))
            .context("failed to link the kubelet")?;
    }
    let journal = folder.join("var/log/journal");
    fs::create_dir_all(&journal).context("failed to create the folder of the journal")?;
    for (path, text) in credentials {
        write(&disk(path).join(path), 0o600, text)?;
    }
    Ok(())
}

fn write(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    let what = || format!("failed to write {}", path.display());
    let parent = path.parent().expect("all files of a machine are below the root");
    fs::create_dir_all(parent).with_context(what)?;
    fs::write(path, text).with_context(what)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(what)
}
