//! Image-based systems that rpm-ostree drives.
//!
//! Compat: the commands are the reference's (`pkg/daemon/update.go`, `rpm-ostree.go`), so that the
//! journal shows the familiar ones.

use serde::Deserialize;
use tracing::{info, warn};

use super::{CommandRunner, arguments::words, bootupd, extension, parse_error, storage};
use crate::{
    log::{self, Priority},
    root::Root,
    system::{MachineRole, Restored, SystemError},
};

const RPM_OSTREE: &str = "/usr/bin/rpm-ostree";
const OSTREE: &str = "/usr/bin/ostree";

/// Transports of an image, as rpm-ostree prefixes them.
const REGISTRY: &str = "ostree-unverified-registry:";
const STORAGE: &str = "ostree-unverified-image:containers-storage:";

/// Attempts of a pull.
const ATTEMPTS: u32 = 5;

/// The packages of the default kernel.
const KERNEL: [&str; 5] =
    ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"];
const REALTIME: &[&str] = &["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
const LARGE_PAGES: &[&str] = &[
    "kernel-64k-core",
    "kernel-64k-modules",
    "kernel-64k-modules-core",
    "kernel-64k-modules-extra",
];

/// The output of `rpm-ostree status --json`.
#[derive(Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    deployments: Vec<Deployment>,
}

/// A deployment.
#[derive(Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[derive(Default)]
pub(super) struct Deployment {
    booted: bool,
    staged: bool,
    /// Name of the operating system, commit and serial number. Two deployments of one commit, say
    /// with other kernel arguments, differ in the serial number only.
    pub(super) id: String,
    checksum: String,
    container_image_reference: Option<String>,
    requested_packages: Vec<String>,
    packages: Vec<String>,
    /// Names of packages that are removed from the image. `base-removals` has the same packages as
    /// arrays, with their versions.
    requested_base_removals: Vec<String>,
}

impl Status {
    /// Returns the booted deployment.
    pub(super) fn booted(&self) -> Result<&Deployment, SystemError> {
        self.deployments.iter().find(|it| it.booted).ok_or_else(|| SystemError::Command {
            command: "rpm-ostree status --json".to_owned(),
            fault: "no deployment is booted".to_owned(),
        })
    }

    fn staged(&self) -> Option<&Deployment> {
        self.deployments.iter().find(|it| it.staged)
    }

    /// Returns the deployment that the next change is based on: the staged one, or the booted one.
    fn base(&self) -> Result<&Deployment, SystemError> {
        self.staged().map_or_else(|| self.booted(), Ok)
    }

    /// Returns the id of the deployment that a ledger names: by its id, or by its commit, as older
    /// programs did. A commit that two deployments have names neither.
    fn find(&self, recorded: &str) -> Result<String, SystemError> {
        let kept = || self.deployments.iter().filter(|it| !it.staged);
        let mut of_commit = kept().filter(|it| it.checksum == recorded);
        let by_commit = of_commit.next().filter(|_| of_commit.next().is_none());
        let found = self.deployments.iter().find(|it| it.id == recorded).or(by_commit);
        found.map(|it| it.id.clone()).ok_or_else(|| SystemError::Os {
            what: format!("the machine has no deployment {recorded} to go back to"),
        })
    }

    /// Returns true if the machine boots this deployment next.
    fn is_next(&self, id: &str) -> bool {
        self.deployments.first().is_some_and(|it| it.id == id)
    }
}

impl Deployment {
    /// Returns the image of the deployment.
    pub(super) fn image(&self) -> Option<String> {
        let reference = self.container_image_reference.as_deref()?;
        // Such as `ostree-unverified-registry:host/image` or `ostree-unverified-image:docker://…`.
        let known = [REGISTRY, STORAGE].iter().find_map(|kind| reference.strip_prefix(kind));
        let image = known.unwrap_or_else(|| {
            reference.rsplit_once("docker://").map_or(reference, |(_, image)| image)
        });
        Some(image.to_owned())
    }
}

pub(super) fn status(runner: &dyn CommandRunner) -> Result<Status, SystemError> {
    let text = runner.run(&[RPM_OSTREE, "status", "--json"])?;
    serde_json::from_str(&text).map_err(|error| parse_error("rpm-ostree status --json", &error))
}

/// Returns true if a deployment is staged.
pub(super) fn has_staged(runner: &dyn CommandRunner) -> Result<bool, SystemError> {
    Ok(status(runner)?.staged().is_some())
}

