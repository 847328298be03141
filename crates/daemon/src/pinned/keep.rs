//! Has the container engine keep images when it makes room: CRI-O by a file of its own, containerd by a
//! label on each image.

use mco_host::{Host, RootError, System, SystemError};
use tracing::{info, warn};

use super::{PinError, RunCommand, plan};

/// Where CRI-O is told what to keep.
pub(super) const PIN_FILE: &str = "/etc/crio/crio.conf.d/50-pinned-images";
const CRIO: &str = "crio.service";

const CONTAINERD: &str = "containerd.service";
/// Where containerd answers, its own and that of k3s.
const SOCKETS: [&str; 2] =
    ["/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"];
const CTR: [&str; 2] = ["/usr/bin/ctr", "/usr/local/bin/ctr"];
/// The label that containerd keeps an image by, with this value and no other.
const LABEL: &str = "io.cri-containerd.pinned";
/// Which images have the label from us. Others may have it from somebody else, and keep it.
pub(super) const LABELLED: &str = "/etc/machine-config-daemon/mco-pinned-images.json";

/// What runs the machine's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// CRI-O.
    Crio,
    /// containerd, by this program.
    Containerd(&'static str),
}

/// What runs the containers of this machine; none if we do not know it.
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

/// Tells CRI-O what to keep, if it does not know yet.
pub(super) fn by_file<S: System>(host: &mut Host<S>, images: &[String]) -> Result<(), PinError> {
    let text = plan::pin_file(images);
    let found = host.root.read(PIN_FILE)?;
    if found.as_deref() == text.as_deref().map(str::as_bytes) {
        info!("CRI-O config file is up to date, no reload required");
        return Ok(());
    }
    match text {
        Some(text) => host.root.write(PIN_FILE, text.as_bytes(), 0o644)?,
        None => _ = host.root.remove(PIN_FILE)?,
    }
    host.system.reload(CRIO).map_err(PinError::Engine)
}

/// The images that have the label from us, as far as is on record.
pub(super) fn labelled<S>(host: &Host<S>) -> Result<Vec<String>, RootError> {
    let bytes = host.root.read(LABELLED)?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Puts on record which images have the label from us.
pub(super) fn record<S>(host: &Host<S>, images: &[String]) -> Result<(), RootError> {
    if images.is_empty() {
        return host.root.remove(LABELLED).map(drop);
    }
    let bytes = serde_json::to_vec(images).expect("text is JSON");
    host.root.write(LABELLED, &bytes, 0o600)
}

/// Gives these images the label, and takes it from the others.
pub(super) fn label(
    run: &RunCommand,
    program: &str,
    keep: &[String],
    let_go: &[String],
) -> Result<(), PinError> {
    let set = |image: &str, value: &str| {
        let label = format!("{LABEL}={value}");
        run(&[program, "-n", "k8s.io", "images", "label", image, &label])
    };
    for image in keep {
        set(image, "pinned").map_err(PinError::Engine)?;
    }
    for image in let_go {
        match set(image, "") {
            // What is gone is let go of.
            Err(SystemError::Command { fault, .. }) if fault.contains("not found") => {
                warn!("{image} was pinned and is gone");
            }
            other => _ = other.map_err(PinError::Engine)?,
        }
    }
    Ok(())
}
