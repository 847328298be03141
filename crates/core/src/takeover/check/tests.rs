//! Tests of the check on small clusters. Those on a recorded cluster are in the crate `mco`.

use serde_json::json;

use super::*;

fn report(snapshot: &Snapshot) -> Report {
    let own = Build { version: "0.1.0".to_owned(), hash: "abc".to_owned() };
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    check(snapshot, &own, &"v4-7ff".parse().unwrap(), now)
}

fn texts(report: &Report, effect: Effect) -> Vec<String> {
    let findings = report.findings.iter().filter(|finding| finding.effect == effect);
    findings.map(|finding| format!("{}: {}", finding.object, finding.text)).collect()
}

/// Returns a cluster of another operator.
fn cluster() -> Snapshot {
    let mut config = ControllerConfig::default();
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::GENERATED_BY_VERSION.set(annotations, &"v4".to_owned());
    Snapshot { controller_config: Some(config), ..Snapshot::default() }
}

#[test]
fn a_cluster_without_another_operator_needs_no_takeover() {
    let found = report(&Snapshot::default());
    assert_eq!(found.build, None);
    let text = "ControllerConfig/machine-config-controller: no other operator runs the cluster";
    assert_eq!(texts(&found, Effect::Keeps), [text]);
    assert_eq!(found.findings.len(), 1);
}

#[test]
fn only_a_leader_that_renews_its_lease_forbids_a_takeover() {
    for (holder, renewed, forbids) in [
        ("", "2026-01-01T00:00:59.000000Z", 0),
        ("a", "2026-01-01T00:00:59.000000Z", 1),
        ("a", "2026-01-01T00:00:00.000000Z", 0),
    ] {
        let lease = json!({"metadata": {"name": "machine-config"}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}});
        let lease = serde_json::from_value(lease).unwrap();
        let found = report(&Snapshot { leases: vec![lease], ..cluster() });
        assert_eq!(found.count(Effect::Forbids), forbids, "{holder:?} {renewed}: {found:#?}");
    }
}

#[test]
fn the_other_operator_must_be_stopped_for_good() {
    for (kind, management, replicas, forbids) in [
        ("Deployment", Management::Release, 0, 1),
        ("Deployment", Management::Overridden, 1, 1),
        ("Deployment", Management::Overridden, 0, 0),
        ("Deployment", Management::Other, 1, 1),
        ("DaemonSet", Management::Other, 3, 0),
    ] {
        let (kind, name) = (kind.to_owned(), "machine-config-operator".to_owned());
        let workload = Workload { kind, name, management, replicas };
        let found = report(&Snapshot { workloads: vec![workload.clone()], ..cluster() });
        assert_eq!(found.count(Effect::Forbids), forbids, "{workload:?}");
    }
}

#[test]
fn kept_objects_are_listed_with_what_they_lack() {
    let definition = |name: &str, usable| Definition { name: name.to_owned(), usable };
    let certificate = Certificate {
        name: "machine-config-server-ca".to_owned(),
        issuer: "root-ca".to_owned(),
        not_after: "2036-01-01T00:00:00Z".parse().unwrap(),
        key: KeyUse::Unreadable,
    };
    let found = report(&Snapshot {
        definitions: vec![
            definition("a", Ok(Vec::new())),
            definition("b", Ok(vec!["spec.c".to_owned()])),
            definition("d", Err("its kind is E".to_owned())),
        ],
        certificates: vec![certificate],
        ..cluster()
    });
    let forbids = ["CustomResourceDefinition/d: cannot be used: its kind is E"];
    assert_eq!(texts(&found, Effect::Forbids), forbids);
    let kept = texts(&found, Effect::Keeps);
    for text in [
        "CustomResourceDefinition/b: stays as it is, and lacks spec.c",
        "CustomResourceDefinition: 1 belong to the release of the cluster, and stay as they are",
        "Secret/machine-config-server-ca: is kept: issued by root-ca, valid until \
         2036-01-01T00:00:00Z",
    ] {
        assert!(kept.contains(&text.to_owned()), "{kept:#?}");
    }
    let changed = texts(&found, Effect::Changes);
    let text = "Secret/machine-config-server-ca: its key cannot be read: the certificate is never \
                renewed";
    assert!(changed.contains(&text.to_owned()), "{changed:#?}");
}
