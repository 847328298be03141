//! Tests of the files for registries, mirrors and signatures.

use serde::Serialize;
use serde_json::{Value, json};

use super::{containerd::ContainerdFiles, *};

const RELEASE: &str =
    "quay.io/ocp/release@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const BASE: BaseFiles<'static> = BaseFiles {
    registries: Some("unqualified-search-registries = [\"docker.io\"]\n"),
    policy: Some(r#"{"default": [{"type": "insecureAcceptAnything"}]}"#),
};

/// Settings with these registry sources.
fn sources(sources: impl Serialize) -> ClusterSettings {
    let image = json!({"spec": {"registrySources": sources}});
    let image = Some(serde_json::from_value(image).expect("an Image"));
    ClusterSettings { image, ..ClusterSettings::default() }
}

fn with_mirrors(
    mut settings: ClusterSettings,
    digest: impl Serialize,
    tag: impl Serialize,
) -> ClusterSettings {
    let set = json!({"metadata": {"name": "d"}, "spec": {"imageDigestMirrors": digest}});
    settings.digest_mirror_sets = vec![serde_json::from_value(set).expect("a mirror set")];
    let set = json!({"metadata": {"name": "t"}, "spec": {"imageTagMirrors": tag}});
    settings.tag_mirror_sets = vec![serde_json::from_value(set).expect("a mirror set")];
    settings
}

/// A policy of the cluster for these scopes.
fn cluster_policy(scopes: impl Serialize, policy: impl Serialize) -> ClusterSettings {
    let policy = json!({"metadata": {"name": "p"}, "spec": {"scopes": scopes, "policy": policy}});
    let policy = serde_json::from_value(policy).expect("a policy");
    ClusterSettings { cluster_image_policies: vec![policy], ..ClusterSettings::default() }
}

fn add_namespace_policy(settings: &mut ClusterSettings, namespace: &str, scopes: impl Serialize) {
    let policy = json!({
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"scopes": scopes, "policy": key()},
    });
    settings.image_policies.push(serde_json::from_value(policy).expect("a policy"));
}

