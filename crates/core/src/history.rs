//! History of a pool: its rendered configs, what changed between them and by whom, and the way back to
//! one of them.

mod restore;
mod undo;

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube_core::ResourceExt as _;
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfigPoolStatus, annotation, condition::PoolCondition,
};
use serde::Serialize;

pub use self::undo::{Undo, UndoError, undo};
use crate::{
    diff::{self, Change, ConfigDiff, PartChange, reconcile},
    prune::RenderedView,
    render::{self, Selection},
    status::explain,
};

/// A rendered config of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Number of the revision; the oldest that exists is 1.
    pub number: usize,
    /// Name of the rendered config.
    pub config: String,
    /// Time at which the controller rendered it.
    pub created: Option<Time>,
    /// True if the pool has this config as its target.
    pub current: bool,
    /// Seconds that its last roll-out took, if it was completed.
    pub took: Option<u64>,
    /// Differences from the revision before, such as `+ /etc/motd`.
    pub changes: Vec<String>,
    /// MachineConfigs that were created or changed before this revision and after the one before.
    pub causes: Vec<Cause>,
}

/// A MachineConfig that was created or changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Name of the MachineConfig.
    pub config: String,
    /// Field manager that wrote it.
    pub by: String,
    /// Time of the write.
    pub at: Option<Time>,
    /// True if the MachineConfig was created then.
    pub created: bool,
}

/// Returns the revisions of a pool, oldest first.
#[must_use]
pub fn of(pool: &MachineConfigPool, configs: &[MachineConfig]) -> Vec<Revision> {
    let rendered = rendered(pool, configs);
    let target = &pool.spec.configuration.rendered.name;
    let sources = selected(pool, configs);
    let mut revisions = Vec::new();
    let mut before: Option<&MachineConfig> = None;
    for (index, config) in rendered.iter().enumerate() {
        let name = config.metadata.name.clone().unwrap_or_default();
        let since = before.and_then(|it| it.metadata.creation_timestamp.clone());
        revisions.push(Revision {
            number: index + 1,
            current: name == *target,
            config: name,
            created: config.metadata.creation_timestamp.clone(),
            took: annotation::ROLLOUT_SECONDS.get(config.annotations()).ok().flatten(),
            changes: before.map(|before| changes(before, config)).unwrap_or_default(),
            causes: match before {
                Some(_) => {
                    causes(&sources, since.as_ref(), config.metadata.creation_timestamp.as_ref())
                }
                None => Vec::new(),
            },
        });
        before = Some(config);
    }
    revisions
}

/// Returns the seconds that a roll-out took which ends now: since the pool began to update, or since the
/// config was rendered, if that was later. Returns none if the pool was not updating.
#[must_use]
pub fn rollout_seconds(
    before: &MachineConfigPoolStatus,
    created: Option<&Time>,
    Time(now): &Time,
) -> Option<u64> {
    let updating = explain::holding(&before.conditions, &PoolCondition::Updating)?;
    let Time(start) = updating.last_transition_time.as_ref().max(created)?;
    u64::try_from(now.as_second() - start.as_second()).ok()
}

/// Returns the rendered configs of a pool, oldest first.
fn rendered<'c>(pool: &MachineConfigPool, configs: &'c [MachineConfig]) -> Vec<&'c MachineConfig> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let is_own =
        |config: &&MachineConfig| RenderedView::of(config).is_some_and(|it| it.pool == name);
    let mut rendered: Vec<&MachineConfig> = configs.iter().filter(is_own).collect();
    rendered.sort_by_key(|config| {
        (config.metadata.creation_timestamp.clone(), config.metadata.name.clone())
    });
    rendered
}

/// Returns the MachineConfigs that the pool selects.
fn selected<'c>(pool: &MachineConfigPool, configs: &'c [MachineConfig]) -> Vec<&'c MachineConfig> {
    let candidates = configs.iter().filter(|config| RenderedView::of(config).is_none());
    match render::select(pool, candidates) {
        Ok(Selection::Configs(configs)) => configs,
        Ok(Selection::Everything) | Err(_) => Vec::new(),
    }
}

/// Returns the writes of the MachineConfigs after `since` and until `until`.
///
/// Times have whole seconds. Writes in the very second of `since` count only if there are no later ones:
/// as a rule they belong to the revision before.
fn causes(configs: &[&MachineConfig], since: Option<&Time>, until: Option<&Time>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for config in configs {
        let Some(entry) = last_write(config, until) else { continue };
        causes.push(Cause {
            config: config.metadata.name.clone().unwrap_or_default(),
            by: entry.manager.clone().unwrap_or_else(|| "unknown".to_owned()),
            at: entry.time.clone(),
            created: config.metadata.creation_timestamp.as_ref() >= since,
        });
    }
    causes.retain(|cause| cause.at.as_ref() >= since);
    let is_later = |cause: &Cause| cause.at.as_ref() > since;
    if causes.iter().any(is_later) {
        causes.retain(is_later);
    }
    causes
}

/// Returns the last write of a MachineConfig until a time.
#[must_use]
pub fn last_write<'c>(
    config: &'c MachineConfig,
    until: Option<&Time>,
) -> Option<&'c ManagedFieldsEntry> {
    let entries = config.metadata.managed_fields.iter().flatten();
    let entries =
        entries.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let entries = entries.filter(|entry| until.is_none() || entry.time.as_ref() <= until);
    entries.max_by_key(|entry| entry.time.clone())
}

/// Returns the MachineConfigs of a pool that were written after a time, newest first.
fn written_after(configs: &[&MachineConfig], since: Option<&Time>) -> Vec<Cause> {
    let mut found = causes(configs, since, None);
    found.sort_by(|left, right| right.at.cmp(&left.at));
    found
}

/// Returns the differences between two rendered configs, each as a short text.
#[must_use]
pub fn changes(from: &MachineConfig, to: &MachineConfig) -> Vec<String> {
    match reconcile::read(from, to) {
        Ok((from, to)) => texts(&diff::between(&from, &to)),
        Err(obstacle) => vec![obstacle.to_string()],
    }
}

fn texts(diff: &ConfigDiff) -> Vec<String> {
    let part = |part: &PartChange| {
        let sign = match part.change {
            Change::Added => '+',
            Change::Removed => '-',
            Change::Changed | Change::Respelled => '~',
        };
        format!("{sign} {}", part.name)
    };
    let mut texts: Vec<String> = diff.files.iter().map(part).collect();
    texts.extend(diff.units.iter().map(part));
    texts.extend(diff.users.iter().filter(|it| it.keys).map(|_| "~ SSH keys".to_owned()));
    texts.extend(diff.users.iter().filter(|it| it.password).map(|_| "~ password".to_owned()));
    texts.extend(diff.system().into_iter().map(|name| format!("~ {name}")));
    texts
}
