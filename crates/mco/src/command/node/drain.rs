//! `mco node drain`: cordons a node and evicts its pods, within their disruption budgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::ExitCode,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
};
use mco_cluster::{Api, CallError, error::Rejection, report};
use mco_core::drain::{
    PodTreatment, PodView,
    feasibility::{EvictionCause, EvictionObstacle, Feasibility, feasibility},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    duration::Timeout,
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Access, Connection},
};

/// Pause between two looks at the pods of the node.
const INTERVAL: Duration = Duration::from_millis(500);

/// Pause before a refused eviction is requested again.
const RETRY: Duration = Duration::from_secs(2);

/// Maximum number of pods named in an error.
const NAMED: usize = 5;

/// Make a node unschedulable and evict its pods, within their disruption budgets
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a flag of the command line")]
pub(super) struct DrainArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: String,
    /// Time after which the command fails, such as 10m; no limit if omitted
    #[arg(long, value_name = "TIME")]
    timeout: Option<Timeout>,
    /// Evict pods that no controller recreates, too
    #[arg(long)]
    force: bool,
    /// Evict pods that keep data on the node, too; the data is lost
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Accepted as by kubectl: pods of DaemonSets always stay
    #[arg(long, hide = true)]
    ignore_daemonsets: bool,
    /// Print the pods and what would block them, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco node drain worker-0 --dry-run
  mco node drain worker-0 --timeout 10m
  mco node uncordon worker-0

Pods of DaemonSets and static pods stay. A pod that a PodDisruptionBudget protects is named with
the budget, and its eviction is requested again until it is allowed. Nothing is changed if a pod
would be lost and no flag allows it. The node stays cordoned, and is not updated, until it is
uncordoned.";

/// Cordons and drains the node.
pub(super) fn run(args: &DrainArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let access = Access::of_dry_run(args.dry_run);
        let client = args.connection.client_for(access).await?;
        let node = remote::node(&client, &args.node).await?;
        let outlook = feasibility(&args.node, &all_pods(&client).await?, &budgets(&client).await?);
        refuse_losses(args, &outlook)?;
        note_kept(&pods(&client, &args.node).await?);
        if args.dry_run {
            forecast(&outlook, screen)?;
            return Ok(ExitCode::SUCCESS);
        }
        if node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default() {
            writeln!(screen, "node/{} already cordoned", args.node)?;
        } else {
            let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
            let nodes = kube::Api::<Node>::all(client.clone());
            let patched = nodes.patch(&args.node, &PatchParams::default(), &patch).await;
            patched.map_err(remote::call_error)?;
            writeln!(screen, "node/{} cordoned", args.node)?;
        }
        screen.flush()?;
        print::note(&format!(
            "if stopped, the node stays cordoned: `mco node uncordon {}`",
            args.node
        ));
        let mut drain = Drain { client: &client, node: &args.node, pods: BTreeMap::new() };
        let until = args.timeout.and_then(|Timeout(limit)| {
            Instant::now().checked_add(limit).map(|until| (limit, until))
        });
        while !drain.step(screen).await? {
            if let Some((limit, _)) = until.filter(|(_, until)| Instant::now() >= *until) {
                return Err(drain.overdue(limit));
            }
            tokio::time::sleep(INTERVAL).await;
        }
        writeln!(screen, "node/{} drained", args.node)?;
        print::note(&format!("`mco node uncordon {}` returns the node", args.node));
        Ok(ExitCode::SUCCESS)
    })
}

/// Lists the pods of all nodes.
async fn all_pods(client: &Client) -> anyhow::Result<Vec<Pod>> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await;
    Ok(pods.map_err(remote::call_error)?.items)
}

/// Lists the pods of a node.
async fn pods(client: &Client, node: &str) -> anyhow::Result<Vec<Pod>> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(client.clone()).list(&params).await;
    Ok(pods.map_err(remote::call_error)?.items)
}

/// Lists the budgets of all namespaces.
async fn budgets(client: &Client) -> anyhow::Result<Vec<PodDisruptionBudget>> {
    let budgets = Api::<PodDisruptionBudget>::all(client.clone());
    let budgets = budgets.list(&ListParams::default()).await;
    Ok(budgets.map_err(remote::call_error)?.items)
}

/// Fails if the drain would lose pods or data that no flag gives up.
fn refuse_losses(args: &DrainArgs, outlook: &Feasibility) -> anyhow::Result<()> {
    let is_kept = |loss: &&EvictionObstacle| match loss.cause {
        EvictionCause::Bare => !args.force,
        EvictionCause::LocalData(_) => !args.delete_emptydir_data,
        EvictionCause::NeverAllowed { .. }
        | EvictionCause::SeveralBudgets(_)
        | EvictionCause::NotNow { .. }
        | EvictionCause::Leaving => false,
    };
    let kept: Vec<&EvictionObstacle> = outlook.losses.iter().filter(is_kept).collect();
    let Some(first) = kept.first() else { return Ok(()) };
    let is_bare = first.cause == EvictionCause::Bare;
    let flag = if is_bare { "--force" } else { "--delete-emptydir-data" };
    let names = kept.iter().map(|loss| format!("pod {}: {}", loss.pod, loss.cause));
    Err(error_with_hint(
        format!("nothing was changed: {}", named(names.collect())),
        format!("add {flag} to evict such pods, too"),
    ))
}

