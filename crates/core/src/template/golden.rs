//! Golden files: the base configs of a few clusters. `MCO_UPDATE_GOLDEN=1 cargo test -p mco-core
//! golden` writes them anew; the difference is what an upgrade would change on nodes.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::{Value, json};

use super::{
    tests::{made_with, on},
    *,
};
use crate::{kubelet::tls_settings, machine::Machine};

const SECRET: &str = r#"{"auths":{"registry.test":{"auth":"dXNlcjp3b3Jk"}}}"#;

fn clusters() -> Vec<(&'static str, Profile, Value)> {
    let metal = json!({"type": "BareMetal", "baremetal": {
        "apiServerInternalIPs": ["192.0.2.5"], "ingressIPs": ["192.0.2.6"],
    }});
    let mut aws = on(&json!({"type": "AWS", "aws": {"region": "test-1"}}), "HighlyAvailable");
    aws["clusterDNSIP"] = json!("172.30.0.10");
    aws["cloudProviderConfig"] = json!("[Global]\n");
    aws["additionalTrustBundle"] = json!(mco_api::Bytes::from(b"certificates\n".to_vec()));
    aws["proxy"] = json!({
        "httpProxy": "http://proxy.test:3128", "httpsProxy": "http://proxy.test:3128",
        "noProxy": ".cluster.local,.svc",
    });
    aws["images"] = json!({
        "machineConfigOperator": "registry.test/mco@sha256:0",
        "infraImageKey": "registry.test/pause@sha256:1",
    });
    let none = json!({"type": "None"});
    vec![
        ("plain-adopt", Profile::Adopt, json!({})),
        ("arbiter-adopt", Profile::Adopt, on(&metal, "HighlyAvailableArbiter")),
        ("plain", Profile::Full, json!({})),
        ("none", Profile::Full, on(&none, "HighlyAvailable")),
        ("baremetal", Profile::Full, on(&metal, "HighlyAvailable")),
        ("arbiter", Profile::Full, on(&metal, "HighlyAvailableArbiter")),
        ("two-nodes", Profile::Full, on(&metal, "DualReplica")),
        ("single-node", Profile::Full, on(&none, "SingleReplica")),
        ("aws-proxy", Profile::Full, aws),
    ]
}

fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Extent of a printed config.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Digests,
    Contents,
}

fn print(configs: &[MachineConfig], detail: Detail) -> String {
    let mut out = String::new();
    let mut part = |title: String, contents: &str| match detail {
        Detail::Digests => writeln!(out, "{title} {}", digest(contents.as_bytes())).unwrap(),
        Detail::Contents => writeln!(out, "=== {title}\n{contents}").unwrap(),
    };
    for config in configs {
        let machine = Machine::read(config).expect("a base config is valid");
        part(
            machine.name.clone(),
            config.spec.config.as_ref().map_or("", |config| {
                // The digest of the whole covers order and enablement; the contents follow.
                if detail == Detail::Digests { config.get() } else { "" }
            }),
        );
        for file in &machine.config.storage.files {
            let url = file.contents.source.clone().unwrap();
            let text = String::from_utf8(data_url::decode(&url).unwrap()).unwrap();
            part(format!("  {:04o} {}", file.mode.unwrap(), file.path), &text);
        }
        for unit in &machine.config.systemd.units {
            let enabled = if unit.enabled == Some(true) { "enabled" } else { "-" };
            part(
                format!("  {enabled} {}", unit.name),
                unit.contents.as_deref().unwrap_or_default(),
            );
            for dropin in &unit.dropins {
                let contents = dropin.contents.as_deref().unwrap_or_default();
                part(format!("  drop-in {}/{}", unit.name, dropin.name), contents);
            }
        }
    }
    out
}

#[expect(clippy::disallowed_methods, reason = "the test reads and writes files of the repository")]
fn compare(name: &str, found: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/templates");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("MCO_UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} differs; set MCO_UPDATE_GOLDEN=1 to write it", path.display());
}

#[test]
fn golden_base_configs_of_each_cluster() {
    let (tree, tls) = (TemplateTree::built_in(), tls_settings(None));
    for (name, profile, spec) in clusters() {
        let made = made_with(&tree, &profile, spec, Some(SECRET), &tls).unwrap();
        compare(name, &print(&made, Detail::Digests));
        if name == "aws-proxy" {
            let workers: Vec<MachineConfig> = made
                .into_iter()
                .filter(|it| it.metadata.name.as_deref().is_some_and(|it| it.contains("worker")))
                .collect();
            compare("aws-proxy-worker-contents", &print(&workers, Detail::Contents));
        }
    }
}

#[test]
fn the_same_cluster_gives_the_same_bytes() {
    let (tree, tls) = (TemplateTree::built_in(), tls_settings(None));
    for (_, profile, spec) in clusters() {
        let once = made_with(&tree, &profile, spec.clone(), Some(SECRET), &tls).unwrap();
        let again = made_with(&tree, &profile, spec, Some(SECRET), &tls).unwrap();
        assert_eq!(serde_json::to_string(&once).unwrap(), serde_json::to_string(&again).unwrap());
    }
}