/// Stages an image; can be repeated, and an image that is already booted is not pulled.
pub(super) fn rebase(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &str,
) -> Result<(), SystemError> {
    // Staged changes of an earlier attempt would be mixed with this one.
    runner.run(&[RPM_OSTREE, "cleanup", "-p"])?;
    let status = status(runner)?;
    if status.booted()?.image().as_deref() == Some(image) {
        info!("Already in desired image {image}");
        return Ok(());
    }
    check_supports_images(runner)?;
    if let Err(error) = bootupd::update(root, runner, image) {
        let text = format!("bootloader update failed: {error}");
        warn!("{text}");
        // Also in the machine's journal, in case the machine does not boot.
        log::write(root, Priority::Error, &text);
    }
    // The packages of another kernel conflict with the kernel of the new image; they are installed
    // again afterwards.
    reset_kernel(runner, status.booted()?)?;
    match storage::find(root, runner, image)? {
        Some(local) => rebase_from_storage(root, runner, &local),
        None => rebase_from_registry(runner, image),
    }
}

/// Fails if the machine's rpm-ostree is older than container images.
///
/// Different from the reference, which runs the new image's own rpm-ostree in a container and
/// reboots twice: no boot image of a supported release is that old.
fn check_supports_images(runner: &dyn CommandRunner) -> Result<(), SystemError> {
    let text = runner.run(&[RPM_OSTREE, "--version"])?;
    let mut features =
        text.lines().skip_while(|line| line.trim() != "Features:").skip(1).peekable();
    // A version without a list of features is accepted.
    if features.peek().is_none() || features.any(|line| line.trim() == "- container") {
        return Ok(());
    }
    let what = "rpm-ostree of this machine is too old for container images (it lacks the feature \
                container); reinstall the machine from a newer boot image";
    Err(SystemError::Os { what: what.to_owned() })
}

fn rebase_from_storage(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &storage::Local,
) -> Result<(), SystemError> {
    // A policy that cannot be changed may still allow the image.
    if let Err(error) = storage::allow(root, runner, image) {
        warn!(image = image.digest, %error, "Failed to allow the image in the image policy");
    }
    info!("Executing local container storage rebase to {}", image.digest);
    let target = format!("{STORAGE}{}", image.digest);
    let done = runner.run(&[RPM_OSTREE, "rebase", "--experimental", &target]);
    storage::forbid_or_warn(root, runner);
    done.map(drop).map_err(|error| SystemError::Os {
        what: format!("failed to update OS from local storage: {}: {error}", image.digest),
    })
}

fn rebase_from_registry(runner: &dyn CommandRunner, image: &str) -> Result<(), SystemError> {
    info!("Executing rebase to {image}");
    let target = format!("{REGISTRY}{image}");
    let command = [RPM_OSTREE, "rebase", "--experimental", &target];
    super::retry(runner, ATTEMPTS, || runner.run(&command).map(drop)).map_err(|last| {
        SystemError::Os {
            what: format!(
                "failed to update OS to {image} after retries: {last}: \
                 timed out waiting for the condition"
            ),
        }
    })
}

/// Makes ostree sync each object by itself on control plane machines: a flood of writes would block
/// etcd. Not set on workers.
pub(super) fn sync_objects(
    runner: &dyn CommandRunner,
    role: MachineRole,
) -> Result<(), SystemError> {
    match role {
        MachineRole::Worker => Ok(()),
        MachineRole::ControlPlane => {
            let repository = "--repo=/sysroot/ostree/repo";
            let command = [OSTREE, repository, "config", "set", "core.per-object-fsync", "true"];
            runner.run(&command).map(drop)
        }
    }
}

pub(super) fn kernel_arguments(
    runner: &dyn CommandRunner,
    remove: &[String],
    add: &[String],
) -> Result<(), SystemError> {
    let (remove, add) = (words(remove), words(add));
    let present = words(&[runner.run(&[RPM_OSTREE, "kargs"])?]);
    // Appending is not idempotent, so that an interrupted step must not be executed twice.
    let is_done = present.ends_with(&add)
        && !remove.iter().any(|gone| present.contains(gone) && !add.contains(gone));
    if is_done {
        return Ok(());
    }
    let mut command = vec![RPM_OSTREE.to_owned(), "kargs".to_owned()];
    command.extend(remove.iter().map(|word| format!("--delete-if-present={word}")));
    command.extend(add.iter().map(|word| format!("--append={word}")));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let shown = command.get(1..).unwrap_or_default().join(" ");
    info!("Running rpm-ostree [{shown}]");
    runner.run(&command).map(drop)
}

