//! The repository with the packages of extensions and kernels, extracted from an image for the
//! duration of an update.
//!
//! Compat: commands, paths and the repository's file are the reference's (`pkg/daemon/update.go`).
//! Better: directory and container have fixed names, so that leftovers of a crashed daemon are
//! found.

use tracing::info;

use super::{CommandRunner, auth, storage};
use crate::{root::Root, system::SystemError};

const PODMAN: &str = "/usr/bin/podman";
const CHCON: &str = "/usr/bin/chcon";
pub(crate) const FILE: &str = "/etc/yum.repos.d/coreos-extensions.repo";
const FOLDER: &str = "/run/mco-extensions";
const CONTENT: &str = "/run/mco-extensions/os-extensions-content-update";
const CONTAINER: &str = "ostree-container-pivot-extensions";
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// Attempts of a pull.
const ATTEMPTS: u32 = 6;

/// Extracts the packages of this image and adds them as a repository of rpm-ostree.
pub(crate) fn provide(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &str,
) -> Result<(), SystemError> {
    withdraw(root, runner)?;
    root.create_directory(FOLDER)?;
    if !storage::has(runner, image)? {
        pull(root, runner, image)?;
    }
    let create = [
        PODMAN,
        "create",
        "--net=none",
        "--annotation=org.openshift.machineconfigoperator.pivot=true",
        "--name",
        CONTAINER,
        image,
    ];
    runner.run(&create)?;
    let copied = copy(root, runner);
    // If the container cannot be removed now, the next update removes it.
    let removed = runner.run(&[PODMAN, "rm", "-f", CONTAINER]);
    copied.and(removed)?;
    let text = format!(
        "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\n\
         baseurl={CONTENT}/usr/share/rpm-ostree/extensions/\ngpgcheck=0\n\
         skip_if_unavailable=False\n"
    );
    root.write(FILE, text.as_bytes(), 0o644)?;
    info!(image, path = CONTENT, "Extracted the packages of extensions until the update is staged");
    Ok(())
}

fn copy(root: &Root, runner: &dyn CommandRunner) -> Result<String, SystemError> {
    runner.run(&[PODMAN, "cp", &format!("{CONTAINER}:/"), CONTENT])?;
    // Without the label rpm-ostree cannot read them.
    if root.exists(SELINUX)? {
        runner.run(&[CHCON, "-R", "-t", "var_run_t", CONTENT])?;
    }
    Ok(String::new())
}

/// Pulls an image into podman's storage with the machine's pull secret.
pub(super) fn pull(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &str,
) -> Result<(), SystemError> {
    let mut command = vec![PODMAN, "pull", "-q"];
    if root.exists(auth::CLUSTER)? {
        command.extend(["--authfile", auth::CLUSTER]);
    }
    command.push(image);
    super::retry(runner, ATTEMPTS, || runner.run(&command).map(drop))
}

/// Removes the repository and its packages, if any.
pub(crate) fn withdraw(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    let is_there = root.stat(FOLDER)?.is_some();
    root.remove(FILE)?;
    if is_there {
        // A crashed daemon may have left its container, which keeps the image in use.
        runner.run(&[PODMAN, "rm", "-f", "--ignore", CONTAINER])?;
        root.remove_tree(FOLDER)?;
    }
    Ok(())
}
