//! Tests of the config server's CA and certificate in a cluster.

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{ControllerConfig, annotation, label};
use mco_cluster::Clock;
use mco_ignition::data_url;
use mco_testkit::pki::Authority;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, awaited},
    server::{Server, on_both},
};

on_both! {
    a_new_cluster_gets_a_certificate_that_its_bundle_verifies,
    the_old_ca_is_trusted_until_its_last_certificate_is_replaced,
    without_infrastructure_an_annotation_names_the_server,
    a_certificate_of_another_issuer_is_left_alone,
    a_key_that_cannot_be_read_is_never_overwritten,
}

const CA: &str = "machine-config-server-ca";
const TLS: &str = "machine-config-server-tls";

fn secrets(fleet: &Fleet) -> Api<Secret> {
    Api::namespaced(fleet.client.clone(), label::NAMESPACE)
}

fn part(secret: &Secret, key: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
    String::from_utf8(bytes.unwrap_or_default()).unwrap()
}

fn mark(secret: &Secret, key: &str) -> String {
    let key = format!("auth.openshift.io/certificate-{key}");
    secret.annotations().get(&key).cloned().unwrap_or_default()
}

/// Waits until `holds` is true for the bundle; returns the bundle.
async fn bundle(fleet: &Fleet, what: &str, holds: impl Fn(&str) -> bool) -> String {
    let api = Api::<ConfigMap>::namespaced(fleet.client.clone(), label::NAMESPACE);
    let text =
        |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("ca-bundle.crt").cloned());
    let map = awaited(api, CA, what, |map| text(map).is_some_and(|text| holds(&text))).await;
    text(&map).unwrap()
}

async fn secret(fleet: &Fleet, name: &str, what: &str, holds: impl Fn(&Secret) -> bool) -> Secret {
    awaited(secrets(fleet), name, what, holds).await
}

/// Returns true if a machine that trusts the bundle accepts the server's certificate for `name` at
/// that Unix time.
fn is_trusted(bundle: &str, shown: &Secret, name: &str, at: u64) -> bool {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = rustls::crypto::ring::default_provider().into();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
    let text = part(shown, "tls.crt");
    let chain: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(text.as_bytes()).map(Result::unwrap).collect();
    let (server, rest) = chain.split_first().unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
    verifier.unwrap().verify_server_cert(server, rest, &name, &[], now).is_ok()
}

const Y2026: u64 = 1_767_225_600;
const YEAR: u64 = 365 * 24 * 3600;

/// Has all certificates issued anew on that day.
async fn begin(day: &str, fleet: &mut Fleet) {
    bundle(fleet, "is there", |text| !text.is_empty()).await;
    secret(fleet, TLS, "is there", |_| true).await;
    fleet.pause().await;
    for name in [CA, TLS] {
        secrets(fleet).delete(name, &DeleteParams::default()).await.unwrap();
    }
    let maps = Api::<ConfigMap>::namespaced(fleet.client.clone(), label::NAMESPACE);
    maps.delete(CA, &DeleteParams::default()).await.unwrap();
    resume_at(day, fleet);
}

async fn at(day: &str, fleet: &mut Fleet) {
    fleet.pause().await;
    resume_at(day, fleet);
}

fn resume_at(day: &str, fleet: &mut Fleet) {
    fleet.config.clock = Clock::anchored(format!("{day}T00:00:00Z").parse().unwrap());
    fleet.resume();
}

async fn set_infrastructure(fleet: &Fleet, addresses: &[&str]) {
    let infra = json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "spec": {"cloudConfig": {"name": ""}}, "status": {
        "apiServerInternalURI": "https://api-int.c.test:6443",
        "platformStatus": {"type": "BareMetal", "baremetal": {
            "apiServerInternalIPs": addresses, "ingressIPs": addresses,
        }},
    }});
    let patch = json!({"spec": {"infra": infra}});
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, patch).await;
}