fn key() -> Value {
    json!({"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "aw=="}}})
}

fn made(settings: &ClusterSettings) -> Result<Vec<(String, String)>, String> {
    let config = ImageConfig::read(settings, Some(RELEASE)).map_err(|error| chain(&error))?;
    let files = config.crio_files(BASE).map_err(|error| chain(&error))?;
    let text = |file: &GeneratedFile| String::from_utf8(file.contents.clone()).expect("UTF-8");
    Ok(files.iter().map(|file| (file.path.clone(), text(file))).collect())
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

fn file(settings: &ClusterSettings, path: &str) -> String {
    let files = made(settings).expect("files");
    let found = files.into_iter().find(|(found, _)| found == path);
    found.unwrap_or_else(|| panic!("no {path}")).1
}

fn registries(settings: &ClusterSettings) -> RegistriesConf {
    RegistriesConf::parse(&file(settings, REGISTRIES_CONF)).expect("TOML")
}

fn policy(settings: &ClusterSettings) -> Value {
    serde_json::from_str(&file(settings, POLICY_JSON)).expect("JSON")
}

// covers: REG-1
#[test]
fn mirrors_of_all_kinds_are_written() {
    let mut settings = with_mirrors(
        sources(json!({})),
        json!([{"source": "r.test/a", "mirrors": ["m1.test/a"]}]),
        json!([{"source": "r.test/a", "mirrors": ["m2.test/a"]}]),
    );
    let older = json!({"spec": {"repositoryDigestMirrors": [
        {"source": "r.test/a", "mirrors": ["m3.test/a"]}]}});
    settings.content_source_policies = vec![serde_json::from_value(older).expect("a policy")];
    let expected = "unqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"\"\n\
        additional-layer-store-auth-helper = \"\"\n\n[[registry]]\n  prefix = \"\"\n  \
        location = \"r.test/a\"\n\n  [[registry.mirror]]\n    location = \"m1.test/a\"\n    \
        pull-from-mirror = \"digest-only\"\n\n  [[registry.mirror]]\n    \
        location = \"m3.test/a\"\n    pull-from-mirror = \"digest-only\"\n\n  \
        [[registry.mirror]]\n    location = \"m2.test/a\"\n    pull-from-mirror = \"tag-only\"\n";
    assert_eq!(file(&settings, REGISTRIES_CONF), expected);
}

// covers: REG-3
#[test]
fn a_source_that_is_never_contacted_is_blocked() {
    let never = |mirror: &str| json!([{"source": "r.test", "mirrors": [mirror], "mirrorSourcePolicy": "NeverContactSource"}]);
    let settings = with_mirrors(sources(json!({})), never("m.test"), json!([]));
    assert!(registries(&settings).registries()[0].blocked);
    let settings = with_mirrors(sources(json!({})), never("r.test"), json!([]));
    assert_eq!(
        made(&settings),
        Err("could not update registries config with new changes: cannot set mirrorSourcePolicy: \
             NeverContactSource if the source \"r.test\" is one of the mirrors"
            .to_owned())
    );
    let allow = json!([{"source": "r.test", "mirrors": ["m.test"]}]);
    let settings = with_mirrors(sources(json!({})), never("m.test"), allow);
    let error = made(&settings).expect_err("a conflict");
    assert!(error.contains("conflicting mirrorSourcePolicy is set for the same source"), "{error}");
}

// covers: REG-4
#[test]
fn rules_apply_to_the_parts_of_a_registry() {
    let settings = with_mirrors(
        sources(json!({
            "insecureRegistries": ["*.i.test", "r.test/a"],
            "blockedRegistries": ["b.test", "x.i.test"],
        })),
        json!([
            {"source": "r.test", "mirrors": ["m.i.test/r"]},
            {"source": "b.test/part", "mirrors": ["m.test"]},
        ]),
        json!([]),
    );
    let conf = registries(&settings);
    let at = |scope: &str| conf.registries().iter().find(|one| one.scope() == scope).expect(scope);
    assert!(at("b.test/part").blocked && at("x.i.test").at.insecure);
    assert!(at("r.test").mirrors[0].insecure && !at("r.test").at.insecure);
    let inherited = &at("r.test/a").mirrors[0];
    assert_eq!((inherited.location.as_str(), inherited.insecure), ("m.i.test/r/a", true));
}

// covers: REG-5
#[test]
fn the_repository_of_the_payload_cannot_be_blocked_without_a_mirror() {
    let blocked = || sources(json!({"blockedRegistries": ["quay.io", "b.test"]}));
    let config = ImageConfig::read(&blocked(), Some(RELEASE)).expect("settings");
    assert_eq!(config.lists().blocked.as_deref(), Some(["b.test".to_owned()].as_slice()));
    assert_eq!(
        config.lists().warning().as_deref(),
        Some(
            "error adding [\"quay.io\"] to blocked registries, cannot block the repository being \
             used by the payload"
        )
    );
    let mirrors = json!([{"source": "quay.io/ocp", "mirrors": ["m.test/ocp"]}]);
    let settings = with_mirrors(blocked(), mirrors, json!([]));
    let config = ImageConfig::read(&settings, Some(RELEASE)).expect("settings");
    assert_eq!(config.lists().warning(), None);
    assert_eq!(config.lists().allowed, Some(vec!["quay.io/ocp/release".to_owned()]));
    // Without a payload to protect, everything is blocked.
    let config = ImageConfig::read(&blocked(), None).expect("settings");
    assert_eq!(config.lists().blocked.as_ref().map(Vec::len), Some(2));
}

// The reference drops all lists here, so that blocked registries would be reachable.
#[test]
fn a_payload_without_a_name_at_its_mirror_is_refused() {
    let mirrors = json!([{"source": "quay.io/ocp/release", "mirrors": ["m.test"]}]);
    let blocked = sources(json!({"blockedRegistries": ["quay.io"]}));
    let error = made(&with_mirrors(blocked, mirrors, json!([]))).expect_err("no valid name");
    assert!(error.ends_with("rewriting reference: repository name must be canonical"), "{error}");
}

// covers: REG-6
#[test]
fn search_registries_have_a_drop_in() {
    let settings = sources(json!({"containerRuntimeSearchRegistries": ["a.test", "b.test"]}));
    let expected = "unqualified-search-registries = [\"a.test\", \"b.test\"]\n\
        short-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n";
    assert_eq!(made(&settings), Ok(vec![(SEARCH_DROP_IN.to_owned(), expected.to_owned())]));
    assert_eq!(made(&sources(json!({}))), Ok(vec![]));
    assert!(ImageConfig::read(&sources(json!({})), None).expect("settings").is_empty());
}

#[test]
fn a_registries_file_of_another_program_is_extended() {
    let settings = sources(json!({"blockedRegistries": ["b.test"]}));
    let config = ImageConfig::read(&settings, None).expect("settings");
    let files = config.crio_files(BaseFiles::default()).expect("files");
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [REGISTRIES_DROP_IN, POLICY_JSON]);
    let text = String::from_utf8_lossy(&files[0].contents);
    assert!(!text.contains("unqualified-search-registries"), "{text}");
}

// The reference writes such a file, which the container engine refuses as a whole.
#[test]
fn a_registry_with_a_scheme_is_refused() {
    let settings = sources(json!({"insecureRegistries": ["http://i.test"]}));
    let config = ImageConfig::read(&settings, None).expect("settings");
    let error = config.check().expect_err("a scheme").to_string();
    assert!(error.starts_with("insecureRegistries has the entry \"http://i.test\""), "{error}");
}

// covers: POL-1
#[test]
fn allowed_registries_reject_all_others_and_blocked_ones_accept_them() {
    let accept = json!([{"type": "insecureAcceptAnything"}]);
    let reject = json!([{"type": "reject"}]);
    let found = policy(&sources(json!({"allowedRegistries": ["a.test", "a.test/1/2/3"]})));
    assert_eq!(found["default"], reject);
    assert_eq!(
        found["transports"],
        json!({"docker": {"a.test": accept, "a.test/1/2/3": accept}, "atomic": {"a.test": accept}})
    );
    let found = policy(&sources(json!({"blockedRegistries": ["b.test"]})));
    assert_eq!(found["default"], accept);
    assert_eq!(found["transports"]["docker"], json!({"b.test": reject}));
}

// covers: POL-2
#[test]
fn every_root_of_trust_and_identity_is_written() {
    let fulcio = json!({"policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": {
        "fulcioCAData": "Yw==", "rekorKeyData": "cg==",
        "fulcioSubject": {"oidcIssuer": "https://o", "signedEmail": "a@b"}}});
    let pki = json!({"policyType": "PKI", "pki": {
        "caRootsData": "Yw==", "caIntermediatesData": "aQ==",
        "pkiCertificateSubject": {"email": "a@b", "hostname": "h"}}});
    let rows = [
        (
            key()["rootOfTrust"].clone(),
            json!(null),
            json!({"keyData": "aw==",
            "signedIdentity": {"type": "matchRepoDigestOrExact"}}),
        ),
        (
            fulcio,
            json!({"matchPolicy": "MatchRepository"}),
            json!({
            "fulcio": {"caData": "Yw==", "oidcIssuer": "https://o", "subjectEmail": "a@b"},
            "rekorPublicKeyData": "cg==", "signedIdentity": {"type": "matchRepository"}}),
        ),
        (
            pki,
            json!({"matchPolicy": "RemapIdentity",
            "remapIdentity": {"prefix": "m.test", "signedPrefix": "s.test/x"}}),
            json!({
            "pki": {"caRootsData": "Yw==", "caIntermediatesData": "aQ==", "subjectEmail": "a@b",
                "subjectHostname": "h"},
            "signedIdentity": {"type": "remapIdentity", "prefix": "m.test",
                "signedPrefix": "s.test/x"}}),
        ),
        (
            key()["rootOfTrust"].clone(),
            json!({"matchPolicy": "ExactRepository",
            "exactRepository": {"repository": "r.test/a"}}),
            json!({"keyData": "aw==",
            "signedIdentity": {"type": "exactRepository", "dockerRepository": "r.test/a"}}),
        ),
    ];
    for (root, identity, mut expected) in rows {
        let settings = cluster_policy(
            json!(["s.test"]),
            json!({"rootOfTrust": root, "signedIdentity": identity}),
        );
        expected["type"] = json!("sigstoreSigned");
        assert_eq!(policy(&settings)["transports"]["docker"]["s.test"], json!([expected]));
    }
    let settings = cluster_policy(json!(["s.test"]), json!({"rootOfTrust": {"policyType": "PKI"}}));
    assert_eq!(
        made(&settings),
        Err("ClusterImagePolicy p: pki must be set if policyType is PKI".to_owned())
    );
}

// covers: POL-3
#[test]
fn each_namespace_has_its_own_policy_file() {
    let mut settings = cluster_policy(json!(["s.test"]), key());
    add_namespace_policy(&mut settings, "ns2", json!(["t.test"]));
    add_namespace_policy(&mut settings, "ns1", json!(["u.test"]));
    let files = made(&settings).expect("files");
    let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            POLICY_JSON,
            SIGSTORE_REGISTRIES,
            "/etc/crio/policies/ns1.json",
            "/etc/crio/policies/ns2.json"
        ]
    );
    let first: Value = serde_json::from_str(&files[2].1).expect("JSON");
    let scopes: Vec<&String> =
        first["transports"]["docker"].as_object().expect("scopes").keys().collect();
    assert_eq!(scopes, ["s.test", "u.test"]);
}

