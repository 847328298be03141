//! Updates the boot loader, which an image does not replace: under Secure Boot an old one refuses
//! the kernel of the next image.
//!
//! Compat: the conditions and commands are the reference's (`pkg/daemon/bootupd.go`); its last
//! resort, to copy the files onto the boot partitions by hand, is not here: a failure of bootupd is
//! logged.

use tracing::info;

use super::{CommandRunner, OsRelease, repository, storage};
use crate::{root::Root, system::SystemError};

const MOKUTIL: &str = "/usr/bin/mokutil";
const PODMAN: &str = "/usr/bin/podman";
const SYSTEMCTL: &str = "/usr/bin/systemctl";
const UNIT: &str = "bootloader-update.service";
/// Exists only on machines that booted by EFI; no other has Secure Boot.
const EFI: &str = "/sys/firmware/efi";

/// The method of a boot loader update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateMethod {
    /// No update is needed.
    None,
    /// The machine's own unit, or the image if that fails.
    Unit,
    /// The bootupctl of the next image.
    Image,
}

/// Chooses the method.
fn method(release: &OsRelease, architecture: &str, secure_boot: bool) -> UpdateMethod {
    let is_meant = release.is_coreos() && matches!(architecture, "x86_64" | "aarch64");
    if !is_meant || !secure_boot {
        return UpdateMethod::None;
    }
    match (release.major(), release.minor()) {
        (Some(major), _) if major > 9 => UpdateMethod::Unit,
        (Some(9), Some(minor)) if minor >= 6 => UpdateMethod::Unit,
        _ => UpdateMethod::Image,
    }
}

/// Updates the boot loader before an image is staged.
pub(super) fn update(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &str,
) -> Result<(), SystemError> {
    let release = OsRelease::read(root)?.unwrap_or_default();
    let architecture = std::env::consts::ARCH;
    if method(&release, architecture, true) == UpdateMethod::None || !root.exists(EFI)? {
        return Ok(());
    }
    // If mokutil fails, Secure Boot is assumed.
    let state = runner.run(&[MOKUTIL, "--sb-state"]);
    let secure_boot = state.map_or(true, |text| text.contains("SecureBoot enabled"));
    match method(&release, architecture, secure_boot) {
        UpdateMethod::None => {
            info!("Secure Boot not enabled, bootloader update not required");
            return Ok(());
        }
        UpdateMethod::Unit => match runner.run(&[SYSTEMCTL, "start", UNIT]) {
            Ok(_) => return Ok(()),
            Err(error) => {
                info!(unit = UNIT, %error, "Unit failed; using bootupctl of the next image");
            }
        },
        UpdateMethod::Image => {}
    }
    by_image(root, runner, image)
}

fn by_image(root: &Root, runner: &dyn CommandRunner, image: &str) -> Result<(), SystemError> {
    if !storage::has(runner, image).unwrap_or_default() {
        repository::pull(root, runner, image)?;
    }
    // bootupctl refuses to run unless systemd started it.
    let invocation = format!("INVOCATION_ID={:032x}", 1);
    let command = [
        PODMAN,
        "run",
        "--env",
        &invocation,
        "--privileged",
        "--pid=host",
        "--net=host",
        "--rm",
        "-v",
        "/boot:/boot:rslave",
        "-v",
        "/dev:/dev",
        image,
        "bootupctl",
        "update",
    ];
    runner.run(&command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C88
    #[test]
    fn only_secure_boot_on_an_image_based_machine_needs_an_update() {
        let cases = [
            ("ID=rhcos\nRHEL_VERSION=9.6", "x86_64", true, UpdateMethod::Unit),
            ("ID=rhcos\nRHEL_VERSION=10.0", "aarch64", true, UpdateMethod::Unit),
            ("ID=rhcos\nRHEL_VERSION=9.4", "x86_64", true, UpdateMethod::Image),
            ("ID=rhcos\nRHEL_VERSION=8.6", "x86_64", true, UpdateMethod::Image),
            ("ID=rhcos\nRHEL_VERSION=9.6", "x86_64", false, UpdateMethod::None),
            ("ID=rhcos\nRHEL_VERSION=9.6", "s390x", true, UpdateMethod::None),
            ("ID=rhel\nVERSION_ID=9.6", "x86_64", true, UpdateMethod::None),
            ("ID=debian\nVERSION_ID=12", "x86_64", true, UpdateMethod::None),
        ];
        for (release, architecture, secure_boot, want) in cases {
            let found = method(&OsRelease::parse(release), architecture, secure_boot);
            assert_eq!(found, want, "{release} {architecture} {secure_boot}");
        }
    }
}