// covers: CERT-1, CERT-2, CERT-4
async fn a_new_cluster_gets_a_certificate_that_its_bundle_verifies(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    begin("2026-01-02", &mut fleet).await;
    set_infrastructure(&fleet, &["192.0.2.5"]).await;
    let names = "192.0.2.5,api-int.c.test";
    let shown = secret(&fleet, TLS, "is for the cluster's names", |secret| {
        mark(secret, "hostnames") == names
    })
    .await;
    assert_eq!(shown.type_.as_deref(), Some("kubernetes.io/tls"));
    let authority = secrets(&fleet).get(CA).await.unwrap();
    assert_eq!(authority.type_.as_deref(), Some("kubernetes.io/tls"));
    let signer = mark(&authority, "issuer");
    assert!(signer.starts_with("machine-config.machine-config-server-signer@"), "{signer}");
    assert_eq!(mark(&shown, "issuer"), signer);
    let trusted = bundle(&fleet, "is there", |text| !text.is_empty()).await;
    assert_eq!(trusted, part(&authority, "tls.crt"));
    for (name, at, expected) in [
        ("api-int.c.test", Y2026 + YEAR, true),
        ("192.0.2.5", Y2026 + YEAR, true),
        ("192.0.2.6", Y2026 + YEAR, false),
        ("api-int.c.test", Y2026 + 10 * YEAR, true),
        ("api-int.c.test", Y2026 + 10 * YEAR + YEAR / 10, false),
    ] {
        assert_eq!(is_trusted(&trusted, &shown, name, at), expected, "{name} at {at}");
    }
    // A new address requires a new certificate of the same CA.
    set_infrastructure(&fleet, &["192.0.2.5", "fd00::5"]).await;
    let anew = secret(&fleet, TLS, "is for the new address too", |secret| {
        mark(secret, "hostnames") == "192.0.2.5,api-int.c.test,fd00::5"
    })
    .await;
    assert!(is_trusted(&trusted, &anew, "fd00::5", Y2026 + YEAR));
    assert_eq!(
        secrets(&fleet).get(CA).await.unwrap().resource_version(),
        authority.resource_version()
    );
    let said = fleet.event("TargetUpdateRequired").await;
    assert!(said.starts_with("\"machine-config-server-tls\" in \"openshift-machine-config-operator\" requires a new target cert/key pair: "), "{said}");
    // A deleted Secret is created again.
    secrets(&fleet).delete(TLS, &DeleteParams::default()).await.unwrap();
    let back = secret(&fleet, TLS, "is back", |secret| secret.uid() != anew.uid()).await;
    assert!(is_trusted(&trusted, &back, "fd00::5", Y2026 + YEAR));
    fleet.stop().await;
}

// covers: CERT-1
async fn the_old_ca_is_trusted_until_its_last_certificate_is_replaced(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    begin("2026-01-02", &mut fleet).await;
    set_infrastructure(&fleet, &["192.0.2.5"]).await;
    let by = |secret: &Secret| mark(secret, "issuer");
    let is_for = |secret: &Secret| mark(secret, "hostnames").contains("api-int");
    let first = secret(&fleet, TLS, "is for the cluster", is_for).await;
    let old_signer = by(&first);
    let old = bundle(&fleet, "is there", |text| !text.is_empty()).await;

    // Eight years later the CA and its certificate are due. But the new CA must be distributed
    // first: the certificate stays, and both CAs are trusted.
    at("2034-01-05", &mut fleet).await;
    let both = bundle(&fleet, "has both", |text| text.matches("BEGIN").count() == 2).await;
    assert!(both.contains(&old));
    let shown = secrets(&fleet).get(TLS).await.unwrap();
    assert_eq!(shown.resource_version(), first.resource_version());
    assert!(is_trusted(&both, &shown, "api-int.c.test", Y2026 + 8 * YEAR));

    // Nearly ten months later the certificate is renewed, and the old CA is dropped.
    at("2034-10-30", &mut fleet).await;
    let second = secret(&fleet, TLS, "is of the new authority", |s| by(s) != old_signer).await;
    let new = bundle(&fleet, "has one", |text| text.matches("BEGIN").count() == 1).await;
    assert!(!new.contains(&old));
    for text in [&both, &new] {
        assert!(is_trusted(text, &second, "api-int.c.test", Y2026 + 9 * YEAR));
    }
    fleet.stop().await;
}

