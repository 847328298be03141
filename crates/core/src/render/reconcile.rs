//! Check that the nodes of a pool, which run its current config, can apply the next one in place;
//! if not, finds the MachineConfig that causes the failure.

use std::collections::BTreeSet;

use mco_api::{MachineConfig, machine_configuration::StorageOverride};

use super::name_of;
use crate::{
    diff::reconcile::{self, Cause, Obstacle},
    machine::Machine,
};

/// The reason why the nodes of a pool cannot apply its next config.
#[derive(Debug, thiserror::Error)]
pub enum IrreconcilableError {
    /// A single MachineConfig causes the failure.
    #[error(
        "reconciliation failed between current config {current:?} and base config {config:?}: {cause}"
    )]
    Blamed {
        /// Name of the pool's current config.
        current: String,
        /// Name of the MachineConfig.
        config: String,
        /// The difference that cannot be applied.
        cause: Cause,
    },
    /// No MachineConfig causes the failure alone.
    #[error("render reconciliation error: {all}; component errors: {}", text(.one.as_deref()))]
    Together {
        /// Obstacle of the merged config.
        all: Box<Obstacle>,
        /// Obstacle of the first MachineConfig that fails by itself.
        one: Option<Box<Obstacle>>,
    },
    /// The configs cannot be compared.
    #[error("render reconciliation error")]
    Unreadable(#[source] Obstacle),
}

/// Refuses the rendered config `next`, made of `parts`, if nodes that have `current` cannot apply
/// it.
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
        Obstacle::Unreadable { .. }
        | Obstacle::Invalid { .. }
        | Obstacle::Path { .. }
        | Obstacle::KernelFips => None,
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

/// Returns the config that by itself fails in the same way as the merged config.
///
/// A config that sets the section outranks one that only lacks it, and a new config outranks a
/// known one. The reference returns the first of all, which often only lacks the section.
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
            let sets = is_cause(&blank, &machine);
            let is_new = !known.contains(name_of(part));
            let rank = if sets { u8::from(!is_new) } else { 2 };
            (rank, name_of(part))
        })
    });
    // Of equal candidates the first is returned, which the reference names too.
    suspects.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ignition, machine_config};

    fn with(name: &str, rest: &str) -> MachineConfig {
        ignition(name, "worker", &format!(r#"{{"ignition":{{"version":"3.5.0"}}{rest}}}"#))
    }

    fn check(current: &str, parts: &[MachineConfig], overrides: &[StorageOverride]) -> String {
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

    /// Current Ignition members of the pool, members added by a config, and the expected error.
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
        // Unchanged sections are no difference, and links may be removed.
        (
            r#","storage":{"directories":[{"path":"/etc/d"}]}"#,
            r#","storage":{"directories":[{"path":"/etc/d"}]}"#,
            "",
        ),
        (r#","storage":{"links":[{"path":"/etc/l","target":"/etc/m"}]}"#, "", ""),
    ];

    // covers: REN-30
    #[test]
    fn an_irreconcilable_change_names_the_config_that_causes_it() {
        let base = || with("00-worker", "");
        for &(current, added, expected) in CHANGES {
            let text = check(current, &[base(), with("50-new", added)], &[]);
            let expected = match expected {
                "" => String::new(),
                cause => format!(
                    "reconciliation failed between current config \"rendered-worker-1\" and base config \"50-new\": {cause}"
                ),
            };
            assert_eq!(text, expected);
        }
        // Compat: appended contents do not go with `overwrite`, which rendering sets.
        let append = r#","storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,a"}]}]}"#;
        let text = check("", &[base(), with("50-new", append)], &[]);
        assert!(text.starts_with("render reconciliation error: "), "{text}");
        assert!(text.contains("overwrite must be false if source is unspecified"), "{text}");
        let mut fips = machine_config("50-new", "worker");
        fips.spec.fips = true;
        let text = check("", &[base(), fips], &[]);
        assert!(text.contains("base config \"50-new\": detected change to FIPS flag"), "{text}");
    }

    // covers: REN-30
    #[test]
    fn a_config_without_the_section_is_not_named() {
        // The pool has /etc/d of 00-worker; 50-new adds one. By itself 10-silent has neither.
        let old = r#","storage":{"directories":[{"path":"/etc/d"}]}"#;
        let new = r#","storage":{"directories":[{"path":"/etc/e"}]}"#;
        let parts = [with("00-worker", old), with("10-silent", ""), with("50-new", new)];
        assert!(check(old, &parts, &[]).contains("base config \"50-new\""));
        // If the section was removed, no config sets it any longer, and the first config is named.
        let parts = [with("00-worker", ""), with("10-silent", "")];
        assert!(check(old, &parts, &[]).contains("base config \"00-worker\""));
    }

    // covers: REN-31
    #[test]
    fn an_override_allows_a_section_to_change() {
        let disks = r#","storage":{"disks":[{"device":"/dev/sda"}]}"#;
        let parts = [with("50-new", disks)];
        assert_ne!(check("", &parts, &[StorageOverride::Raid]), "");
        assert_eq!(check("", &parts, &[StorageOverride::Disks]), "");
    }
}