/// Prints the pods that stay.
fn note_kept(pods: &[Pod]) {
    let stays =
        |view: &PodView| matches!(view.treatment, PodTreatment::DaemonSet | PodTreatment::Mirror);
    let kept: Vec<String> =
        pods.iter().map(PodView::of).filter(stays).map(|view| view.to_string()).collect();
    if !kept.is_empty() {
        print::note(&format!("pods of DaemonSets and static pods stay: {}", named(kept)));
    }
}

/// Prints the pods to evict, and what would block them.
fn forecast(outlook: &Feasibility, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let obstacles = || outlook.blockers.iter().chain(&outlook.waits);
    for pod in &outlook.evict {
        match obstacles().find(|it| it.pod == *pod) {
            Some(obstacle) => writeln!(screen, "pod {pod} waits: {}", obstacle.cause)?,
            None => writeln!(screen, "pod {pod} is evicted")?,
        }
    }
    for leaving in outlook.waits.iter().filter(|it| !outlook.evict.contains(&it.pod)) {
        writeln!(screen, "pod {} is {}", leaving.pod, leaving.cause)?;
    }
    Ok(())
}

fn named(mut texts: Vec<String>) -> String {
    let more = texts.len().saturating_sub(NAMED);
    texts.truncate(NAMED);
    texts.extend((more > 0).then(|| format!("{more} more")));
    texts.join("; ")
}

/// A drain in progress.
struct Drain<'a> {
    client: &'a Client,
    node: &'a str,
    /// Pods of the node, with the state of each eviction.
    pods: BTreeMap<String, Eviction>,
}

/// The state of an eviction.
enum Eviction {
    /// The API server accepted the eviction.
    Accepted,
    /// The API server refused the eviction, for this reason; the next request is due then.
    Refused(String, Instant),
}

impl Drain<'_> {
    /// Requests the evictions that are due; returns true if no pod is left.
    async fn step(&mut self, screen: &mut Screen<'_>) -> anyhow::Result<bool> {
        let pods: Vec<Pod> = pods(self.client, self.node).await?;
        let left: Vec<(&Pod, PodView)> = pods
            .iter()
            .map(|pod| (pod, PodView::of(pod)))
            .filter(|(_, view)| view.blocks_drain())
            .collect();
        let names: BTreeSet<String> = left.iter().map(|(_, view)| view.to_string()).collect();
        for gone in self.pods.keys().filter(|name| !names.contains(*name)) {
            writeln!(screen, "pod {gone} evicted")?;
        }
        self.pods.retain(|name, _| names.contains(name));
        let now = Instant::now();
        for (_, view) in &left {
            let is_due = match self.pods.get(&view.to_string()) {
                None => view.treatment == PodTreatment::Evict,
                Some(Eviction::Accepted) => false,
                Some(Eviction::Refused(_, until)) => *until <= now,
            };
            if is_due {
                self.evict(view, screen).await?;
            }
        }
        screen.flush()?;
        Ok(left.is_empty())
    }

    async fn evict(&mut self, view: &PodView, screen: &mut Screen<'_>) -> anyhow::Result<()> {
        let api = Api::<Pod>::namespaced(self.client.clone(), &view.namespace);
        let state = match api.evict(&view.name, &view.uid).await.map_err(CallError::from) {
            Ok(()) => {
                writeln!(screen, "evicting pod {view}")?;
                Eviction::Accepted
            }
            // The pod is gone already; another one may have its name.
            Err(error) if error.is_not_found() || error.is_of_other_uid() => return Ok(()),
            Err(error) if error.rejection() == Some(Rejection::TooManyRequests) => {
                let cause = self.cause(view).await?;
                let cause = cause.unwrap_or_else(|| report::chain(&error));
                let known = self.pods.get(&view.to_string());
                let is_known =
                    matches!(known, Some(Eviction::Refused(before, _)) if *before == cause);
                if !is_known {
                    writeln!(screen, "pod {view} waits: {cause}")?;
                }
                Eviction::Refused(cause, Instant::now() + RETRY)
            }
            Err(error) => {
                let failed = anyhow::Error::new(error);
                return Err(failed.context(format!("failed to evict pod {view}")));
            }
        };
        self.pods.insert(view.to_string(), state);
        Ok(())
    }

    /// Returns the budget that protects a pod, with what it requires.
    async fn cause(&self, view: &PodView) -> anyhow::Result<Option<String>> {
        // A budget counts its pods on all nodes.
        let pods = all_pods(self.client).await?;
        let found = feasibility(self.node, &pods, &budgets(self.client).await?);
        let mut obstacles = found.blockers.into_iter().chain(found.waits);
        let obstacle = obstacles.find(|it| it.pod == view.to_string());
        Ok(obstacle.map(|it| it.cause.to_string()))
    }

    fn overdue(&self, limit: Duration) -> anyhow::Error {
        let pods = self.pods.iter().map(|(pod, state)| match state {
            Eviction::Accepted => format!("pod {pod}: terminating"),
            Eviction::Refused(why, _) => format!("pod {pod}: {why}"),
        });
        let (node, pods) = (self.node, named(pods.collect()));
        error_with_hint(
            format!("node {node} is not drained after {} s: {pods}", limit.as_secs()),
            format!("the node stays cordoned; `mco node uncordon {node}` returns it"),
        )
    }
}
