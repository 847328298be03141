//! Image-based systems that bootc drives.

use serde::Deserialize;

use super::{CommandRunner, parse_error};
use crate::system::{Restored, SystemError};

const BOOTC: &str = "/usr/bin/bootc";

#[derive(Deserialize)]
struct Host {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    booted: Option<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    image: Option<Image>,
}

#[derive(Deserialize)]
struct Image {
    image: Reference,
}

#[derive(Deserialize)]
struct Reference {
    image: String,
}

/// Returns the booted image.
pub(super) fn booted(runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
    let text = runner.run(&[BOOTC, "status", "--json"])?;
    let host: Host =
        serde_json::from_str(&text).map_err(|error| parse_error("bootc status --json", &error))?;
    let image = host.status.booted.and_then(|entry| entry.image);
    Ok(image.map(|image| image.image.image))
}

pub(super) fn switch(runner: &dyn CommandRunner, image: &str) -> Result<(), SystemError> {
    if booted(runner)?.as_deref() == Some(image) {
        return Ok(());
    }
    runner.run(&[BOOTC, "switch", image]).map(drop)
}

pub(super) fn restore(runner: &dyn CommandRunner, before: &str) -> Result<Restored, SystemError> {
    let is_same_boot = booted(runner)?.as_deref() == Some(before);
    runner.run(&[BOOTC, "switch", before])?;
    Ok(if is_same_boot { Restored::Done } else { Restored::NeedsReboot })
}
