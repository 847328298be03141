//! The processes on a cluster that is there: `mco up --kubeconfig`.
//!
//! The cluster is left alone if another operator runs it, or if its nodes are machines that this process
//! does not simulate: their updates would wait for daemons that do not run.

use std::{collections::BTreeSet, io::Write as _};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Client, ResourceExt as _, api::ListParams};
use mco_api::label;
use mco_cluster::{
    Api, Clock, Shutdown,
    client::{self, ChosenCluster, ClusterChoice, Options},
    permission,
};
use mco_core::takeover::{self, BASE_CONFIGS, Facts, Runner};
use mco_host::Root;
use tokio::task::JoinSet;

use super::{
    Settings,
    components::{self, Components},
    display::ClusterWatch,
    fleet,
    processes::{self, Joining},
    state_dir::{LOGS, StateDir},
    stop_all,
};
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    process, remote,
};

/// Leases of the processes that change a cluster, and the name of each process.
const LEASES: [(&str, &str); 2] =
    [("machine-config", "operator"), ("machine-config-controller", "controller")];

/// Maximum number of nodes named in a message.
const NAMED: usize = 3;

/// A reason why the processes are not started on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    reason: String,
    hint: String,
}

/// Runs the processes on the chosen cluster until a signal arrives or one of them cannot be started.
pub(crate) async fn run(
    state: &StateDir,
    settings: &Settings,
    choice: &ClusterChoice,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    client::use_ring();
    let chosen = choice.connect(&Options::default()).await.map_err(remote::choice_error)?;
    check(&chosen.client, state).await?;
    let kubeconfig = choice.kubeconfig().map_err(remote::choice_error)?;
    Root::create(state.dir())?.write("/kubeconfig", kubeconfig.as_bytes(), 0o600)?;
    let shutdown = Shutdown::on_signals()?;
    let ChosenCluster { client, context, server } = chosen;
    // The context of a user may name any namespace.
    let client = client::in_namespace(client, label::NAMESPACE);
    print::note(&format!("writing to context {context} at {server}"));
    mco_operator::install(&client).await?;
    let cluster = ClusterWatch::start(&client, &shutdown);
    fleet::remove_surplus(&client, state, settings).await?;
    let tasks = JoinSet::new();
    let mut components = Components { state, settings, client, shutdown: shutdown.clone(), tasks };
    let api = server.trim_end_matches('/');
    let shown = match processes::start(&mut components, api, Joining::Nothing).await {
        Err(error) => Err(error),
        Ok(None) => Ok(()),
        Ok(Some(address)) => {
            let dir = settings.shown_dir.display();
            writeln!(screen, "Kubernetes API  {api} (context {context})")?;
            writeln!(screen, "Config server   https://{address}/config/worker")?;
            writeln!(screen, "Logs            {dir}/{LOGS}/PROCESS.log\n")?;
            screen.flush()?;
            tokio::select! {
                shown = cluster.show(settings.display, screen, &shutdown) => Ok(shown?),
                failed = components::first_failure(&mut components.tasks) => Err(failed),
            }
        }
    };
    stop_all(&mut components).await;
    print::note(
        "the objects stay in the cluster: `mco uninstall` removes the kinds and the namespace, \
         `kubectl delete node NODE` a simulated node",
    );
    shown
}

async fn check(client: &Client, state: &StateDir) -> anyhow::Result<()> {
    // Fetched first, because its error says that the cluster is unreachable.
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(remote::call_error)?;
    let own = process::build();
    let suffices = |found: Option<&kube::api::ObjectMeta>| takeover::is_marked(found, &own);
    let observed = permission::observe(client, &BASE_CONFIGS, suffices).await?;
    let facts = Facts {
        controller_config: observed.controller_config.as_ref(),
        base_configs: &observed.base_configs,
    };
    let other = match takeover::runner(facts, &own) {
        Runner::Ours => None,
        Runner::Another(evidence) => Some(Refusal {
            reason: format!("another operator runs this cluster: {evidence}"),
            hint: "`mco takeover --check` lists what a takeover would change".to_owned(),
        }),
    };
    let elsewhere = remote::installation::find(client).await?;
    let elsewhere = elsewhere.filter(|found| found != label::NAMESPACE).map(|found| Refusal {
        reason: format!("the cluster has an installation in namespace {found}"),
        hint: "remove it with `mco uninstall`, or use it as it is".to_owned(),
    });
    let leases = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE).list(&all).await;
    let leases = leases.map_err(remote::call_error)?.items;
    let disks: BTreeSet<String> = state.nodes()?.into_iter().collect();
    let refusal = other.or(elsewhere).or_else(|| leader(&leases, Clock::System.now()));
    match refusal.or_else(|| machines(&nodes.items, &disks)) {
        Some(Refusal { reason, hint }) => Err(error_with_hint(reason, hint)),
        None => Ok(()),
    }
}