// covers: POL-4
#[test]
fn a_scope_of_the_cluster_is_not_that_of_a_namespace() {
    let mut settings = cluster_policy(json!(["s.test"]), key());
    add_namespace_policy(&mut settings, "ns1", json!(["s.test/x", "t.test"]));
    let config = ImageConfig::read(&settings, None).expect("settings");
    let conflict = &config.conflicts()[0];
    assert_eq!((conflict.namespace.as_str(), conflict.name.as_str()), ("ns1", "p"));
    assert_eq!(
        conflict.message(),
        "has conflicting scope(s) [\"s.test/x\"] that equal to or nest inside existing \
         clusterimagepolicy, only policy from clusterimagepolicy scope(s) will be applied"
    );
}

// covers: POL-5
#[test]
fn signatures_are_looked_up_at_the_mirrors_too() {
    let settings = cluster_policy(json!(["s.test", "*.d.test"]), key());
    let settings = with_mirrors(
        settings,
        json!([{"source": "s.test/x", "mirrors": ["m10.test/x", "m2.test/x"]}]),
        json!([{"source": "*.d.test", "mirrors": ["m.test/d"]}]),
    );
    let keys = ["'*.d.test'", "m.test/d", "m2.test/x", "m10.test/x", "s.test", "s.test/x"];
    let entry = |key: &&str| format!("  {key}:\n    use-sigstore-attachments: true\n");
    let expected: String = keys.iter().map(entry).collect();
    assert_eq!(file(&settings, SIGSTORE_REGISTRIES), format!("docker:\n{expected}"));
}

