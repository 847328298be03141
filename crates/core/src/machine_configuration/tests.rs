use mco_api::openshift::{ClusterVersion, FeatureGate, Infrastructure};
use serde_json::json;

use super::*;
use crate::plan::default_policies;

fn configuration(spec: &Value, status: Option<&Value>) -> MachineConfiguration {
    let mut object =
        json!({"metadata": {"name": "cluster", "generation": 3}, "spec": spec.clone()});
    if let Some(status) = status {
        object["status"] = status.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn policy(value: Value) -> NodeDisruptionPolicyConfig {
    serde_json::from_value(value).unwrap()
}

// covers: O38
#[test]
fn policies_replace_defaults_in_place_and_others_follow() {
    let none = json!([{"type": "None"}]);
    let spec = json!({"nodeDisruptionPolicy": {
        "files": [
            {"path": "/etc/new", "actions": none},
            {"path": "/etc/containers/policy.json", "actions": [{"type": "Reboot"}]},
        ],
        "units": [{"name": "new.service", "actions": none}],
        "sshkey": {"actions": [{"type": "Drain"}]},
    }});
    let found = configuration(&spec, None);
    let status = status(&found, None);
    assert_eq!(status.observed_generation, 3);
    let merged = status.node_disruption_policy_status.clone().unwrap().cluster_policies.unwrap();
    let defaults = default_policies();
    let paths: Vec<&str> = merged.files.iter().map(|file| file.path.as_str()).collect();
    let expected: Vec<&str> = defaults.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [expected, vec!["/etc/new"]].concat());
    assert_eq!(json!(merged.files[2].actions), json!([{"type": "Reboot"}]));
    let names: Vec<&str> = merged.units.iter().map(|unit| unit.name.as_str()).collect();
    assert_eq!(names, ["iri-registry.service", "new.service"]);
    assert_eq!(json!(merged.sshkey), json!({"actions": [{"type": "Drain"}]}));

    let published = configuration(&spec, Some(&json!(status)));
    assert_eq!(status_patch(&published, &super::status(&published, None)), None);
    assert!(status_patch(&found, &status).is_some());
}

#[test]
fn invalid_entries_are_named_and_have_no_effect() {
    let none = || json!([{"type": "None"}]);
    let invalid = policy(json!({
        "files": [
            {"path": "etc/relative", "actions": none()},
            {"path": "", "actions": none()},
            {"path": "/etc/a", "actions": [{"type": "Reboot"}, {"type": "Drain"}]},
            {"path": "/etc/b", "actions": [{"type": "Reload"}]},
            {"path": "/etc/c", "actions": [{"type": "Special"}]},
            {"path": "/etc/d", "actions": none()},
            {"path": "/etc/d", "actions": [{"type": "Drain"}]},
            {"path": "/etc/e", "actions": [{"type": "Newer"}]},
        ],
        "units": [{"name": "a.service", "actions": [{"type": "Restart", "restart": {}}]}],
        "sshkey": {"actions": [{"type": "None"}, {"type": "Drain"}]},
    }));
    assert_eq!(
        faults(&invalid),
        [
            "files[0] (path \"etc/relative\"): the path is not absolute",
            "files[1] (path \"\"): the path is not absolute",
            "files[2] (path \"/etc/a\"): action Reboot must be the only one",
            "files[3] (path \"/etc/b\"): action Reload needs reload.serviceName",
            "files[4] (path \"/etc/c\"): action Special is only for the built-in policies",
            "files[6] (path \"/etc/d\"): an earlier entry is about the same",
            "units[0] (name \"a.service\"): action Restart needs restart.serviceName",
            "sshkey: action None must be the only one",
        ]
    );
    let found = configuration(&json!({"nodeDisruptionPolicy": invalid}), None);
    let status = status(&found, None);
    let merged = status.node_disruption_policy_status.unwrap().cluster_policies.unwrap();
    let own: Vec<&str> = merged.files.iter().skip(13).map(|file| file.path.as_str()).collect();
    assert_eq!(own, ["/etc/d", "/etc/e"]);
    assert_eq!(
        (merged.units, merged.sshkey),
        (default_policies().units, default_policies().sshkey)
    );
    assert_eq!(faults(&NodeDisruptionPolicyConfig::default()), [""; 0]);
}

#[test]
fn policies_are_outdated_until_those_of_the_generation_are_published() {
    let published = |generation: i64| json!({"observedGeneration": generation, "nodeDisruptionPolicyStatus": {}});
    let rows = [(None, false), (Some(published(2)), true), (Some(published(3)), false)];
    for (status, expected) in rows {
        assert_eq!(is_outdated(&configuration(&json!({}), status.as_ref())), expected);
    }
}

fn facts(platform: &str, topology: &str, gates: Option<&[&str]>) -> Facts {
    let infrastructure: Infrastructure = serde_json::from_value(json!({"metadata": {}, "status": {
        "controlPlaneTopology": topology,
        "platformStatus": match platform {
            "AzureStack" => json!({"type": "Azure", "azure": {"cloudName": "AzureStackCloud"}}),
            _ => json!({"type": platform}),
        },
    }}))
    .unwrap();
    let history = json!([
        {"state": "Partial", "version": "4.21.1"},
        {"state": "Completed", "version": "4.20.0"},
        {"state": "Completed", "version": "4.18.3-rc.1"},
        {"state": "Partial", "version": "4.17.0"},
    ]);
    let version: ClusterVersion =
        serde_json::from_value(json!({"metadata": {}, "status": {"history": history}})).unwrap();
    let gates: Option<FeatureGate> = gates.map(|gates| {
        let enabled: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        let status = json!({"featureGates": [{"version": "4.21.0", "enabled": enabled}]});
        serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
    });
    Facts::new(&infrastructure, Some(&version), gates.as_ref(), Provisioning::Release)
}

fn managers(found: &MachineConfiguration, facts: &Facts) -> Option<String> {
    let managed = status(found, Some(facts)).managed_boot_images_status?;
    let line = |it: &mco_api::machine_configuration::boot_images::MachineManager| {
        format!("{}={}", it.resource, it.selection.mode.as_str())
    };
    Some(managed.machine_managers.iter().map(line).collect::<Vec<_>>().join(" "))
}

// covers: O39
#[test]
fn boot_images_are_managed_by_default_where_the_platform_can() {
    let (sets, both) = ("machinesets=All", "machinesets=All controlplanemachinesets=None");
    let own = |resource: &str, mode: &str| {
        let manager = json!({"resource": resource, "apiGroup": "machine.openshift.io",
            "selection": {"mode": mode}});
        json!({"managedBootImages": {"machineManagers": [manager]}})
    };
    let empty = json!({"managedBootImages": {"machineManagers": []}});
    let (nothing, all): (Value, Option<&[&str]>) = (json!({}), None);
    let rows = [
        ("AWS", nothing.clone(), all, Some(both), true),
        ("GCP", nothing.clone(), all, Some(both), true),
        ("Azure", nothing.clone(), all, Some(both), true),
        ("AzureStack", nothing.clone(), all, None, false),
        ("VSphere", nothing.clone(), all, Some(sets), true),
        ("AWS", nothing.clone(), Some(&[][..]), Some(sets), true),
        ("BareMetal", nothing.clone(), all, None, false),
        ("None", nothing, all, None, false),
        ("AWS", empty, all, Some(""), false),
        (
            "AWS",
            own("machinesets", "None"),
            all,
            Some("machinesets=None controlplanemachinesets=None"),
            false,
        ),
        (
            "AWS",
            own("controlplanemachinesets", "All"),
            all,
            Some("machinesets=All controlplanemachinesets=All"),
            true,
        ),
    ];
    for (platform, spec, gates, expected, opted_in) in rows {
        let facts = facts(platform, "HighlyAvailable", gates);
        let found = configuration(&spec, None);
        assert_eq!(managers(&found, &facts).as_deref(), expected, "{platform} {spec}");
        let wanted = status(&found, Some(&facts));
        assert_eq!(opts_in(&found, &wanted), opted_in, "{platform} {spec}");
        let published = configuration(&spec, Some(&json!(wanted)));
        assert!(!opts_in(&published, &status(&published, Some(&facts))), "{platform} {spec}");
    }
    // A decision against updates is over: the default starts them again.
    let stopped = configuration(&own("machinesets", "None"), None);
    let aws = facts("AWS", "HighlyAvailable", None);
    let before = json!(status(&stopped, Some(&aws)));
    let found = configuration(&json!({}), Some(&before));
    assert!(opts_in(&found, &status(&found, Some(&aws))));
    // The list is emptied in the stored status, too.
    let before = json!(status(&found, Some(&aws)));
    let empty = json!({"managedBootImages": {"machineManagers": []}});
    let found = configuration(&empty, Some(&before));
    let patch = status_patch(&found, &status(&found, Some(&aws))).unwrap();
    assert_eq!(patch["managedBootImagesStatus"], json!({"machineManagers": null}));
}

// covers: O40
#[test]
fn the_limit_on_the_age_of_boot_images_follows_spec_platform_and_topology() {
    let automatic =
        |version: &str| json!({"mode": "Automatic", "automatic": {"ocpVersion": version}});
    let manual = |version: &str| json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": version}});
    let none = json!({"mode": "None"});
    let own = json!({"bootImageSkewEnforcement": manual("4.19.0")});
    let disabled = json!({"bootImageSkewEnforcement": none});
    let empty = json!({"managedBootImages": {"machineManagers": []}});
    let high = "HighlyAvailable";
    let rows = [
        ("AWS", high, own, manual("4.19.0")),
        ("AWS", high, disabled, none.clone()),
        ("BareMetal", high, json!({}), none.clone()),
        ("AWS", "SingleReplica", json!({}), none),
        ("AWS", high, json!({}), automatic("4.18.3")),
        ("AWS", high, empty, manual("4.18.3")),
        ("None", high, json!({}), manual("4.18.3")),
    ];
    for (platform, topology, spec, expected) in rows {
        let found = configuration(&spec, None);
        let status = status(&found, Some(&facts(platform, topology, None)));
        assert_eq!(json!(status.boot_image_skew_enforcement_status), expected, "{platform} {spec}");
    }
    let legacy = Facts { provisioning: Provisioning::Legacy, ..facts("BareMetal", high, None) };
    let enforced = |found: &MachineConfiguration, facts: &Facts| {
        json!(status(found, Some(facts)).boot_image_skew_enforcement_status)
    };
    let nothing = configuration(&json!({}), None);
    assert_eq!(enforced(&nothing, &legacy), manual("4.18.3"));
    // The version that was determined later stays.
    let known = json!({"bootImageSkewEnforcementStatus": automatic("4.20.0")});
    let found = configuration(&json!({}), Some(&known));
    assert_eq!(enforced(&found, &facts("AWS", high, None)), automatic("4.20.0"));
    // The feature is disabled.
    assert_eq!(enforced(&nothing, &facts("AWS", high, Some(&[]))), json!(null));
    let unknown = Facts { install_version: install("unknown"), ..facts("None", high, None) };
    assert_eq!(enforced(&nothing, &unknown), manual("0.0.0"));
    // A cluster without an Infrastructure has no such status.
    assert_eq!(status(&nothing, None).boot_image_skew_enforcement_status, None);
}

/// Returns the version that a cluster was installed with, from a version in its history.
fn install(version: &str) -> String {
    let history = json!([{"state": "Completed", "version": version}]);
    let version: ClusterVersion =
        serde_json::from_value(json!({"metadata": {}, "status": {"history": history}})).unwrap();
    Facts::new(&Infrastructure::default(), Some(&version), None, Provisioning::Release)
        .install_version
}

// covers: O41
#[test]
fn the_verbosity_is_that_of_the_operator_log_level() {
    let rows = [("Normal", 2), ("Debug", 4), ("Trace", 6), ("TraceAll", 8), ("", 2), ("new", 2)];
    for (level, expected) in rows {
        let found = configuration(&json!({"operatorLogLevel": level, "logLevel": "Trace"}), None);
        assert_eq!(verbosity(Some(&found)), expected, "{level}");
    }
    assert_eq!(verbosity(None), 2);
}

// covers: O42
#[test]
fn a_node_runs_the_config_of_its_pool_if_the_current_status_says_so() {
    let rows = [
        ("a", 2, 0, "Updated", true),
        ("a", 2, 1, "Updating", true),
        ("a", 2, 0, "Updating", false),
        ("a", 1, 1, "Updated", false),
        ("", 2, 1, "Updated", false),
        ("a", 2, 1, "Degraded", false),
    ];
    for (config, observed, updated, kind, expected) in rows {
        let condition =
            json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let pool = json!({
            "metadata": {"name": "master", "generation": 2},
            "spec": {"configuration": {"name": config}},
            "status": {"observedGeneration": observed, "updatedMachineCount": updated,
                "conditions": [condition]},
        });
        let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
        assert_eq!(serves_config(&pool), expected, "{config} {observed} {updated} {kind}");
    }
}
