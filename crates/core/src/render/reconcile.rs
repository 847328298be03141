//! Whether the nodes of a pool, which run its present config, can take the next one in place; if not,
//! which MachineConfig is to blame.

use std::collections::BTreeSet;

use mco_api::{MachineConfig, machine_configuration::StorageOverride};

use super::name_of;
use crate::{
    diff::reconcile::{self, Cause, Obstacle},
    machine::Machine,
};

/// Why the nodes of a pool cannot take its next config.
#[derive(Debug, thiserror::Error)]
pub enum IrreconcilableError {
    /// One MachineConfig asks for it.
    #[error(
        "reconciliation failed between current config {current:?} and base config {config:?}: {cause}"
    )]
    Blamed {
        /// What the pool has.
        current: String,
        /// Who asks for it.
        config: String,
        /// What differs.
        cause: Cause,
    },
    /// None of them does so alone.
    #[error("render reconciliation error: {all}; component errors: {}", text(.one.as_deref()))]
    Together {
        /// What all together come to.
        all: Box<Obstacle>,
        /// What the first of them that is refused by itself comes to.
        one: Option<Box<Obstacle>>,
    },
    /// The configs cannot be compared.
    #[error("render reconciliation error")]
    Unreadable(#[source] Obstacle),
}

/// Refuses the rendered config `next`, made of `parts`, if nodes that have `current` could not take it.
///
/// `known` are the MachineConfigs that `current` was made of.
pub fn check_reconcilable(
    current: &MachineConfig,
    next: &MachineConfig,
    parts: &[&MachineConfig],
    known: &BTreeSet<&str>,
    overrides: &[StorageOverride],
) -> Result<(), IrreconcilableError> {
    let (from, to) = reconcile::read(current, next).map_err(IrreconcilableError::Unreadable)?;
    let Err(obstacle) = reconcile::check(&from, &to, overrides, None) else { return Ok(()) };
    let blamed = match &obstacle {
        Obstacle::Section { cause, .. } => {
            let blamed = blame(&from, parts, cause, known, overrides);
            blamed.map(|config| IrreconcilableError::Blamed {
                current: name_of(current).to_owned(),
                config: config.to_owned(),
                cause: cause.clone(),
            })
        }
        Obstacle::Unreadable { .. } | Obstacle::Invalid { .. } | Obstacle::KernelFips => None,
    };
    Err(blamed.unwrap_or_else(|| {
        let machines = parts.iter().filter_map(|part| Machine::read(part).ok());
        let mut found =
            machines.filter_map(|to| reconcile::check(&from, &to, overrides, None).err());
        IrreconcilableError::Together { all: Box::new(obstacle), one: found.next().map(Box::new) }
    }))
}

fn text(one: Option<&Obstacle>) -> String {
    one.map_or_else(|| "none".to_owned(), Obstacle::to_string)
}