pub(super) fn kernel(runner: &dyn CommandRunner, kernel: &str) -> Result<(), SystemError> {
    let install: &[&str] = match kernel {
        "realtime" => REALTIME,
        "64k-pages" if std::env::consts::ARCH == "aarch64" => LARGE_PAGES,
        "64k-pages" => {
            return Err(SystemError::Os {
                what: "64k-pages is only supported for aarch64 architecture".to_owned(),
            });
        }
        _ => &[],
    };
    let status = status(runner)?;
    let base = status.base()?;
    let has = |package: &&str| base.requested_packages.iter().any(|have| have == *package);
    if !install.is_empty() && install.iter().all(has) {
        // Staged by an interrupted attempt, or booted.
        return Ok(());
    }
    info!("Initiating switch to kernel {kernel}");
    reset_kernel(runner, base)?;
    if install.is_empty() {
        return Ok(());
    }
    let mut command = [&[RPM_OSTREE, "override", "remove"], KERNEL.as_slice()].concat();
    for package in install {
        command.extend(["--install", package]);
    }
    runner.run(&command).map(drop)
}

/// Stages the default kernel, if the deployment has another.
fn reset_kernel(runner: &dyn CommandRunner, base: &Deployment) -> Result<(), SystemError> {
    let removed: Vec<&str> = base.requested_base_removals.iter().map(String::as_str).collect();
    let is_other = |package: &&str| REALTIME.contains(package) || LARGE_PAGES.contains(package);
    let layered: Vec<&str> =
        base.requested_packages.iter().map(String::as_str).filter(is_other).collect();
    if removed.is_empty() || layered.is_empty() {
        return Ok(());
    }
    let mut command = [&[RPM_OSTREE, "override", "reset"], removed.as_slice()].concat();
    for package in layered {
        command.extend(["--uninstall", package]);
    }
    runner.run(&command).map(drop)
}

pub(super) fn extensions(
    runner: &dyn CommandRunner,
    extensions: &[String],
) -> Result<(), SystemError> {
    let unknown: Vec<&str> = extensions
        .iter()
        .map(String::as_str)
        .filter(|name| extension::packages(name).is_none())
        .collect();
    if !unknown.is_empty() {
        let what = format!("invalid extensions found: [{}]", unknown.join(" "));
        return Err(SystemError::Os { what });
    }
    let mut required: Vec<&str> = Vec::new();
    for package in extensions.iter().filter_map(|name| extension::packages(name)).flatten() {
        if !required.contains(package) {
            required.push(package);
        }
    }
    let before = status(runner)?;
    let base = before.base()?;
    let present = &base.requested_packages;
    let mut command = vec![RPM_OSTREE, "update"];
    for package in required.iter().filter(|it| !present.iter().any(|have| have == *it)) {
        command.extend(["--install", package]);
    }
    // Packages that the administrator layered by hand stay.
    for package in present.iter().map(String::as_str) {
        if extension::is_extension(package) && !required.contains(&package) {
            command.extend(["--uninstall", package]);
        }
    }
    if command.len() > 2 {
        runner.run(&command)?;
        return verify(runner, &required);
    }
    // A new image carries the packages over, and must have them.
    if base.staged { verify(runner, &required) } else { Ok(()) }
}

/// Fails unless the staged deployment has the required packages.
fn verify(runner: &dyn CommandRunner, required: &[&str]) -> Result<(), SystemError> {
    let after = status(runner)?;
    let Some(staged) = after.staged() else {
        let what = "no staged deployment found after applying extensions".to_owned();
        return Err(SystemError::Os { what });
    };
    let has = |package: &str| {
        staged.packages.iter().chain(&staged.requested_packages).any(|have| have == package)
    };
    let missing: Vec<&str> = required.iter().copied().filter(|it| !has(it)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(SystemError::Os {
        what: format!(
            "the following extension packages are missing from the staged deployment: [{}]",
            missing.join(" ")
        ),
    })
}

/// Makes the deployment `before` the one that the machine boots next. Can be repeated.
pub(super) fn restore(runner: &dyn CommandRunner, before: &str) -> Result<Restored, SystemError> {
    let found = status(runner)?;
    // Before anything changes: a rollback to another deployment would not be the way back.
    let before = found.find(before)?;
    let before = before.as_str();
    if found.booted()?.id == before {
        if found.is_next(before) {
            return Ok(Restored::Done);
        }
        runner.run(&[RPM_OSTREE, "cleanup", "-p"])?;
        return Ok(Restored::Done);
    }
    // The good deployment may be pending since an earlier attempt, and `cleanup -p` removes pending
    // ones; a second `rollback` would go forward again.
    if found.is_next(before) {
        return Ok(Restored::NeedsReboot);
    }
    if found.staged().is_some() {
        runner.run(&[RPM_OSTREE, "cleanup", "-p"])?;
    }
    runner.run(&[RPM_OSTREE, "rollback"])?;
    if status(runner)?.is_next(before) {
        return Ok(Restored::NeedsReboot);
    }
    let what = format!("rpm-ostree rollback did not select the deployment {before}");
    Err(SystemError::Os { what })
}