// covers: CERT-2
async fn without_infrastructure_an_annotation_names_the_server(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    secret(&fleet, TLS, "is for this machine", |s| mark(s, "hostnames") == "127.0.0.1,localhost")
        .await;
    let named = json!({annotation::SERVER_NAMES.name(): "boot.c.test"});
    let patch = json!({"metadata": {"annotations": named}});
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, patch).await;
    secret(&fleet, TLS, "is for that name", |s| mark(s, "hostnames") == "boot.c.test").await;
    fleet.stop().await;
}

// covers: CERT-4
async fn a_certificate_of_another_issuer_is_left_alone(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    secret(&fleet, TLS, "is there", |_| true).await;
    fleet.pause().await;
    let pair = Authority::new("somebody").unwrap().server("boot", &["boot.c.test".to_owned()]);
    let pair = pair.unwrap();
    secrets(&fleet).delete(TLS, &DeleteParams::default()).await.unwrap();
    let own: Secret = serde_json::from_value(json!({
        "metadata": {"name": TLS}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair.certificate, "tls.key": pair.key},
    }))
    .unwrap();
    let own = secrets(&fleet).create(&PostParams::default(), &own).await.unwrap();
    fleet.resume();
    let before = fleet.rendered().await;
    let named = json!({annotation::SERVER_NAMES.name(): "other.c.test"});
    let patch = json!({"metadata": {"annotations": named}});
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, patch).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    fleet.rendered_anew(&before).await;
    assert_eq!(secrets(&fleet).get(TLS).await.unwrap().resource_version(), own.resource_version());
    // The controller issues its own certificate after the user's is deleted.
    secrets(&fleet).delete(TLS, &DeleteParams::default()).await.unwrap();
    secret(&fleet, TLS, "is ours", |secret| mark(secret, "hostnames") == "other.c.test").await;
    fleet.stop().await;
}

// covers: CERT-4
async fn a_key_that_cannot_be_read_is_never_overwritten(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    secret(&fleet, CA, "is there", |_| true).await;
    fleet.pause().await;
    let other = json!({"data": {"tls.key": ByteString(b"-----BEGIN OTHER KEY-----".to_vec())}});
    let patch = Patch::Merge(other);
    let kept = secrets(&fleet).patch(CA, &PatchParams::default(), &patch).await.unwrap();
    fleet.resume();
    let before = fleet.rendered().await;
    set_infrastructure(&fleet, &["192.0.2.5"]).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    fleet.rendered_anew(&before).await;
    assert_eq!(secrets(&fleet).get(CA).await.unwrap().resource_version(), kept.resource_version());
    // The controller issues another CA after the Secret is deleted.
    secrets(&fleet).delete(CA, &DeleteParams::default()).await.unwrap();
    secret(&fleet, CA, "is new", |found| found.uid() != kept.uid()).await;
    fleet.stop().await;
}