// covers: POL-6
#[test]
fn policies_must_agree_with_allowed_and_blocked_registries() {
    let policies = |list: Value| ClusterSettings {
        cluster_image_policies: cluster_policy(json!(["s.test/x"]), key()).cluster_image_policies,
        ..sources(list)
    };
    let start = "could not update policy json with new changes: ";
    for (list, expected) in [
        (
            json!({"allowedRegistries": ["a.test"]}),
            "clusterimagePolicy configured for the scope s.test/x is not nested inside \
             allowedRegistries",
        ),
        (
            json!({"blockedRegistries": ["s.test"]}),
            "clusterimagePolicy configured for the scope s.test/x is nested inside \
             blockedRegistries",
        ),
        (
            json!({"blockedRegistries": ["b.test"], "allowedRegistries": ["s.test"]}),
            "invalid images config: only one of AllowedRegistries or BlockedRegistries may be \
             specified",
        ),
    ] {
        assert_eq!(made(&policies(list)), Err(format!("{start}{expected}")));
    }
    let mut settings = sources(json!({"allowedRegistries": ["a.test"]}));
    add_namespace_policy(&mut settings, "ns1", json!(["t.test"]));
    assert_eq!(
        made(&settings),
        Err("could not update namespace policy JSON from imagepolicy: imagePolicy configured for \
             the scope t.test is not nested inside allowedRegistries"
            .to_owned())
    );
}

