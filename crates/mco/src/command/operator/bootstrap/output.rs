//! The manifests with which a cluster is installed.

use std::path::Path;

use anyhow::Context as _;
use kube::ResourceExt as _;
use mco_api::{ControllerConfig, MachineConfigPool, join_token::BOOTSTRAPPER, label, object_yaml};
use mco_host::Root;
use serde::Serialize;
use serde_json::{Value, json};

/// Compat: modes of the written files and directories (pkg/operator).
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Folders of the bootstrap machine, as the installer mounts them.
const MANIFESTS: &str = "/etc/mcc/bootstrap";
const RENDERED: &str = "/etc/mcs/bootstrap";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
const CERTIFICATE: &str = "/etc/ssl/mcs";

/// The manifests of a new cluster.
pub(super) struct Manifests {
    pub(super) controller_config: ControllerConfig,
    /// Whether the cluster has an arbiter.
    pub(super) has_arbiter: bool,
    /// The pull secret as it was given.
    pub(super) pull_secret: String,
    pub(super) kube_ca: Option<String>,
    /// Image of mco.
    pub(super) image: String,
    pub(super) release: String,
}

impl Manifests {
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let root = Root::create(dir)?;
        for folder in ["/bootstrap", "/bootstrap/manifests", "/manifests"] {
            root.create_directory(folder)?;
            root.set_mode(folder, DIRECTORY_MODE)?;
        }
        for (path, text) in self.files()? {
            root.write(&path, text.as_bytes(), FILE_MODE)?;
        }
        Ok(())
    }

    /// Returns the files by their path. Compat: the paths are the reference's.
    fn files(&self) -> anyhow::Result<Vec<(String, String)>> {
        let config = yaml("ControllerConfig", &self.controller_config)?;
        let mut files = vec![
            ("/bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml".into(), config),
            (
                "/bootstrap/manifests/machineconfigcontroller-pull-secret".into(),
                self.pull_secret.clone(),
            ),
            (
                "/bootstrap/machineconfigoperator-bootstrap-pod.yaml".into(),
                yaml("Pod", &self.pod())?,
            ),
            (
                "/manifests/csr-bootstrap-role-binding.yaml".into(),
                yaml("ClusterRoleBinding", &binding())?,
            ),
        ];
        for pool in self.pools() {
            let path = format!("/bootstrap/manifests/{}.machineconfigpool.yaml", pool.name_any());
            files.push((path, yaml("MachineConfigPool", &pool)?));
        }
        if let Some(bundle) = &self.kube_ca {
            let path = "/manifests/kube-apiserver-serving-ca-configmap.yaml".into();
            files.push((path, yaml("ConfigMap", &initial_ca(bundle))?));
        }
        Ok(files)
    }

    fn pools(&self) -> Vec<MachineConfigPool> {
        let mut pools = mco_operator::built_in_pools();
        pools.retain(|pool| pool.name_any() != "arbiter");
        if self.has_arbiter {
            let master = pools.iter().find(|pool| pool.name_any() == "master");
            let arbiter = master.and_then(|master| {
                // The pool of the arbiter is that of the control plane under another name.
                let text = serde_json::to_string(master).ok()?.replace("master", "arbiter");
                serde_json::from_str(&text).ok()
            });
            pools.extend(arbiter);
        }
        pools
    }

    /// Returns the pod that serves the first machines: it renders the configs, and serves them.
    fn pod(&self) -> Value {
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let container = |name: &str, args: Vec<String>, mounts: Vec<Value>| {
            json!({
                "name": name, "image": self.image, "args": args, "volumeMounts": mounts,
                "env": [{"name": "RELEASE_VERSION", "value": self.release}],
                "securityContext": {"privileged": true},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            })
        };
        let render = [
            "controller".to_owned(),
            "bootstrap".to_owned(),
            format!("--manifest-dir={MANIFESTS}"),
            format!("--dest-dir={RENDERED}"),
            format!("--pull-secret={MANIFESTS}/machineconfigcontroller-pull-secret"),
        ];
        let serve = [
            "server".to_owned(),
            "bootstrap".to_owned(),
            format!("--server-basedir={RENDERED}"),
            format!("--bootstrap-kubeconfig={KUBECONFIG}"),
        ];
        let host = |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "bootstrap-machine-config-operator", "namespace": label::NAMESPACE},
            "spec": {
                "initContainers": [container("machine-config-controller", render.to_vec(), vec![
                    mount("manifests", MANIFESTS), mount("rendered", RENDERED),
                ])],
                "containers": [container("machine-config-server", serve.to_vec(), vec![
                    mount("rendered", RENDERED), mount("kubeconfig", KUBECONFIG),
                    mount("certificate", CERTIFICATE),
                ])],
                "hostNetwork": true,
                "priorityClassName": "system-node-critical",
                "restartPolicy": "Always",
                "tolerations": [{"operator": "Exists"}],
                "volumes": [
                    host("manifests", MANIFESTS, "Directory"),
                    host("rendered", RENDERED, "DirectoryOrCreate"),
                    host("kubeconfig", KUBECONFIG, "File"),
                    host("certificate", CERTIFICATE, "Directory"),
                ],
            },
        })
    }
}

/// Returns the binding with which kubelets of new machines request their first certificate.
fn binding() -> Value {
    let rights = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{rights}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "system-bootstrap-node-bootstrapper"},
        "roleRef": {"apiGroup": rights, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [
            {"kind": "ServiceAccount", "name": BOOTSTRAPPER, "namespace": label::NAMESPACE},
        ],
    })
}

/// Returns the ConfigMap with the CA certificates of kubelets' clients, which the operator reads until
/// the installation is complete.
fn initial_ca(bundle: &str) -> Value {
    let source = mco_core::controller_config::source::INITIAL_CA;
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": source.name, "namespace": source.namespace},
        "data": {"ca-bundle.crt": bundle},
    })
}

fn yaml(kind: &str, object: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(object).with_context(|| format!("{kind} is no JSON"))?;
    let Value::Object(members) = value else { anyhow::bail!("{kind} has no members") };
    Ok(object_yaml(&members))
}
