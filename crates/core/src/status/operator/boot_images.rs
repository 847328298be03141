//! The guard against boot images that are too old for an upgrade.

use mco_api::{
    MachineConfiguration,
    machine_configuration::boot_images::{AutomaticBootImageVersion, ManualBootImageVersion},
};

/// Oldest version of OpenShift whose boot images can be upgraded.
const OLDEST_OPENSHIFT: [u32; 3] = [4, 13, 0];

/// Oldest version of RHEL whose boot images can be upgraded.
const OLDEST_RHEL: (u32, u32) = (9, 2);

const DEGRADED: &str = "BootImageUpdateDegraded";
const PROGRESSING: &str = "BootImageUpdateProgressing";

/// Returns the reason for which the boot images block upgrades.
///
/// Compat: the reference's operator copies the mode that the administrator sets into the status, and
/// reads it there. Here it counts at once.
#[must_use]
pub fn blocking_boot_images(config: &MachineConfiguration) -> Option<String> {
    if let Some(set) = &config.spec.boot_image_skew_enforcement {
        return set.manual.as_ref().and_then(manual);
    }
    let status = config.status.as_ref()?;
    let enforced = status.boot_image_skew_enforcement_status.as_ref()?;
    match enforced.mode.as_str() {
        "Manual" => enforced.manual.as_ref().and_then(manual),
        "Automatic" => automatic(config, enforced.automatic.as_ref()?),
        _ => None,
    }
}

fn automatic(config: &MachineConfiguration, found: &AutomaticBootImageVersion) -> Option<String> {
    let conditions = config.status.as_ref().map(|status| status.conditions.as_slice())?;
    let condition = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    let degraded = condition(DEGRADED).filter(|condition| condition.status == "True");
    if let Some(degraded) = degraded {
        return Some(format!(
            "Upgrades have been disabled due to boot image update failures: {}",
            degraded.message
        ));
    }
    // Without a report, and while images are updated, the version is not the final one.
    condition(PROGRESSING).filter(|condition| condition.status == "False")?;
    if found.ocp_version.is_empty() {
        too_old_rhel(&found.rhcos_version)
    } else {
        too_old_openshift(&found.ocp_version)
    }
}

fn manual(found: &ManualBootImageVersion) -> Option<String> {
    match found.mode.as_str() {
        "OCPVersion" => too_old_openshift(&found.ocp_version),
        "RHCOSVersion" => too_old_rhel(&found.rhcos_version),
        _ => None,
    }
}

fn too_old_openshift(version: &str) -> Option<String> {
    let numbers: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 3)?;
    let [major, minor, patch] = OLDEST_OPENSHIFT;
    (numbers.as_slice() < OLDEST_OPENSHIFT.as_slice())
        .then(|| message(version, &format!("OpenShift {major}.{minor}.{patch}")))
}

fn too_old_rhel(version: &str) -> Option<String> {
    let (major, minor) = OLDEST_RHEL;
    (rhel(version)? < OLDEST_RHEL).then(|| message(version, &format!("RHEL {major}.{minor}")))
}

fn message(version: &str, oldest: &str) -> String {
    format!(
        "Upgrades have been disabled because the boot images have version {version}, and the oldest \
         that can be upgraded is that of {oldest}. Update the boot images, then set their version in \
         spec.bootImageSkewEnforcement of MachineConfiguration cluster"
    )
}

/// Returns the version of RHEL in a version of RHCOS; `None` if the form is not known.
///
/// Newer versions are `9.6.20250701-0`. Older ones are `48.84.202109241901-0`, whose second number is
/// that of RHEL 8.4.
fn rhel(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let (first, second, stamp) = (parts.next()?, parts.next()?, parts.next()?);
    let stamp = stamp.split('-').next()?;
    if !stamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match stamp.len() {
        8 => Some((first.parse().ok()?, second.parse().ok()?)),
        12 => {
            let (major, minor) = second.split_at_checked(1)?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn blocks(object: Value) -> Option<String> {
        blocking_boot_images(&serde_json::from_value(object).unwrap())
    }

    // covers: O31
    #[test]
    fn old_boot_images_block_upgrades() {
        let openshift = |version: &str| json!({"mode": "OCPVersion", "ocpVersion": version});
        let rhcos = |version: &str| json!({"mode": "RHCOSVersion", "rhcosVersion": version});
        let rows = [
            (openshift("4.12.0"), true),
            (openshift("4.13.0"), false),
            (openshift("4.9.59"), true),
            (openshift("5.0.0"), false),
            (openshift("unknown"), false),
            (rhcos("9.0.20230101-0"), true),
            (rhcos("9.2.20230101-0"), false),
            (rhcos("48.84.202109241901-0"), true),
            (rhcos("413.92.202305021736-0"), false),
            (rhcos("9.0.1-0"), false),
        ];
        for (manual, expected) in rows {
            let enforcement = json!({"mode": "Manual", "manual": manual});
            let spec = json!({"metadata": {}, "spec": {"bootImageSkewEnforcement": enforcement}});
            let found = blocks(spec);
            assert_eq!(found.is_some(), expected, "{manual}: {found:?}");
            let status = json!({"bootImageSkewEnforcementStatus": enforcement});
            let found = blocks(json!({"metadata": {}, "spec": {}, "status": status}));
            assert_eq!(found.is_some(), expected, "{manual}: {found:?}");
        }
        let none = json!({"mode": "None"});
        assert_eq!(
            blocks(json!({"metadata": {}, "spec": {"bootImageSkewEnforcement": none}})),
            None
        );
        assert_eq!(blocks(json!({"metadata": {}, "spec": {}})), None);
    }

    #[test]
    fn images_that_the_cluster_updates_block_when_that_fails_or_is_done() {
        let with = |conditions: &[(&str, &str)]| {
            let condition = |(kind, status): &(&str, &str)| {
                json!({"type": kind, "status": status, "reason": "A", "message": "no image",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let conditions: Vec<Value> = conditions.iter().map(condition).collect();
            let enforced = json!({"mode": "Automatic", "automatic": {"ocpVersion": "4.12.0"}});
            blocks(json!({"metadata": {}, "spec": {}, "status": {"conditions": conditions,
                "bootImageSkewEnforcementStatus": enforced}}))
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[(PROGRESSING, "True")]), None);
        assert!(with(&[(PROGRESSING, "False")]).unwrap().contains("version 4.12.0"));
        assert_eq!(
            with(&[(DEGRADED, "True")]).unwrap(),
            "Upgrades have been disabled due to boot image update failures: no image"
        );
    }
}