fn containerd(settings: &ClusterSettings) -> ContainerdFiles {
    let config = ImageConfig::read(settings, Some(RELEASE)).expect("settings");
    config.containerd_files().expect("files")
}

#[test]
fn containerd_gets_a_file_for_each_registry() {
    let settings = with_mirrors(
        sources(json!({"insecureRegistries": ["m2.test:5000"], "blockedRegistries": ["b.test"]})),
        json!([
            {"source": "docker.io", "mirrors": ["m1.test", "m2.test:5000/hub"]},
            {"source": "r.test/a", "mirrors": ["m1.test/a"]},
        ]),
        json!([{"source": "docker.io", "mirrors": ["m1.test"],
            "mirrorSourcePolicy": "AllowContactingSource"}]),
    );
    let made = containerd(&settings);
    let text = |file: &GeneratedFile| String::from_utf8(file.contents.clone()).expect("UTF-8");
    let files: Vec<(&str, String)> = made
        .files
        .iter()
        .map(|file| {
            let path = file.path.strip_prefix("/etc/containerd/certs.d/").expect("the directory");
            (path, text(file))
        })
        .collect();
    let hub = "server = \"https://registry-1.docker.io\"\n\n[host]\n  \
        [host.\"https://m1.test\"]\n    capabilities = [\"pull\", \"resolve\"]\n  \
        [host.\"https://m2.test:5000/v2/hub\"]\n    capabilities = [\"pull\"]\n    \
        skip_verify = true\n    override_path = true\n  \
        [host.\"http://m2.test:5000/v2/hub\"]\n    capabilities = [\"pull\"]\n    \
        override_path = true\n";
    let insecure = "server = \"https://m2.test:5000\"\n\n[host]\n  \
        [host.\"https://m2.test:5000\"]\n    capabilities = [\"pull\", \"resolve\"]\n    \
        skip_verify = true\n  [host.\"http://m2.test:5000\"]\n    \
        capabilities = [\"pull\", \"resolve\"]\n";
    let part = "server = \"https://r.test\"\n\n[host]\n  [host.\"https://m1.test\"]\n    \
        capabilities = [\"pull\"]\n";
    let expected = [
        ("b.test/hosts.toml", "server = \"https://b.test\"\ncapabilities = [\"push\"]\n"),
        ("docker.io/hosts.toml", hub),
        ("m2.test:5000/hosts.toml", insecure),
        ("r.test/hosts.toml", part),
    ]
    .map(|(path, text)| (path, text.to_owned()));
    assert_eq!(files, expected);
    assert_eq!(made.without_effect, []);
}

#[test]
fn settings_that_containerd_does_not_have_are_named() {
    let mut settings = with_mirrors(
        sources(json!({
            "insecureRegistries": ["i.test/part"], "blockedRegistries": ["*.b.test"],
            "containerRuntimeSearchRegistries": ["s.test"],
        })),
        json!([
            {"source": "r.test/a", "mirrors": ["m.test/b"],
                "mirrorSourcePolicy": "NeverContactSource"},
            {"source": "*.d.test", "mirrors": ["m.test"]},
        ]),
        json!([{"source": "r.test/t", "mirrors": ["m.test/t"]}]),
    );
    settings.cluster_image_policies =
        cluster_policy(json!(["s.test"]), key()).cluster_image_policies;
    let made = containerd(&settings);
    let named: Vec<&str> = made.without_effect.iter().map(|one| one.setting.as_str()).collect();
    assert_eq!(
        named,
        [
            "mirrors of *.d.test",
            "mirror m.test/b of r.test/a",
            "NeverContactSource of r.test/a",
            "mirror m.test/t of r.test/t",
            "insecureRegistries i.test/part",
            "blockedRegistries *.b.test",
            "ClusterImagePolicy scope s.test",
            "containerRuntimeSearchRegistries s.test",
        ]
    );
}
