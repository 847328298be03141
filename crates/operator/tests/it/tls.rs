//! The TLS profile of the cluster reaches the processes that the operator deploys, on both API servers.

use kube::api::{Patch, PatchParams};
use mco_api::label;
use mco_operator::manifests::ObjectName;
use serde_json::{Value, json};

use crate::{
    facts::{
        create_cluster, create_kinds, create_namespaces, maps, of_openshift, put, wait_for_degraded,
    },
    machine_configuration::on_both,
    operands::cluster::{Cluster, IMAGE, settings},
    support::{Operator, wait},
};

on_both! {
    the_profile_of_openshift_reaches_all_processes,
    the_profile_of_a_plain_cluster_reaches_all_processes,
    no_process_is_deployed_before_its_profile_is_known,
}

const SERVER: (&str, &str) = ("DaemonSet", "machine-config-server");
const ALL: [(&str, &str); 3] =
    [("Deployment", "machine-config-controller"), ("DaemonSet", "machine-config-daemon"), SERVER];

fn name((kind, name): (&str, &str)) -> ObjectName {
    ObjectName {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some(label::NAMESPACE.to_owned()),
        name: name.to_owned(),
    }
}

/// Returns the arguments for TLS.
fn flags(object: &Value) -> Vec<String> {
    let args = object.pointer("/spec/template/spec/containers/0/args");
    let args = args.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    args.filter(|arg| arg.starts_with("--tls-")).map(str::to_owned).collect()
}

/// Waits until each process has exactly these flags.
async fn wait_for_flags(cluster: &Cluster, what: &str, ciphers: &str, min_version: &str) {
    let expected =
        [format!("--tls-cipher-suites={ciphers}"), format!("--tls-min-version={min_version}")];
    for process in ALL {
        cluster.wait_for(&name(process), what, |found| flags(found) == expected).await;
    }
}

const TLS_13: &str = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
const TLS_12: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

// covers: O44
async fn the_profile_of_openshift_reaches_all_processes(cluster: &Cluster) {
    let client = &cluster.admin;
    create_namespaces(client).await;
    create_kinds(client).await;
    let status = json!({"platformStatus": {"type": "None"}});
    create_cluster(client, "Infrastructure", json!({}), status).await;
    create_cluster(client, "Network", json!({"serviceNetwork": ["172.30.0.0/16"]}), json!({}))
        .await;
    create_cluster(client, "APIServer", json!({}), json!({})).await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    let intermediate = format!("{TLS_13},{TLS_12}");
    wait_for_flags(cluster, "the default profile", &intermediate, "VersionTLS12").await;

    let servers = of_openshift(client, "APIServer");
    let set = async |profile: Value| {
        let patch = Patch::Merge(json!({"spec": {"tlsSecurityProfile": profile}}));
        servers.patch(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    };
    set(json!({"type": "Modern", "modern": {}})).await;
    wait_for_flags(cluster, "profile Modern", TLS_13, "VersionTLS13").await;
    let custom =
        json!({"ciphers": ["ECDHE-RSA-AES128-GCM-SHA256"], "minTLSVersion": "VersionTLS12"});
    set(json!({"type": "Custom", "modern": null, "custom": custom})).await;
    let own = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    wait_for_flags(cluster, "profile Custom", own, "VersionTLS12").await;
    set(Value::Null).await;
    wait_for_flags(cluster, "no profile", &intermediate, "VersionTLS12").await;
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

/// The settings of a cluster without the kinds of OpenShift.
fn documents(profile: &str) -> Value {
    json!({"tls": format!(
        "apiVersion: config.openshift.io/v1\nkind: APIServer\nmetadata: {{name: cluster}}\n\
         spec: {{tlsSecurityProfile: {{type: {profile}}}}}\n"
    )})
}

async fn the_profile_of_a_plain_cluster_reaches_all_processes(cluster: &Cluster) {
    let client = &cluster.admin;
    if !cluster.has_rights() {
        cluster.create_namespace().await;
    }
    put(client, label::NAMESPACE, "cluster-settings", documents("Modern")).await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    wait_for_flags(cluster, "profile Modern", TLS_13, "VersionTLS13").await;
    // Only the settings are written: without the object the default applies.
    let own = maps(client, label::NAMESPACE);
    own.delete("cluster-settings", &kube::api::DeleteParams::default()).await.unwrap();
    let intermediate = format!("{TLS_13},{TLS_12}");
    wait_for_flags(cluster, "the default profile", &intermediate, "VersionTLS12").await;
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

/// An operator that starts with settings that it cannot read must not weaken running processes.
async fn no_process_is_deployed_before_its_profile_is_known(cluster: &Cluster) {
    let client = &cluster.admin;
    if !cluster.has_rights() {
        cluster.create_namespace().await;
    }
    put(client, label::NAMESPACE, "cluster-settings", json!({"tls": "kind: [Unknown"})).await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    wait(client, "the ClusterOperator", |_| true).await;
    wait_for_degraded(client, "cluster-settings").await;
    for process in ALL {
        let found = cluster.api(&name(process)).get_opt(process.1).await.unwrap();
        assert!(found.is_none(), "{process:?}");
    }
    let patch = Patch::Merge(json!({"data": documents("Modern")}));
    let own = maps(client, label::NAMESPACE);
    own.patch("cluster-settings", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_for(&name(SERVER), "it is deployed", |_| true).await;
    let writes = cluster.take_writes();
    let server = "/daemonsets/machine-config-server";
    let count = writes.iter().filter(|write| write.ends_with(server)).count();
    assert_eq!(count, 1, "the server is deployed once: {writes:?}");
    operator.stop().await;
}
