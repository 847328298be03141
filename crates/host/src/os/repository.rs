//! The packages of extensions and kernels, which come in an image of their own: a repository of them is
//! on the machine only while an update needs it.
//!
//! Compat: commands, paths and the repository's file are the reference's (`pkg/daemon/update.go`).
//! Better: the folder and the container have fixed names, so that what a daemon left that died is found.

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

/// A pull is tried so often: registries have moments.
const TRIES: u32 = 6;

/// Puts the packages of this image where rpm-ostree finds them.
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
    // The container has served; what cannot be removed now is removed by the next update.
    let removed = runner.run(&[PODMAN, "rm", "-f", CONTAINER]);
    copied.and(removed)?;
    let text = format!(
        "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\n\
         baseurl={CONTENT}/usr/share/rpm-ostree/extensions/\ngpgcheck=0\n\
         skip_if_unavailable=False\n"
    );
    root.write(FILE, text.as_bytes(), 0o644)?;
    info!("The packages of {image} are at {CONTENT} until the update is staged");
    Ok(())
}

fn copy(root: &Root, runner: &dyn CommandRunner) -> Result<String, SystemError> {
    runner.run(&[PODMAN, "cp", &format!("{CONTAINER}:/"), CONTENT])?;
    // Without it rpm-ostree may not read them.
    if root.exists(SELINUX)? {
        runner.run(&[CHCON, "-R", "-t", "var_run_t", CONTENT])?;
    }
    Ok(String::new())
}

/// Pulls an image into podman's storage with the machine's own credentials.
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
    super::repeat(runner, TRIES, || runner.run(&command).map(drop))
}

/// Takes the packages away again; says nothing where there are none.
pub(crate) fn withdraw(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    let is_there = root.stat(FOLDER)?.is_some();
    root.remove(FILE)?;
    if is_there {
        // A daemon that died may have left its container, which holds on to the image.
        runner.run(&[PODMAN, "rm", "-f", "--ignore", CONTAINER])?;
        root.remove_tree(FOLDER)?;
    }
    Ok(())
}
