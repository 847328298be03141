//! Pins images in the container engine, so that its garbage collection keeps them: CRI-O by a
//! drop-in, containerd by a label on each image.

use mco_host::{Host, RootError, System, SystemError};
use tracing::{info, warn};

use super::{PinError, RunCommand, plan};

/// CRI-O's drop-in with the pinned images.
pub(super) const PIN_FILE: &str = "/etc/crio/crio.conf.d/50-pinned-images";
const CRIO: &str = "crio.service";
/// Exists while CRI-O has not read the drop-in. A boot removes it, and CRI-O reads the drop-in then.
const RELOAD_DUE: &str = "/run/machine-config-daemon-crio-reload-due";

const CONTAINERD: &str = "containerd.service";
/// Sockets of containerd: its own and that of k3s.
const SOCKETS: [&str; 2] =
    ["/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"];
const CTR: [&str; 2] = ["/usr/bin/ctr", "/usr/local/bin/ctr"];
/// Label by which containerd keeps an image; only the value `pinned` counts.
const LABEL: &str = "io.cri-containerd.pinned";
/// Record of the images that the daemon labelled. Labels of others are left alone.
pub(super) const RECORD: &str = "/etc/machine-config-daemon/mco-pinned-images.json";

/// The container engine of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// CRI-O.
    Crio,
    /// containerd, with the path of `ctr`.
    Containerd(&'static str),
}

/// Finds the container engine of the machine; none if it is unknown.
pub(super) fn find<S: System>(host: &Host<S>) -> Result<Option<Runtime>, PinError> {
    if host.system.has_unit(CRIO).map_err(PinError::Engine)? {
        return Ok(Some(Runtime::Crio));
    }
    let mut is_there = host.system.has_unit(CONTAINERD).map_err(PinError::Engine)?;
    for socket in SOCKETS {
        is_there = is_there || host.root.exists(socket)?;
    }
    let [first, other] = CTR;
    let program = if host.root.exists(other)? && !host.root.exists(first)? { other } else { first };
    Ok(is_there.then_some(Runtime::Containerd(program)))
}

/// Writes CRI-O's drop-in and reloads CRI-O, if the drop-in changes.
pub(super) fn pin_with_crio<S: System>(
    host: &mut Host<S>,
    images: &[String],
) -> Result<(), PinError> {
    let text = plan::pin_file(images);
    let found = host.root.read(PIN_FILE)?;
    let is_same = found.as_deref() == text.as_deref().map(str::as_bytes);
    if is_same && !host.root.exists(RELOAD_DUE)? {
        info!("CRI-O config file is up to date, no reload required");
        return Ok(());
    }
    // Before the file, which says nothing about a reload that failed.
    host.root.write(RELOAD_DUE, b"", 0o600)?;
    match text {
        Some(_) | None if is_same => {}
        Some(text) => host.root.write(PIN_FILE, text.as_bytes(), 0o644)?,
        None => _ = host.root.remove(PIN_FILE)?,
    }
    host.system.reload(CRIO).map_err(PinError::Engine)?;
    host.root.remove(RELOAD_DUE)?;
    Ok(())
}

/// Returns the recorded images with the daemon's label.
pub(super) fn labelled<S>(host: &Host<S>) -> Result<Vec<String>, RootError> {
    let bytes = host.root.read(RECORD)?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Records the images with the daemon's label.
pub(super) fn record<S>(host: &Host<S>, images: &[String]) -> Result<(), RootError> {
    if images.is_empty() {
        return host.root.remove(RECORD).map(drop);
    }
    let bytes = serde_json::to_vec(images).expect("text is JSON");
    host.root.write(RECORD, &bytes, 0o600)
}

/// Sets the label on the images in `keep`, and removes it from those in `unpin`.
pub(super) fn pin_with_containerd(
    run: &RunCommand,
    program: &str,
    keep: &[String],
    unpin: &[String],
) -> Result<(), PinError> {
    let set = |image: &str, value: &str| {
        let label = format!("{LABEL}={value}");
        run(&[program, "-n", "k8s.io", "images", "label", image, &label])
    };
    for image in keep {
        set(image, "pinned").map_err(PinError::Engine)?;
    }
    for image in unpin {
        match set(image, "") {
            // An image that is gone needs no unpinning.
            Err(SystemError::Command { fault, .. }) if fault.contains("not found") => {
                warn!(image, "Unpinned image is already gone");
            }
            other => _ = other.map_err(PinError::Engine)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mco_host::{Root, SimulatedSystem};

    use super::*;

    // covers: C113
    #[test]
    fn a_reload_that_fails_is_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let mut host = Host { root, system };
        let log = host.system.call_log();
        let reload = format!("reload {CRIO}");
        for images in [vec!["registry.example/a@sha256:1".to_owned()], Vec::new()] {
            let before = log.calls().len();
            log.fail(&reload);
            pin_with_crio(&mut host, &images).unwrap_err();
            log.succeed(&reload);
            for _ in 0..2 {
                pin_with_crio(&mut host, &images).unwrap();
            }
            assert_eq!(log.calls()[before..], [reload.as_str(); 2], "once more, and no more");
        }
    }
}