fn user_data(authorities: &Value) -> ByteString {
    let config = json!({"ignition": {
        "version": "3.2.0",
        "config": {"merge": [{"source": "https://api-int.c.test:22623/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": authorities}},
    }});
    ByteString(config.to_string().into_bytes())
}

// covers: CERT-3
#[tokio::test]
async fn user_data_gets_the_bundle() {
    let fleet = Fleet::start(0).await;
    let trusted = bundle(&fleet, "is there", |text| !text.is_empty()).await;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": label::MACHINE_NAMESPACE}})).unwrap();
    fleet.create(&namespace).await;
    let api = Api::<Secret>::namespaced(fleet.client.clone(), label::MACHINE_NAMESPACE);
    let old = json!([{"source": "data:,old"}]);
    let two = json!([{"source": "data:,old"}, {"source": "data:,other"}]);
    let cases = [("worker-user-data", &old, false), ("two", &two, false), ("managed", &old, true)];
    for (name, authorities, managed) in cases {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        if managed {
            let key = label::MANAGED_USER_DATA.to_owned();
            secret.metadata.labels = Some([(key, String::new())].into());
        }
        secret.data = Some([("userData".to_owned(), user_data(authorities))].into());
        api.create(&PostParams::default(), &secret).await.unwrap();
    }
    // The namespace is detected at the next reconcile.
    set_infrastructure(&fleet, &["192.0.2.5"]).await;
    let source = |secret: &Secret| -> String {
        let config: Value = serde_json::from_str(&part(secret, "userData")).unwrap();
        config["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let wanted = data_url::encode_base64(trusted.as_bytes());
    let is_new = |secret: &Secret| source(secret) == wanted;
    awaited(api.clone(), "worker-user-data", "trusts the bundle", is_new).await;
    for name in ["two", "managed"] {
        assert_eq!(source(&api.get(name).await.unwrap()), "data:,old", "{name}");
    }
    // An edit is reverted, because the Secrets are watched from then on.
    let patch = Patch::Merge(json!({"data": {"userData": user_data(&old)}}));
    api.patch("worker-user-data", &PatchParams::default(), &patch).await.unwrap();
    awaited(api, "worker-user-data", "trusts the bundle again", is_new).await;
    fleet.stop().await;
}

// covers: O18, O51
#[tokio::test]
async fn every_pool_has_user_data_and_those_of_others_stay() {
    let fleet = Fleet::start(0).await;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": label::MACHINE_NAMESPACE}})).unwrap();
    fleet.create(&namespace).await;
    let api = Api::<Secret>::namespaced(fleet.client.clone(), label::MACHINE_NAMESPACE);
    // Another operator wrote the user data of the control plane.
    let mut foreign = Secret::default();
    foreign.metadata.name = Some("master-user-data-managed".to_owned());
    foreign.metadata.labels = Some([(label::MANAGED_USER_DATA.to_owned(), String::new())].into());
    foreign.data = Some([("userData".to_owned(), user_data(&json!([])))].into());
    let foreign = api.create(&PostParams::default(), &foreign).await.unwrap();
    set_infrastructure(&fleet, &["192.0.2.5"]).await;
    let trusted = bundle(&fleet, "is there", |text| !text.is_empty()).await;
    let source = |secret: &Secret| -> String {
        let config: Value = serde_json::from_str(&part(secret, "userData")).unwrap_or_default();
        config["ignition"]["config"]["merge"][0]["source"].as_str().unwrap_or_default().to_owned()
    };
    let name = "worker-user-data-managed";
    let points = |to: &'static str| move |secret: &Secret| source(secret) == to;
    let is_right = points("https://192.0.2.5:22623/config/worker");
    let made = awaited(api.clone(), name, "points to the server", is_right).await;
    assert!(part(&made, "userData").contains(&data_url::encode_base64(trusted.as_bytes())));
    assert_eq!(part(&made, "disableTemplating"), "true\n");
    let owner = made.owner_references().first().unwrap();
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("MachineConfigPool", "worker"));
    // Edits are reverted, and a deleted Secret comes back.
    let patch = Patch::Merge(json!({"data": {"userData": user_data(&json!([])), "other": "YQ=="}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let is_restored = |secret: &Secret| {
        secret.data.as_ref().is_some_and(|data| data.len() == 2) && is_right(secret)
    };
    awaited(api.clone(), name, "is restored", is_restored).await;
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let is_new = |secret: &Secret| secret.uid() != made.uid() && is_right(secret);
    awaited(api.clone(), name, "is back", is_new).await;
    // The platform has another address.
    set_infrastructure(&fleet, &["fd00::5"]).await;
    awaited(api.clone(), name, "follows", points("https://[fd00::5]:22623/config/worker")).await;
    let kept = api.get("master-user-data-managed").await.unwrap();
    assert_eq!(kept.resource_version(), foreign.resource_version());
    fleet.stop().await;
}
