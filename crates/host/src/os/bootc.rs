//! Image-based systems that bootc drives.

use serde::Deserialize;

use super::{CommandRunner, parse_error};
use crate::system::{Restored, SystemError};

const BOOTC: &str = "/usr/bin/bootc";
const OSTREE: &str = "/usr/bin/ostree";

#[derive(Deserialize)]
struct Host {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    staged: Option<Entry>,
    booted: Option<Entry>,
    rollback: Option<Entry>,
    /// True if the machine boots the rollback deployment next.
    #[serde(default)]
    rollback_queued: bool,
}

#[derive(Deserialize)]
struct Entry {
    image: Option<Image>,
    ostree: Option<Deployment>,
}

#[derive(Deserialize)]
struct Image {
    image: Reference,
}

#[derive(Deserialize)]
struct Reference {
    image: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deployment {
    checksum: String,
    #[serde(default)]
    deploy_serial: u32,
}

impl Entry {
    fn image(&self) -> Option<&str> {
        self.image.as_ref().map(|image| image.image.image.as_str())
    }

    /// Returns commit and serial number, or the image if bootc does not tell.
    fn id(&self) -> Option<String> {
        let deployment = self.ostree.as_ref();
        let id = deployment.map(|it| format!("{}.{}", it.checksum, it.deploy_serial));
        id.or_else(|| self.image().map(str::to_owned))
    }

    fn is(&self, id: &str) -> bool {
        self.id().as_deref() == Some(id)
    }
}

impl Status {
    /// Returns the id of the deployment that a ledger names: by its id, or by its image, as older
    /// programs did. An image that two deployments have names neither.
    fn find(&self, recorded: &str) -> Result<String, SystemError> {
        let kept = || self.booted.iter().chain(&self.rollback);
        let mut of_image = kept().filter(|it| it.image() == Some(recorded));
        let by_image = of_image.next().filter(|_| of_image.next().is_none());
        let found = kept().find(|it| it.is(recorded)).or(by_image).and_then(Entry::id);
        found.ok_or_else(|| SystemError::Os {
            what: format!("the machine has no deployment {recorded} to go back to"),
        })
    }
}

fn status(runner: &dyn CommandRunner) -> Result<Status, SystemError> {
    let text = runner.run(&[BOOTC, "status", "--json"])?;
    let host: Host =
        serde_json::from_str(&text).map_err(|error| parse_error("bootc status --json", &error))?;
    Ok(host.status)
}

/// Returns the booted image.
pub(super) fn booted_image(runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
    let booted = status(runner)?.booted;
    Ok(booted.and_then(|entry| entry.image().map(str::to_owned)))
}

/// Returns the id of the booted deployment.
pub(super) fn booted_deployment(runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
    Ok(status(runner)?.booted.and_then(|entry| entry.id()))
}

/// Returns true if a deployment is staged.
pub(super) fn has_staged(runner: &dyn CommandRunner) -> Result<bool, SystemError> {
    Ok(status(runner)?.staged.is_some())
}

pub(super) fn switch(runner: &dyn CommandRunner, image: &str) -> Result<(), SystemError> {
    let found = status(runner)?;
    if found.booted.as_ref().and_then(Entry::image) == Some(image) {
        return drop_staged(runner, &found);
    }
    runner.run(&[BOOTC, "switch", image]).map(drop)
}

/// Makes the deployment `before` the one that the machine boots next. Needs no registry, and can be
/// repeated.
pub(super) fn restore(runner: &dyn CommandRunner, before: &str) -> Result<Restored, SystemError> {
    let found = status(runner)?;
    let before = found.find(before)?;
    if found.booted.as_ref().is_some_and(|entry| entry.is(&before)) {
        drop_staged(runner, &found)?;
        if found.rollback_queued {
            // A second rollback takes the first back.
            runner.run(&[BOOTC, "rollback"])?;
        }
        return Ok(Restored::Done);
    }
    if !found.rollback_queued {
        drop_staged(runner, &found)?;
        runner.run(&[BOOTC, "rollback"])?;
    }
    Ok(Restored::NeedsReboot)
}

/// Drops the staged deployment, which is the first of the list. bootc has no command for it.
fn drop_staged(runner: &dyn CommandRunner, found: &Status) -> Result<(), SystemError> {
    match found.staged {
        Some(_) => runner.run(&[OSTREE, "admin", "undeploy", "0"]).map(drop),
        None => Ok(()),
    }
}
