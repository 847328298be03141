//! A machine whose disk is set up by the real Ignition client before its first boot.

use std::{fs, path::Path};

use anyhow::Context as _;
use mco_testkit::lab::Machine;

use super::cluster::JoinCluster;

/// Debian's client, which its package keeps for the initramfs.
const CLIENT: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// Returns true if this host has the client; prints the reason if not.
pub(crate) fn is_installed() -> bool {
    let found = Path::new(CLIENT).exists();
    if !found {
        eprintln!("skipped: {CLIENT} is not installed (make lab-tools installs it)");
    }
    found
}

/// Runs the stages `fetch` and `files` on the disk of a machine that is off, and boots it.
pub(crate) fn install(cluster: &JoinCluster<'_>, machine: &Machine) -> anyhow::Result<()> {
    // systemd enables the units of Ignition's preset at a first boot only.
    machine.write("/etc/machine-id", "uninitialized\n")?;
    // The client insists on SELinux, which images for Ignition have, and Debian has not.
    machine.write("/etc/selinux/config", "SELINUX=disabled\nSELINUXTYPE=targeted\n")?;
    let folder = cluster.lab.folder().join("ignition");
    fs::create_dir_all(&folder).context("failed to create a folder")?;
    std::os::unix::fs::symlink("/bin/true", folder.join("setfiles"))
        .context("failed to link a program")?;
    let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display());
    let pointer = folder.join("pointer.ign");
    fs::write(&pointer, cluster.pointer(machine.name())?)
        .context("failed to write the pointer config")?;
    let variable = format!("IGNITION_CONFIG_FILE={}", pointer.display());
    let (cache, state) = (folder.join("cache.json"), folder.join("state"));
    for stage in ["fetch", "files"] {
        let [cache, state] = [&cache, &state].map(|path| path.display().to_string());
        let root = machine.root_in_lab();
        let words = [
            "env",
            &path,
            &variable,
            CLIENT,
            "-platform",
            "file",
            "-log-to-stdout",
            "-stage",
            stage,
            "-root",
            &root,
            "-config-cache",
            &cache,
            "-state-file",
            &state,
        ];
        let output = cluster.lab.run_in_network(&words)?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // The client also prints the whole config.
        let faults =
            text.lines().filter(|line| line.contains("CRITICAL") || line.contains("error"));
        let faults: Vec<&str> = faults.collect();
        anyhow::ensure!(output.status.success(), "Ignition's stage {stage} failed: {faults:#?}");
    }
    machine.start()
}
