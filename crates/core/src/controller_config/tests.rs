//! Tests of the ControllerConfig that follows from facts.

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use mco_api::openshift::cluster::ConfigMapName;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

fn object<K: DeserializeOwned>(spec: impl Serialize, status: impl Serialize) -> K {
    let object = json!({"metadata": {"name": "cluster"}, "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

fn network(services: &[&str]) -> Network {
    object(json!({"serviceNetwork": services, "networkType": "OVNKubernetes"}), json!({}))
}

/// Returns the facts of an OpenShift cluster on a platform.
fn openshift(platform: &str) -> Facts {
    Facts {
        origin: Origin::OpenShift,
        infrastructure: Some(object(
            json!({"platformSpec": {"type": platform}}),
            json!({"apiServerInternalURI": "https://api-int.c.test:6443",
                "platformStatus": {"type": platform}, "controlPlaneTopology": "HighlyAvailable"}),
        )),
        network: Some(network(&["172.30.0.0/16"])),
        dns: Some(object(json!({"baseDomain": "c.test"}), json!({}))),
        authorities: "authority".to_owned(),
        ..Facts::default()
    }
}

fn add(facts: &mut Facts, source: &Source, data: &[(&str, &str)]) {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    let map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    facts.config_maps.insert(source.clone(), &map);
}

fn certificate(common: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem().replace('\r', "")
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8(bytes.as_slice().to_vec()).unwrap()
}

fn of_administrator(name: &'static str) -> Source {
    Source { namespace: source::CONFIG.into(), name: name.into() }
}

fn fails(facts: &Facts) -> String {
    wanted(facts).expect_err("the facts are refused").to_string()
}

// covers: O05
#[test]
fn the_dns_address_and_the_families_follow_the_service_networks() {
    let rows = [
        (&["172.30.0.0/16"][..], "172.30.0.10", "IPv4"),
        (&["172.30.5.9/16"], "172.30.0.10", "IPv4"),
        (&["fd02::/112"], "fd02::a", "IPv6"),
        (&["172.30.0.0/16", "fd02::/112"], "172.30.0.10", "DualStack"),
        (&["fd02::/112", "172.30.0.0/16"], "fd02::a", "DualStackIPv6Primary"),
        (&["10.0.0.0/28"], "10.0.0.10", "IPv4"),
    ];
    for (networks, dns, families) in rows {
        let facts = Facts { network: Some(network(networks)), ..openshift("None") };
        let spec = wanted(&facts).unwrap().spec;
        assert_eq!((spec.cluster_dns_ip.as_str(), spec.ip_families.as_str()), (dns, families));
    }
    let rows = [
        (&[][..], "service cidr is empty in Network"),
        (&["10.0.0.0/29"], "10.0.0.0/29 has no tenth address"),
        (&["10.0.0.0"], "\"10.0.0.0\" is no CIDR"),
        (&["10.0.0.0/16", "fd02::/129"], "\"fd02::/129\" is no CIDR"),
    ];
    for (networks, reason) in rows {
        let facts = Facts { network: Some(network(networks)), ..openshift("None") };
        assert_eq!(fails(&facts), format!("Network cluster: spec.serviceNetwork: {reason}"));
    }
    let error = fails(&Facts { network: None, ..openshift("None") });
    assert!(
        error.starts_with("Network cluster (config.openshift.io/v1) does not exist"),
        "{error}"
    );
}

// covers: O05
#[test]
fn a_plain_cluster_is_known_by_its_services() {
    let services = |dns: &[&str], kubernetes: &[&str]| Services {
        dns: dns.iter().map(ToString::to_string).collect(),
        kubernetes: kubernetes.iter().map(ToString::to_string).collect(),
    };
    let rows = [
        (services(&["10.96.0.10"], &["10.96.0.1"]), "10.96.0.10", "IPv4"),
        (services(&["fd00::a"], &["fd00::1"]), "fd00::a", "IPv6"),
        (services(&["10.96.0.10", "fd00::a"], &["10.96.0.1"]), "10.96.0.10", "DualStack"),
        (services(&["fd00::a", "10.0.0.10"], &["fd00::1"]), "fd00::a", "DualStackIPv6Primary"),
        (services(&["None"], &[]), "", ""),
    ];
    for (services, dns, families) in rows {
        let facts = Facts { services, authorities: "ca".to_owned(), ..Facts::default() };
        let made = wanted(&facts).unwrap();
        let spec = &made.spec;
        assert_eq!((spec.cluster_dns_ip.as_str(), spec.ip_families.as_str()), (dns, families));
        assert_eq!((&spec.infra, &spec.pull_secret, &spec.proxy), (&None, &None, &None));
        assert_eq!(text(&spec.root_ca_data), "ca");
        let new = made.new_spec();
        assert_eq!(new.platform, "none");
        assert_eq!(new.ip_families, if families.is_empty() { "IPv4" } else { families });
    }
    let url = "https://api.c.test:6443".to_owned();
    let spec = wanted(&Facts { api_server_url: url.clone(), ..Facts::default() }).unwrap().spec;
    let status = spec.infra.unwrap().status.unwrap();
    assert_eq!(status.api_server_internal_uri, url);
    assert_eq!(status.platform_status.unwrap().kind, PlatformType::None);
}

// covers: O06
#[test]
fn the_network_type_is_that_of_the_migration_then_of_the_status_then_of_the_spec() {
    let spec = json!({"serviceNetwork": ["10.0.0.0/16"], "networkType": "Spec"});
    let mtu = json!({"network": {"from": 1400, "to": 9000}});
    let rows = [
        (json!({}), "Spec", Value::Null),
        (json!({"migration": {"networkType": "New", "mtu": mtu}}), "Spec", mtu.clone()),
        (json!({"networkType": "Status"}), "Status", Value::Null),
        (json!({"networkType": "Status", "migration": {"networkType": "New"}}), "New", Value::Null),
        (json!({"networkType": "Status", "migration": {"mtu": mtu}}), "Status", mtu.clone()),
    ];
    for (status, kind, migration) in rows {
        let network = Some(object(spec.clone(), status));
        let made = wanted(&Facts { network, ..openshift("None") }).unwrap().spec;
        assert_eq!(made.network_type, kind);
        assert_eq!(json!(made.network), json!({"mtuMigration": migration}));
    }
}

// covers: O07
#[test]
fn trust_bundles_are_concatenated_and_checked() {
    let (user, proxy) = (certificate("user"), certificate("proxy"));
    let mut facts = openshift("None");
    let named = |name: &str| {
        let mut proxy = Proxy::default();
        proxy.spec.trusted_ca = ConfigMapName { name: name.to_owned() };
        Some(proxy)
    };
    let bundle = |facts: &Facts| {
        let bundle = wanted(facts).unwrap().spec.additional_trust_bundle;
        bundle.as_ref().map(text).unwrap_or_default()
    };
    assert_eq!(bundle(&facts), "");
    add(&mut facts, &source::USER_CA, &[("ca-bundle.crt", user.trim_end())]);
    assert_eq!(bundle(&facts), user);
    facts.proxy = named("user-ca-bundle");
    assert_eq!(bundle(&facts), user, "the same ConfigMap counts once");
    facts.proxy = named("corporate");
    let error = fails(&facts);
    assert!(error.starts_with("ConfigMap openshift-config/corporate does not exist"), "{error}");
    assert!(error.contains("spec.trustedCA of Proxy cluster needs it"), "{error}");
    let source = of_administrator("corporate");
    add(&mut facts, &source, &[("ca-bundle.crt", &proxy)]);
    assert_eq!(bundle(&facts), format!("{user}{proxy}"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    // Of several blocks one has to be a certificate.
    let damaged = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let mixed = format!("# a comment\n{broken}{damaged}{proxy}");
    add(&mut facts, &source, &[("ca-bundle.crt", &mixed)]);
    assert_eq!(bundle(&facts), format!("{user}{mixed}"));
    add(&mut facts, &source, &[("ca-bundle.crt", "")]);
    assert_eq!(bundle(&facts), user, "an empty bundle is no fault");
    for (key, data) in [("ca-bundle.crt", broken), ("ca-bundle.crt", "text"), ("other", &proxy)] {
        add(&mut facts, &source, &[(key, data)]);
        let error = fails(&facts);
        let expected = "configmap openshift-config/corporate doesn't have a valid PEM bundle";
        assert!(error.starts_with(expected), "{error}");
    }
}

// covers: O08
#[test]
fn clouds_need_their_configuration() {
    for platform in ["Azure", "GCP", "OpenStack", "VSphere"] {
        let mut facts = openshift(platform);
        let error = fails(&facts);
        let expected = "ConfigMap openshift-config-managed/kube-cloud-config does not exist";
        assert!(error.starts_with(expected) && error.contains(platform), "{error}");
        add(&mut facts, &CLOUD_CONFIG, &[("other", "")]);
        assert!(fails(&facts).contains("cloud.conf: the key is missing"));
        add(&mut facts, &CLOUD_CONFIG, &[("cloud.conf", "a"), ("ca-bundle.pem", "b")]);
        let spec = wanted(&facts).unwrap().spec;
        assert_eq!(spec.cloud_provider_config, "a");
        assert_eq!(text(&spec.cloud_provider_ca_data.unwrap()), "b");
    }
    let mut facts = openshift("AWS");
    assert_eq!(wanted(&facts).unwrap().spec.platform, "aws");
    let infrastructure = facts.infrastructure.as_mut().unwrap();
    infrastructure.spec.cloud_config = serde_json::from_value(json!({"name": "mine"})).unwrap();
    assert!(fails(&facts).contains("spec.cloudConfig of Infrastructure cluster needs it"));
    add(&mut facts, &CLOUD_CONFIG, &[("other", "")]);
    assert_eq!(wanted(&facts).unwrap().spec.cloud_provider_config, "");
    // Among the settings of another cluster an Infrastructure names the platform only.
    let facts = Facts { origin: Origin::Other, ..openshift("OpenStack") };
    assert_eq!(wanted(&facts).unwrap().spec.platform, "openstack");
}

// covers: O09
#[test]
fn certificates_of_registries_are_merged_and_those_of_the_administrator_win() {
    let mut facts = openshift("None");
    add(&mut facts, &source::REGISTRY_CA, &[("a..5000", "managed a"), ("b", "managed b")]);
    let mut image = Image::default();
    image.spec.additional_trusted_ca.name = "mine".to_owned();
    facts.image = Some(image);
    let made = wanted(&facts).unwrap();
    assert_eq!(made.warnings.len(), 1, "a missing ConfigMap is a warning: {:?}", made.warnings);
    let source = of_administrator("mine");
    // The value of `b` is base64.
    let encoded = json!(ByteString(b"user b".to_vec()));
    add(&mut facts, &source, &[("b", encoded.as_str().unwrap()), ("c", "user c")]);
    let made = wanted(&facts).unwrap();
    assert_eq!(made.warnings, [""; 0]);
    let files = |list: &[spec::ImageRegistryBundle]| -> Vec<String> {
        list.iter().map(|one| format!("{}={}", one.file, text(&one.data))).collect()
    };
    assert_eq!(files(&made.spec.image_registry_bundle_user_data), ["b=user b", "c=user c"]);
    assert_eq!(files(&made.spec.image_registry_bundle_data), ["a..5000=managed a", "b=managed b"]);
    let merged = |facts: &Facts| {
        let (source, merged) = merged_registry_ca(facts);
        assert_eq!(source.name, "merged-trusted-image-registry-ca");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        merged.into_iter().map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>()
    };
    assert_eq!(merged(&facts), ["a..5000=managed a", "b=user b", "c=user c"]);
    facts.image = None;
    assert_eq!(merged(&facts), ["a..5000=managed a", "b=managed b"]);
    add(&mut facts, &source::REGISTRY_CA, &[]);
    assert_eq!(merged(&facts), [""; 0], "the last certificate disappears too");
}

// covers: O10
#[test]
fn the_root_ca_is_that_of_the_config_server_then_that_of_the_installer() {
    let mut facts = openshift("None");
    let root = |facts: &Facts| text(&wanted(facts).unwrap().spec.root_ca_data);
    assert_eq!(root(&facts), "authority");
    add(&mut facts, &source::ROOT_CA, &[("ca.crt", "installer")]);
    assert_eq!(root(&facts), "installer");
    add(&mut facts, &source::server_ca(label::NAMESPACE), &[("ca-bundle.crt", "server")]);
    assert_eq!(root(&facts), "server");
    assert_eq!(server_ca(&facts).as_deref(), Some("server"));
    facts.origin = Origin::Other;
    assert_eq!(root(&facts), "authority");
}

// covers: O11
#[test]
fn the_kubelet_ca_is_the_initial_one_with_the_current_signer_until_the_installation_is_complete() {
    let (other, old) = (certificate("other"), certificate("kube-apiserver-to-kubelet-signer@1"));
    let new = certificate("kube-apiserver-to-kubelet-signer@2");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let mut facts = openshift("None");
    let ca = |facts: &Facts| text(&wanted(facts).unwrap().spec.kube_api_server_serving_ca_data);
    assert_eq!(ca(&facts), "authority");
    let initial = format!("{old}{broken}{other}");
    add(&mut facts, &source::INITIAL_CA, &[("ca-bundle.crt", &initial)]);
    assert_eq!(ca(&facts), initial);
    add(&mut facts, &source::KUBELET_SIGNER_CA, &[("ca-bundle.crt", &new)]);
    assert_eq!(ca(&facts), format!("{other}{new}"));
    add(&mut facts, &source::KUBELET_CLIENT_CA, &[("ca-bundle.crt", "current")]);
    add(&mut facts, &source::BOOTSTRAP, &[("status", "running")]);
    assert_eq!(ca(&facts), format!("{other}{new}"));
    add(&mut facts, &source::BOOTSTRAP, &[("status", "complete")]);
    assert_eq!(ca(&facts), "current");
}

// covers: O12
#[test]
fn credentials_of_the_internal_registry_are_merged() {
    const INTERNAL: &str = "image-registry.openshift-image-registry.svc:5000";
    let mut facts = openshift("None");
    let global = json!({"auths": {"quay.test": {"auth": "Z2xvYmFs"}}}).to_string();
    let puller = json!({INTERNAL: {"auth": "cHVsbGVy"}}).to_string();
    let complete = Credentials {
        has_registry: true,
        puller: Some(vec![("puller-dockercfg".to_owned(), puller.into_bytes())]),
        global: Some(("kubernetes.io/dockerconfigjson".to_owned(), global.into_bytes())),
    };
    facts.credentials = complete.clone();
    let secret = |facts: &Facts| -> Value {
        let secret = wanted(facts).unwrap().spec.internal_registry_pull_secret;
        secret.map_or(Value::Null, |it| serde_json::from_slice(it.as_slice()).unwrap())
    };
    assert_eq!(secret(&facts), Value::Null, "the installation is not complete");
    add(&mut facts, &source::BOOTSTRAP, &[("status", "complete")]);
    let found = secret(&facts);
    let hosts: Vec<&String> = found["auths"].as_object().unwrap().keys().collect();
    let route = "default-route-openshift-image-registry.apps.c.test";
    assert_eq!(hosts, [route, INTERNAL, "quay.test"]);
    assert_eq!(found["auths"][route], found["auths"][INTERNAL]);
    for data in [&b""[..], b"{}"] {
        let kind = "kubernetes.io/dockerconfigjson".to_owned();
        facts.credentials.global = Some((kind, data.to_vec()));
        assert_eq!(secret(&facts)["auths"].as_object().unwrap().len(), 2);
    }
    facts.credentials.global = Some(("Opaque".to_owned(), Vec::new()));
    assert!(fails(&facts).contains("openshift-config/pull-secret: type: expected secret type"));
    let kind = "kubernetes.io/dockerconfigjson".to_owned();
    facts.credentials.global = Some((kind, b"hunter2".to_vec()));
    let error = fails(&facts);
    assert!(error.contains(".dockerconfigjson") && !error.contains("hunter2"), "{error}");
    let absent = [
        Credentials { has_registry: false, ..complete.clone() },
        Credentials { puller: None, ..complete.clone() },
        Credentials { puller: Some(Vec::new()), global: None, ..complete },
    ];
    for credentials in absent {
        facts.credentials = credentials;
        assert_eq!(secret(&facts), Value::Null);
    }
}

#[test]
fn objects_are_embedded_with_their_kind_and_platform() {
    let mut facts = openshift("BareMetal");
    let infrastructure = facts.infrastructure.as_mut().unwrap();
    infrastructure.metadata.resource_version = Some("7".to_owned());
    let spec = wanted(&facts).unwrap().spec;
    let infra = json!(spec.infra);
    assert_eq!(infra["kind"], "Infrastructure");
    assert_eq!(infra["apiVersion"], "config.openshift.io/v1");
    assert_eq!(infra["metadata"], json!({"name": "cluster"}));
    assert_eq!(json!(spec.dns)["spec"]["baseDomain"], "c.test");
    assert_eq!(
        json!(spec.pull_secret),
        json!({"namespace": "openshift-config", "name": "pull-secret"})
    );
    // An old cluster has its platform in a deprecated member.
    let infrastructure = facts.infrastructure.as_mut().unwrap();
    infrastructure.status.platform_status = None;
    infrastructure.status.platform = PlatformType::Aws;
    let spec = wanted(&facts).unwrap().spec;
    assert_eq!(json!(spec.infra)["status"]["platformStatus"]["type"], "AWS");
    assert_eq!(spec.platform, "aws");
}

#[test]
fn merging_clears_what_openshift_cleared_and_leaves_what_an_administrator_set_elsewhere() {
    let found: ControllerConfigSpec = serde_json::from_value(json!({
        "clusterDNSIP": "10.0.0.10", "cloudProviderConfig": "old", "releaseImage": "release",
        "networkType": "Old", "images": {"a": "1", "b": "1"}, "osImageURL": "os",
        "proxy": {"httpProxy": "http://proxy.test"}, "additionalTrustBundle": "YQ==",
        "network": {"mtuMigration": {"machine": {"from": 1, "to": 2}}},
        "imageRegistryBundleData": [{"file": "a", "data": "YQ=="}],
    }))
    .unwrap();
    let images = [("b".to_owned(), "2".to_owned())];
    let facts = Facts { images: images.into(), ..openshift("None") };
    let merged = merge(&found, &wanted(&facts).unwrap(), false);
    assert_eq!(merged.cluster_dns_ip, "172.30.0.10");
    assert_eq!(merged.cloud_provider_config, "old", "only other texts replace a text");
    assert_eq!((merged.release_image.as_str(), merged.os_image_url.as_str()), ("release", "os"));
    assert_eq!(json!(merged.images), json!({"a": "1", "b": "2"}));
    assert_eq!(json!(merged.proxy), json!({}));
    assert_eq!(json!(merged.additional_trust_bundle), json!(""));
    assert_eq!(json!(merged.network), json!({"mtuMigration": {}}));
    assert!(merged.image_registry_bundle_data.is_empty());
    assert_eq!(merge(&merged, &wanted(&facts).unwrap(), false), merged, "nothing is left to do");

    let plain = Facts {
        services: Services { dns: vec!["10.96.0.10".into()], ..Services::default() },
        ..Facts::default()
    };
    let merged = merge(&found, &wanted(&plain).unwrap(), false);
    assert_eq!(merged.proxy, found.proxy);
    assert_eq!(merged.additional_trust_bundle, found.additional_trust_bundle);
    assert_eq!(merged.network, found.network);
    assert_eq!(merged.image_registry_bundle_data, found.image_registry_bundle_data);
    assert_eq!(merged.cluster_dns_ip, "10.96.0.10");
    let kept = merge(&found, &wanted(&plain).unwrap(), true);
    assert_eq!(kept.cluster_dns_ip, "10.0.0.10", "a derived address does not reboot nodes");
    let named = Facts { network: Some(network(&["10.97.0.0/16"])), ..Facts::default() };
    let merged = merge(&found, &wanted(&named).unwrap(), true);
    assert_eq!(merged.cluster_dns_ip, "10.97.0.10", "one that the administrator sets does");
    let cleared = Facts { proxy: Some(Proxy::default()), ..Facts::default() };
    assert_eq!(json!(merge(&found, &wanted(&cleared).unwrap(), false).proxy), json!({}));
}

#[test]
fn the_proxy_of_the_settings_is_that_of_its_spec() {
    let spec = json!({"httpProxy": "http://a.test", "noProxy": "b.test"});
    let proxy: Proxy = object(spec.clone(), json!({}));
    let facts = Facts { proxy: Some(proxy), ..Facts::default() };
    assert_eq!(json!(wanted(&facts).unwrap().spec.proxy), spec);
    // On OpenShift another operator checks the spec, and writes what is in effect into the status.
    let facts =
        Facts { origin: Origin::OpenShift, network: Some(network(&["10.0.0.0/16"])), ..facts };
    assert_eq!(wanted(&facts).unwrap().spec.proxy, None);
}

// covers: O18
#[test]
fn user_data_point_to_the_host_of_the_platform() {
    let address = json!({"apiServerInternalIPs": ["192.0.2.5", "fd00::5"]});
    let rows = [
        ("None", json!({}), "api-int.c.test"),
        ("AWS", json!({}), "api-int.c.test"),
        ("BareMetal", json!({"baremetal": address}), "192.0.2.5"),
        ("OpenStack", json!({"openstack": address}), "192.0.2.5"),
        ("oVirt", json!({"ovirt": {"apiServerInternalIPs": ["fd00::5"]}}), "[fd00::5]"),
        ("VSphere", json!({"vsphere": address}), "192.0.2.5"),
        ("VSphere", json!({"vsphere": {}}), "api-int.c.test"),
        ("Nutanix", json!({"nutanix": address}), "api-int.c.test"),
    ];
    for (kind, members, host) in rows {
        let mut platform = members;
        platform["type"] = json!(kind);
        let infra = json!({"status": {"apiServerInternalURI": "https://api-int.c.test:6443",
            "platformStatus": platform}});
        let spec = serde_json::from_value(json!({"infra": infra})).unwrap();
        assert_eq!(machine_host(&spec).as_deref(), Some(host), "{kind}");
    }
    let config: Value =
        serde_json::from_slice(&user_data("[fd00::5]", "infra", "certificate")).unwrap();
    let ignition = &config["ignition"];
    assert_eq!(ignition["config"]["merge"][0]["source"], "https://[fd00::5]:22623/config/infra");
    let authorities = &ignition["security"]["tls"]["certificateAuthorities"];
    assert_eq!(authorities.as_array().unwrap().len(), 1);
    assert_eq!(machine_host(&ControllerConfigSpec::default()), None);
}
