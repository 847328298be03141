//! `mco uninstall`: removes the processes from a cluster and leaves its nodes as they are.

mod nodes;

use std::{collections::BTreeSet, io::Write as _, process::ExitCode, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mco_api::{ContainerRuntimeConfig, KubeletConfig, join_token, label};
use mco_cluster::client::namespace;
use mco_operator::manifests::{self, MANAGED_BY, ObjectName, Parameters};
use serde_json::{Value, json};

use super::install::api;
use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{self, Access, Connection},
};

/// Name of the operator's Deployment.
const OPERATOR: &str = "machine-config-operator";

/// Name of the daemons' DaemonSet.
const DAEMON: &str = "machine-config-daemon";

/// Position of the controller's Deployment in the order of deletion.
const CONTROLLER_RANK: u8 = 3;

/// Time that the pods of a process may take to end.
const PODS_LIMIT: Duration = Duration::from_mins(2);

/// Time that the API server may apply a deleted admission policy.
const POLICY_LIMIT: Duration = Duration::from_secs(30);

/// Time between two looks at the operator's pods, or two attempts to delete an object.
const INTERVAL: Duration = Duration::from_millis(500);

/// Remove the processes of mco from a cluster; nodes, MachineConfigs and pools stay as they are
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UninstallArgs {
    /// Delete; without this flag the objects are only listed
    #[arg(long)]
    yes: bool,
    /// Also delete the kinds with all MachineConfigs and pools, the namespaces, and the annotations of
    /// nodes, and have the daemons remove their records from the nodes
    #[arg(long)]
    forget: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco uninstall                 lists what would be deleted
  mco uninstall --yes           removes the processes; `mco install` brings them back
  mco uninstall --yes --forget  removes every trace in the cluster, and the records on the nodes

The files and units of MachineConfigs stay on the nodes. Nothing is drained, restarted or rebooted.";

/// An object of the installation that exists.
struct Found {
    name: ObjectName,
    is_ours: bool,
    /// Release of Helm that the object belongs to, as arguments of `helm uninstall`.
    release: Option<String>,
}

/// Lists the objects, and deletes them if told to.
pub(crate) fn run(args: &UninstallArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.installed(Access::of_dry_run(!args.yes)).await?;
        let found = find(&client, args.forget).await?;
        let (ours, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.is_ours);
        let operator = others.iter().find(|other| rank(&other.name) == 0);
        if let Some(release) = operator.and_then(|operator| operator.release.as_ref()) {
            return Err(error_with_hint(
                "Helm installed the operator, which would create again what is deleted",
                format!("run `helm uninstall {release}` first, and then this command"),
            ));
        }
        let (key, value) = MANAGED_BY;
        for other in others {
            let name = other.name;
            writeln!(screen, "{name} stays: it has no label {key}={value}")?;
        }
        if ours.is_empty() {
            writeln!(screen, "nothing to delete: the cluster has no object of mco")?;
            return Ok(ExitCode::SUCCESS);
        }
        if !args.yes {
            for object in &ours {
                writeln!(screen, "{} would be deleted", object.name)?;
            }
            print_rest(args, screen)?;
            writeln!(screen, "run the command with --yes to delete")?;
            return Ok(ExitCode::SUCCESS);
        }
        if args.forget {
            // Without the controller no one else removes the finalizers, and a kind with such objects
            // is never deleted.
            remove_finalizers::<KubeletConfig>(&client).await?;
            remove_finalizers::<ContainerRuntimeConfig>(&client).await?;
        }
        let mut silent = BTreeSet::new();
        // The daemons forget their nodes when no operator and no controller gives them other orders.
        let mut is_due = args.forget;
        for object in &ours {
            if is_due && rank(&object.name) > CONTROLLER_RANK {
                silent = nodes::forget(&client, screen).await?;
                is_due = false;
            }
            delete(&client, &object.name).await?;
            writeln!(screen, "{} deleted", object.name)?;
        }
        if args.forget {
            let ended = wait_for_pods(&client, DAEMON, &silent).await;
            nodes::remove_annotations(&client).await?;
            nodes::report_silent(&silent, screen)?;
            ended?;
        }
        print_rest(args, screen)?;
        Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn print_rest(args: &UninstallArgs, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    if args.forget {
        writeln!(
            screen,
            "the files and units of MachineConfigs stay on the nodes, which run with them; the daemons \
             remove the records of mco"
        )?;
    } else {
        writeln!(
            screen,
            "nodes, their files and annotations, MachineConfigs, pools and all kinds stay as they \
             are; `mco install` continues with them"
        )?;
    }
    Ok(())
}

/// Returns the objects that exist, in the order in which they are deleted.
async fn find(client: &Client, forget: bool) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for name in names(namespace(client), forget) {
        let object = match api(client, &name).get_metadata(&name.name).await {
            Ok(object) => object,
            Err(error) if is_absent(&error) => continue,
            Err(error) => {
                let error = remote::call_error(error);
                return Err(error.context(format!("failed to read {name}")));
            }
        };
        let is_ours = object.labels().get(MANAGED_BY.0).is_some_and(|it| it == MANAGED_BY.1);
        found.push(Found { name, is_ours, release: release(&object.metadata) });
    }
    Ok(found)
}

/// Returns the release of Helm that an object belongs to, as arguments of `helm uninstall`. Helm
/// replaces the label of our manifests.
pub(crate) fn release(metadata: &ObjectMeta) -> Option<String> {
    let annotations = metadata.annotations.as_ref()?;
    let name = annotations.get("meta.helm.sh/release-name")?;
    let namespace = annotations.get("meta.helm.sh/release-namespace");
    let namespace = namespace.map(|namespace| format!(" -n {namespace}"));
    Some(format!("{name}{}", namespace.unwrap_or_default()))
}

/// Returns true if the object, or its kind, does not exist.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns the names of all objects to delete, in their order: the operator first, because it would
/// create the others again, and policies before the objects that they protect.
fn names(namespace: &str, forget: bool) -> Vec<ObjectName> {
    let parameters =
        Parameters { namespace: namespace.to_owned(), ..Parameters::new(manifests::IMAGE) };
    let operator = manifests::operator(&parameters);
    let operands = manifests::all_operands(&parameters);
    let conditional: Vec<_> =
        manifests::conditional(namespace).into_iter().map(|(_, it)| it).collect();
    let objects = operator.iter().chain(&operands).chain(&conditional);
    let mut names: Vec<ObjectName> =
        objects.map(ObjectName::of).chain(credentials(namespace)).collect();
    names.push(cluster_operator());
    names.sort_by_key(rank);
    if forget {
        names.extend(manifests::definitions().iter().map(ObjectName::of));
        names.extend(manifests::namespaces(&parameters).iter().map(ObjectName::of));
    }
    names
}

/// Returns the objects with which new machines join. Their token does not expire.
fn credentials(namespace: &str) -> [ObjectName; 3] {
    let name = |api_version: &str, kind: &str, namespace: Option<&str>, name: &str| ObjectName {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let own = Some(namespace);
    [
        name("v1", "Secret", own, join_token::BOOTSTRAPPER_SECRET),
        name("v1", "ServiceAccount", own, join_token::BOOTSTRAPPER),
        name(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            None,
            "system-bootstrap-node-bootstrapper",
        ),
    ]
}

/// Returns the ClusterOperator. Its status is current only while the operator runs.
fn cluster_operator() -> ObjectName {
    ObjectName {
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "ClusterOperator".to_owned(),
        namespace: None,
        name: label::CLUSTER_OPERATOR.to_owned(),
    }
}

/// Returns the position of an object in the order of deletion.
fn rank(name: &ObjectName) -> u8 {
    match name.kind.as_str() {
        "Deployment" if name.name == OPERATOR => 0,
        "ValidatingAdmissionPolicyBinding" => 1,
        "ValidatingAdmissionPolicy" => 2,
        "Deployment" => CONTROLLER_RANK,
        "DaemonSet" => 4,
        // Protected by a policy, which stays in effect for a moment.
        "NetworkPolicy" => 6,
        _ => 5,
    }
}

async fn delete(client: &Client, name: &ObjectName) -> anyhow::Result<()> {
    let (api, params) = (api(client, name), DeleteParams::background());
    let deleted = async {
        loop {
            match api.delete(&name.name, &params).await {
                Ok(_) => return Ok(()),
                Err(error) if is_absent(&error) => return Ok(()),
                Err(error) if is_denied_by_policy(&error) => tokio::time::sleep(INTERVAL).await,
                Err(error) => return Err(remote::call_error(error)),
            }
        }
    };
    let deleted = tokio::time::timeout(POLICY_LIMIT, deleted).await.unwrap_or_else(|_| {
        let seconds = POLICY_LIMIT.as_secs();
        Err(anyhow::anyhow!("an admission policy denied it for {seconds} s"))
    });
    deleted.map_err(|error| error.context(format!("failed to delete {name}")))?;
    match rank(name) {
        0 | CONTROLLER_RANK => wait_for_pods(client, &name.name, &BTreeSet::new()).await,
        _ => Ok(()),
    }
}

/// Returns true if an admission policy denied the request. The API server applies a deleted policy for
/// about a second more.
fn is_denied_by_policy(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains("ValidatingAdmissionPolicy"))
}

/// Waits until no pod of a process runs, which would create again what is deleted next. Pods on nodes
/// that do not answer are not waited for: they end when their kubelet is back.
async fn wait_for_pods(
    client: &Client,
    process: &str,
    silent: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace(client));
    let ours = ListParams::default().labels(&format!("k8s-app={process}"));
    let ended = async {
        loop {
            let found = pods.list(&ours).await.map_err(remote::call_error)?;
            let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            if found.iter().all(|pod| node(pod).is_some_and(|node| silent.contains(&node))) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(PODS_LIMIT, ended).await.unwrap_or_else(|_| {
        let seconds = PODS_LIMIT.as_secs();
        Err(error_with_hint(
            format!("the pods of {process} did not end within {seconds} s"),
            format!(
                "delete them with `kubectl delete pod -n {} -l k8s-app={process}`, and run the command \
                 again",
                namespace(client)
            ),
        ))
    })
}

/// Removes the finalizers of all objects of a kind, if the cluster has the kind.
async fn remove_finalizers<K>(client: &Client) -> anyhow::Result<()>
where
    K: mco_cluster::Object,
{
    let api = mco_cluster::Api::<K>::all(client.clone());
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects.items,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(remote::call_error(error)),
    };
    for object in objects.iter().filter(|it| !it.finalizers().is_empty()) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": Value::Null}}));
        let patched = api.patch(&object.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(remote::call_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_deleted_first_and_kinds_last_or_never() {
        let some = names(label::NAMESPACE, false);
        assert_eq!(some[0].to_string(), format!("Deployment {}/{OPERATOR}", label::NAMESPACE));
        let is_kept = |kind: &str| some.iter().all(|name| name.kind != kind);
        assert!(is_kept("CustomResourceDefinition") && is_kept("Namespace"));
        assert!(!is_kept("ClusterOperator"), "its status would be out of date");
        let policy = some.iter().position(|it| it.kind.starts_with("ValidatingAdmission"));
        let protected = some.iter().position(|it| it.kind == "NetworkPolicy");
        assert!(policy < protected, "a policy keeps the other from being deleted");
        let all = names(label::NAMESPACE, true);
        assert_eq!(all.last().map(|name| name.kind.as_str()), Some("Namespace"));
        assert_eq!(all.len(), some.len() + mco_api::crds().len() + 2);
    }
}