/// The config that by itself is as impossible as all together.
///
/// One that says something about the matter goes before one that is only silent about it, and a new
/// one before those that were there; the reference takes the first of all, which is often a silent one.
fn blame<'a>(
    from: &Machine,
    parts: &[&'a MachineConfig],
    cause: &Cause,
    known: &BTreeSet<&str>,
    overrides: &[StorageOverride],
) -> Option<&'a str> {
    let blank = Machine::blank();
    let is_cause = |from: &Machine, to: &Machine| {
        let found = reconcile::check(from, to, overrides, None);
        matches!(found, Err(Obstacle::Section { cause: found, .. }) if found == *cause)
    };
    let suspects = parts.iter().filter_map(|&part| {
        let machine = Machine::read(part).ok()?;
        is_cause(from, &machine).then(|| {
            let speaks = is_cause(&blank, &machine);
            let is_new = !known.contains(name_of(part));
            let rank = if speaks { u8::from(!is_new) } else { 2 };
            (rank, name_of(part))
        })
    });
    // The first of equals, which is the one that the reference names.
    suspects.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ignition, machine_config};

    fn with(name: &str, rest: &str) -> MachineConfig {
        ignition(name, "worker", &format!(r#"{{"ignition":{{"version":"3.5.0"}}{rest}}}"#))
    }

    fn verdict(current: &str, parts: &[MachineConfig], overrides: &[StorageOverride]) -> String {
        let current = with("rendered-worker-1", current);
        let parts: Vec<&MachineConfig> = parts.iter().collect();
        let pool = "worker".parse().unwrap();
        let rendered = super::super::pool(&pool, &parts, &super::super::BaseImages::default());
        let rendered = rendered.unwrap();
        let next = MachineConfig::new(rendered.name.as_str(), rendered.spec);
        let known = BTreeSet::from(["00-worker"]);
        let found = check_reconcilable(&current, &next, &parts, &known, overrides);
        let text = |error: IrreconcilableError| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        found.err().map(text).unwrap_or_default()
    }

    /// What the pool has, what a config adds, and why that cannot be.
    const CHANGES: &[(&str, &str, &str)] = &[
        ("", r#","storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}}]}"#, ""),
        (
            "",
            r#","storage":{"directories":[{"path":"/etc/d"}]}"#,
            "ignition directories section contains changes",
        ),
        (
            "",
            r#","storage":{"disks":[{"device":"/dev/sda"}]}"#,
            "ignition disks section contains changes",
        ),
        (
            "",
            r#","storage":{"raid":[{"name":"r","level":"raid0","devices":["/dev/a","/dev/b"]}]}"#,
            "ignition raid section contains changes",
        ),
        (
            "",
            r#","storage":{"filesystems":[{"device":"/dev/sda","format":"ext4"}]}"#,
            "ignition filesystems section contains changes",
        ),
        (
            "",
            r#","storage":{"links":[{"path":"/etc/l","target":"/etc/m"}]}"#,
            "ignition links section contains changes",
        ),
        (
            "",
            r#","kernelArguments":{"shouldExist":["a"]}"#,
            "ignition kargs section contains changes",
        ),
        (
            "",
            r#","passwd":{"groups":[{"name":"g"}]}"#,
            "invalid passwd change(s): ignition Passwd Groups section contains changes",
        ),
        (
            "",
            r#","passwd":{"users":[{"name":"bob"}]}"#,
            "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user",
        ),
        (
            "",
            r#","passwd":{"users":[{"name":"core"}]}"#,
            "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys",
        ),
        (
            "",
            r#","passwd":{"users":[{"name":"core","uid":5,"sshAuthorizedKeys":["k"]}]}"#,
            "invalid passwd change(s): SSH keys and password hash are not reconcilable",
        ),
        (
            "",
            r#","storage":{"files":[{"path":"/run/machine-config-daemon-force","contents":{"source":"data:,x"}}]}"#,
            "cannot create /run/machine-config-daemon-force via Ignition",
        ),
        // What was there already is no change, and links may go.
        (
            r#","storage":{"directories":[{"path":"/etc/d"}]}"#,
            r#","storage":{"directories":[{"path":"/etc/d"}]}"#,
            "",
        ),
        (r#","storage":{"links":[{"path":"/etc/l","target":"/etc/m"}]}"#, "", ""),
    ];

    // covers: REN-30
    #[test]
    fn what_running_nodes_cannot_take_is_blamed_on_the_config_that_asks_for_it() {
        let base = || with("00-worker", "");
        for &(current, added, expected) in CHANGES {
            let said = verdict(current, &[base(), with("50-new", added)], &[]);
            let expected = match expected {
                "" => String::new(),
                cause => format!(
                    "reconciliation failed between current config \"rendered-worker-1\" and base config \"50-new\": {cause}"
                ),
            };
            assert_eq!(said, expected);
        }
        // Compat: contents that are added to do not go with `overwrite`, which rendering sets.
        let append = r#","storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,a"}]}]}"#;
        let said = verdict("", &[base(), with("50-new", append)], &[]);
        assert!(said.starts_with("render reconciliation error: "), "{said}");
        assert!(said.contains("overwrite must be false if source is unspecified"), "{said}");
        let mut fips = machine_config("50-new", "worker");
        fips.spec.fips = true;
        let said = verdict("", &[base(), fips], &[]);
        assert!(said.contains("base config \"50-new\": detected change to FIPS flag"), "{said}");
    }

    // covers: REN-30
    #[test]
    fn a_config_that_says_nothing_about_it_is_not_blamed_for_another() {
        // The pool has /etc/d of 00-worker; 50-new adds one. By itself 10-silent has none of them.
        let old = r#","storage":{"directories":[{"path":"/etc/d"}]}"#;
        let new = r#","storage":{"directories":[{"path":"/etc/e"}]}"#;
        let parts = [with("00-worker", old), with("10-silent", ""), with("50-new", new)];
        assert!(verdict(old, &parts, &[]).contains("base config \"50-new\""));
        // Where one was taken away nobody asks for it any longer, and the first is named.
        let parts = [with("00-worker", ""), with("10-silent", "")];
        assert!(verdict(old, &parts, &[]).contains("base config \"00-worker\""));
    }

    // covers: REN-31
    #[test]
    fn an_override_lets_a_section_change() {
        let disks = r#","storage":{"disks":[{"device":"/dev/sda"}]}"#;
        let parts = [with("50-new", disks)];
        assert_ne!(verdict("", &parts, &[StorageOverride::Raid]), "");
        assert_eq!(verdict("", &parts, &[StorageOverride::Disks]), "");
    }
}
