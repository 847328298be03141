//! `mco uninstall`: removes the processes from a cluster and leaves its nodes as they are.

mod nodes;
mod order;

use std::{collections::BTreeSet, io::Write as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mco_api::{ContainerRuntimeConfig, KubeletConfig};
use mco_cluster::client::namespace;
use mco_core::{container_runtime, kubelet};
use mco_operator::manifests::{MANAGED_BY, ObjectName};
use serde_json::json;

use self::order::{Rank, is_workload, names, rank};
use super::install::api;
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Access, Connection, runner},
};

/// Name of the operator's Deployment.
const OPERATOR: &str = "machine-config-operator";

/// Name of the controller's Deployment.
const CONTROLLER: &str = "machine-config-controller";

/// Name of the daemons' DaemonSet.
const DAEMON: &str = "machine-config-daemon";

/// Time that the pods of a process may take to end.
const PODS_LIMIT: Duration = Duration::from_mins(2);

/// Time that the API server may apply a deleted admission policy.
const POLICY_LIMIT: Duration = Duration::from_secs(30);

/// Number of attempts to change an object that other processes change at the same time.
const ATTEMPTS: usize = 10;

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
        check_others(args, &others)?;
        if args.forget {
            check_runner(&client).await?;
        }
        let (key, value) = MANAGED_BY;
        for other in &others {
            writeln!(screen, "{} stays: it has no label {key}={value}", other.name)?;
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
        let workloads = others.iter().filter(|other| is_workload(&other.name));
        let stays = |process: &str| workloads.clone().any(|other| other.name.name == process);
        let silent = remove(&client, args.forget, &ours, stays, screen).await?;
        nodes::report_silent(&silent, screen)?;
        print_rest(args, screen)?;
        Ok(if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Fails if an object of another owner makes the removal useless or harmful.
fn check_others(args: &UninstallArgs, others: &[Found]) -> anyhow::Result<()> {
    let operator = others.iter().find(|other| rank(&other.name) == Rank::Operator);
    if let Some(release) = operator.and_then(|operator| operator.release.as_ref()) {
        return Err(error_with_hint(
            "Helm installed the operator, which would create again what is deleted",
            format!("run `helm uninstall {release}` first, and then this command"),
        ));
    }
    let daemons = others
        .iter()
        .find(|other| rank(&other.name) == Rank::DaemonSet && other.name.name == DAEMON);
    if let Some(daemons) = daemons.filter(|_| args.forget) {
        return Err(error_with_hint(
            format!(
                "{} has another owner, and needs the annotations that --forget removes",
                daemons.name
            ),
            "leave out --forget, or delete the DaemonSet first",
        ));
    }
    Ok(())
}

/// Fails on a cluster that was taken over: the other operator continues with the annotations of nodes.
async fn check_runner(client: &Client) -> anyhow::Result<()> {
    let found = runner::other(client).await.context("failed to find out who runs the cluster")?;
    let Some(evidence) = found else { return Ok(()) };
    Err(error_with_hint(
        format!(
            "the cluster is another operator's, which needs the annotations that --forget removes: \
             {evidence}"
        ),
        "leave out --forget to hand the cluster back",
    ))
}

/// Deletes the objects. Returns the nodes whose daemons did not answer.
///
/// The processes end first, each before what it would create again or still needs. An earlier removal
/// that was interrupted may have deleted some objects: their pods are waited for all the same.
async fn remove(
    client: &Client,
    forget: bool,
    ours: &[Found],
    stays: impl Fn(&str) -> bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<BTreeSet<String>> {
    delete_all(client, ours, |rank| rank == Rank::Operator, screen).await?;
    if !stays(OPERATOR) {
        wait_for_pods(client, OPERATOR, &BTreeSet::new()).await?;
    }
    // The operator may have created more since the first look.
    let found = find(client, forget).await?;
    let ours: Vec<Found> = found.into_iter().filter(|it| it.is_ours).collect();
    delete_all(client, &ours, |rank| rank <= Rank::Controller, screen).await?;
    if !stays(CONTROLLER) {
        wait_for_pods(client, CONTROLLER, &BTreeSet::new()).await?;
    }
    let mut silent = BTreeSet::new();
    if forget {
        // The controller would add them again. Without it no other process removes them, and a kind
        // with such objects is never deleted.
        remove_finalizers::<KubeletConfig>(client, kubelet::is_own_finalizer, screen).await?;
        let is_own = container_runtime::is_own_finalizer;
        remove_finalizers::<ContainerRuntimeConfig>(client, is_own, screen).await?;
        silent = nodes::forget(client, screen).await?;
    }
    delete_all(client, &ours, |rank| rank == Rank::DaemonSet, screen).await?;
    if forget {
        let absent = nodes::not_ready(client).await?;
        wait_for_pods(client, DAEMON, &silent.union(&absent).cloned().collect()).await?;
    }
    delete_all(client, &ours, |rank| Rank::DaemonSet < rank && rank < Rank::Mark, screen).await?;
    if forget {
        // A daemon whose node has no annotations adopts it while the kinds exist.
        nodes::clean(client, screen).await?;
    }
    delete_all(client, &ours, |rank| rank >= Rank::Mark, screen).await?;
    Ok(silent)
}

/// Deletes the objects with a rank that `is_due`.
async fn delete_all(
    client: &Client,
    objects: &[Found],
    is_due: impl Fn(Rank) -> bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    for object in objects.iter().filter(|it| is_due(rank(&it.name))) {
        delete(client, &object.name).await?;
        writeln!(screen, "{} deleted", object.name)?;
    }
    Ok(())
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
    deleted.map_err(|error| error.context(format!("failed to delete {name}")))
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
        let mut is_told = false;
        loop {
            let found = pods.list(&ours).await.map_err(remote::call_error)?;
            let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            if found.iter().all(|pod| node(pod).is_some_and(|node| silent.contains(&node))) {
                return anyhow::Ok(());
            }
            if !is_told {
                print::note(&format!("waiting for the pods of {process} to end"));
                is_told = true;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(PODS_LIMIT, ended).await.unwrap_or_else(|_| {
        let seconds = PODS_LIMIT.as_secs();
        Err(error_with_hint(
            format!("the pods of {process} did not end within {seconds} s"),
            format!(
                "delete them with `kubectl delete pod -n {} -l k8s-app={process}` (with --force if the \
                 node is gone), and run the command again",
                namespace(client)
            ),
        ))
    })
}

/// Removes our finalizers of all objects of a kind, if the cluster has the kind, and names those of other
/// owners, which keep the kind.
async fn remove_finalizers<K>(
    client: &Client,
    is_own: fn(&str) -> bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()>
where
    K: mco_cluster::Object + kube::Resource<DynamicType = ()>,
{
    let api = mco_cluster::Api::<K>::all(client.clone());
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects.items,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(remote::call_error(error)),
    };
    for object in objects {
        let name = object.name_any();
        let others = remove_own_finalizers(&api, object, is_own).await?;
        if !others.is_empty() {
            writeln!(
                screen,
                "{} {name} stays until its finalizers of other owners are removed: {}",
                K::kind(&()),
                others.join(", ")
            )?;
        }
    }
    Ok(())
}

/// Removes our finalizers of an object. Returns those of other owners.
async fn remove_own_finalizers<K>(
    api: &mco_cluster::Api<K>,
    mut object: K,
    is_own: fn(&str) -> bool,
) -> anyhow::Result<Vec<String>>
where
    K: mco_cluster::Object,
{
    let name = object.name_any();
    for _ in 0..ATTEMPTS {
        let finalizers = object.finalizers();
        let others = finalizers.iter().filter(|one| !is_own(one)).cloned().collect::<Vec<_>>();
        if others.len() == finalizers.len() {
            return Ok(others);
        }
        // The patch has the whole list: a finalizer that another process adds now must not be lost.
        let version = object.resource_version();
        let metadata = json!({"finalizers": &others, "resourceVersion": version});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(others),
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(remote::call_error(error)),
        }
        match api.get(&name).await {
            Ok(newer) => object = newer,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(remote::call_error(error)),
        }
    }
    Err(error_with_hint(
        format!("{name} was changed by others at each of {ATTEMPTS} attempts"),
        "run the command again",
    ))
}