/// Refuses a cluster that a process of an operator leads now.
fn leader(leases: &[Lease], now: Timestamp) -> Option<Refusal> {
    leases.iter().find_map(|lease| {
        let name = lease.name_any();
        let (_, process) = LEASES.iter().find(|(known, _)| *known == name)?;
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
        let MicroTime(renewed) = spec.renew_time.as_ref()?;
        let valid = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
        let end = renewed.checked_add(valid).ok()?;
        (end > now).then(|| Refusal {
            reason: format!("{holder} already runs the {process} of this cluster"),
            hint: format!(
                "stop that process, or wait until {end:.0} if it was killed: Lease {}/{name}",
                label::NAMESPACE
            ),
        })
    })
}

/// Refuses a cluster with nodes that are real machines, or simulated ones of another directory.
fn machines(nodes: &[Node], disks: &BTreeSet<String>) -> Option<Refusal> {
    let names = |is: &dyn Fn(&Node) -> bool| -> Option<String> {
        let found: Vec<String> = nodes.iter().filter(|it| is(it)).map(Node::name_any).collect();
        let named = found.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        match found.len().saturating_sub(NAMED) {
            0 if found.is_empty() => None,
            0 => Some(named),
            more => Some(format!("{named} and {more} more")),
        }
    };
    if let Some(real) = names(&|node| !fleet::is_simulated(node)) {
        return Some(Refusal {
            reason: format!("the cluster has nodes that are no simulated machines: {real}"),
            hint: "real nodes need the daemon on each of them: `mco install | kubectl apply -f -`"
                .to_owned(),
        });
    }
    let others = names(&|node| !disks.contains(&node.name_any()))?;
    Some(Refusal {
        reason: format!("the disks of simulated nodes are in another directory: {others}"),
        hint: "name that directory with --dir, or run `kubectl delete node NODE`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn a_live_leader_is_left_alone() {
        let now: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let (fresh, old) = ("2026-01-01T00:00:10.000000Z", "2026-01-01T00:00:01.000000Z");
        let refusal = leader(&[lease("machine-config", "host_1", fresh)], now).unwrap();
        assert_eq!(refusal.reason, "host_1 already runs the operator of this cluster");
        assert!(refusal.hint.contains("2026-01-01T00:00:25Z"), "{}", refusal.hint);
        for free in [
            lease("machine-config", "host_1", old),
            lease("machine-config-controller", "", fresh),
            lease("other", "host_1", fresh),
        ] {
            assert_eq!(leader(&[free], now), None);
        }
    }

    #[test]
    fn only_simulated_machines_of_this_directory_are_accepted() {
        let node = |name: &str, os: &str| -> Node {
            let info = json!({"architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": os, "systemUUID": ""});
            serde_json::from_value(
                json!({"metadata": {"name": name}, "status": {"nodeInfo": info}}),
            )
            .unwrap()
        };
        let disks = BTreeSet::from(["worker-0".to_owned()]);
        let simulated = |name: &str| node(name, "Simulated CoreOS");
        assert_eq!(machines(&[], &disks), None);
        assert_eq!(machines(&[simulated("worker-0")], &disks), None);
        let refusal = machines(&[simulated("worker-0"), simulated("worker-9")], &disks).unwrap();
        assert!(refusal.reason.ends_with("in another directory: worker-9"), "{}", refusal.reason);
        let real: Vec<Node> = (0..5).map(|it| node(&format!("n{it}"), "Debian")).collect();
        let refusal = machines(&real, &disks).unwrap();
        assert!(refusal.reason.ends_with("machines: n0, n1, n2 and 2 more"), "{}", refusal.reason);
    }
}
