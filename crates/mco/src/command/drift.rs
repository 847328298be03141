//! `mco drift`: shows the nodes whose files or units differ from their config, restores the config, or
//! adopts the differences.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt};
use mco_apply::verify;
use mco_core::{
    drift::{self, Difference, Observed, ReportedDrift, Want},
    force::ForcePlan,
    machine::Machine,
    rollout::NodeView,
    status::explain,
};
use serde_json::{Value, json};

use super::{diff, host, node::force};
use crate::{
    diff::{Attribute, Change, ChangeKind, Secrets, contents},
    error::error_with_hint,
    print::{self, Screen, visible},
    reference::ClusterObjects,
    remote::{self, Access, Connection},
};

/// Show the nodes whose files or units differ from their config; restore or adopt the differences
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a flag of the command line")]
pub(crate) struct DriftArgs {
    /// Node to show; all nodes if omitted
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Have the daemons write the whole config again, whatever the files are; this reboots the nodes
    #[arg(long, conflicts_with = "adopt")]
    fix: bool,
    /// Print a MachineConfig with the present contents of the files and units that differ
    #[arg(long, requires = "node")]
    adopt: bool,
    /// With --fix: do not ask
    #[arg(long, short)]
    yes: bool,
    /// Root directory of the node's disk on this machine; known for nodes of `mco up`
    #[arg(long, value_name = "DIR", requires = "node")]
    root: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show lines that look like passwords, tokens or private keys
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco drift                                       every node that differs
  mco drift worker-0                              one node
  mco drift worker-0 --root /                     on the node itself: every difference
  mco drift worker-0 --fix                        write the config again and reboot the node
  mco drift worker-0 --adopt | mco apply -f -     keep the present contents, on the whole pool

A daemon reports the first difference. All differences and their contents are shown where the
disk of the node is on this machine: for nodes of `mco up`, and with --root. `--fix` forces the
node as `mco node force` does. After `--adopt`, `mco node force NODE` has the node take the new
config as it is. Pools with the annotation machineconfiguration.openshift.io/drift-policy: heal
are repaired without a reboot.

Exit status: 0 no node differs, or the nodes are restored; 1 nodes differ; 2 failure.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// A node that differs from its config.
struct DriftedNode {
    name: String,
    pool: Option<String>,
    config: String,
    findings: Findings,
}

/// The knowledge about the differences of a node.
enum Findings {
    /// The first difference, as the daemon reports it.
    Reported(String),
    /// All differences, found on the disk.
    Found(Box<Machine>, Vec<Difference>),
}

/// Shows, restores or adopts the differences.
pub(crate) fn run(args: &DriftArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client_for(Access::of_dry_run(!args.fix)).await?;
        let objects = ClusterObjects::fetch(&client).await?;
        let nodes: Vec<&Node> = match &args.node {
            Some(name) => vec![objects.node(name)?],
            None => objects.nodes.iter().collect(),
        };
        let mut drifted = Vec::new();
        for node in nodes {
            drifted.extend(inspect(args, &objects, node)?);
        }
        if args.adopt {
            return adopt(&drifted, screen);
        }
        match args.output {
            Output::Json => {
                let document: Vec<Value> = drifted.iter().map(DriftedNode::to_json).collect();
                writeln!(screen, "{}", serde_json::to_string_pretty(&document)?)?;
            }
            Output::Text => show(args, &drifted, screen)?,
        }
        if args.fix && !drifted.is_empty() {
            return fix(args, &client, &drifted, screen).await;
        }
        Ok(ExitCode::from(u8::from(!drifted.is_empty())))
    })
}

/// Compares a node with its config, on its disk if that is reachable.
fn inspect(
    args: &DriftArgs,
    objects: &ClusterObjects,
    node: &Node,
) -> anyhow::Result<Option<DriftedNode>> {
    let view = NodeView::of(node);
    let reported = ReportedDrift::of(&view);
    let pool = objects.pool_of(node).map(ResourceExt::name_any);
    let named = |config: &str, findings| DriftedNode {
        name: view.name.clone(),
        pool: pool.clone(),
        config: config.to_owned(),
        findings,
    };
    let disk = args.root.clone().or_else(|| args.connection.disk(&view.name));
    // The files of a node that is updating belong to either of two configs.
    let disk = disk.filter(|_| reported.is_some() || view.is_done() || view.is_degraded());
    if let Some(disk) = disk {
        let machine = Machine::read(objects.rendered(&view.current)?)?;
        let found = verify::inspect(&host::open_machine(&disk)?, &machine);
        if !found.is_empty() {
            return Ok(Some(named(&view.current, Findings::Found(Box::new(machine), found))));
        }
    }
    Ok(reported.map(|it| named(&it.config, Findings::Reported(it.difference))))
}

fn show(args: &DriftArgs, drifted: &[DriftedNode], screen: &mut Screen<'_>) -> anyhow::Result<()> {
    if drifted.is_empty() {
        let subject = args.node.as_ref().map(|node| format!("node {node} does not differ"));
        let text = subject.unwrap_or_else(|| "no node differs".to_owned());
        writeln!(screen, "{text} from its config")?;
        return Ok(());
    }
    let secrets = if args.show_secrets { Secrets::Show } else { Secrets::Hide };
    for node in drifted {
        writeln!(screen, "node {} differs from {}:", node.name, node.config)?;
        match &node.findings {
            Findings::Reported(text) => writeln!(screen, "  {}", visible(text))?,
            Findings::Found(_, differences) => {
                for difference in differences {
                    writeln!(screen, "  {}", visible(&difference.drift.to_string()))?;
                    if let Some(change) = change(difference, secrets) {
                        diff::print(&change, screen)?;
                    }
                }
            }
        }
    }
    screen.flush()?;
    if drifted.iter().any(|node| matches!(node.findings, Findings::Reported(_))) {
        print::note(
            "a daemon reports its first difference; `mco host verify` on the node lists all",
        );
    }
    if !args.fix {
        let names = args.node.as_ref().map(|node| format!(" {node}")).unwrap_or_default();
        print::note(&format!(
            "`mco drift{names} --fix` restores the config; --adopt keeps the present contents"
        ));
    }
    Ok(())
}

/// Returns the change of a file's contents and mode; `None` for other differences.
fn change(difference: &Difference, secrets: Secrets) -> Option<Change> {
    let Want::File { mode, contents: want, .. } = &difference.expected.want else { return None };
    let (operation, found_mode, found): (_, _, &[u8]) = match &difference.observed {
        Observed::Present { mode, contents, .. } => {
            (ChangeKind::Changed, mode.permissions(), contents)
        }
        Observed::Missing => (ChangeKind::Removed, None, &[]),
        Observed::Link(_) | Observed::Enablement(_) | Observed::Unreadable(_) => return None,
    };
    let shown = |mode: Option<u32>| mode.map(|mode| format!("{mode:04o}"));
    let (old, new) = (shown(Some(*mode)), shown(found_mode));
    let attributes = vec![Attribute { name: "mode", old, new }];
    let attributes = attributes.into_iter().filter(|it| it.old != it.new).collect();
    let name = difference.expected.path.clone();
    let contents = contents(want, found, secrets);
    Some(Change { kind: "file", name, operation, attributes, contents })
}

impl DriftedNode {
    fn to_json(&self) -> Value {
        let (is_complete, differences) = match &self.findings {
            Findings::Reported(text) => (false, vec![json!({"message": text})]),
            Findings::Found(_, differences) => {
                let entry = |it: &Difference| json!({"message": it.drift.to_string(), "path": it.expected.path});
                (true, differences.iter().map(entry).collect())
            }
        };
        json!({
            "node": self.name, "pool": self.pool, "config": self.config,
            "complete": is_complete, "differences": differences,
        })
    }
}

/// Forces each node to its config.
async fn fix(
    args: &DriftArgs,
    client: &Client,
    drifted: &[DriftedNode],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let names: Vec<&str> = drifted.iter().map(|node| node.name.as_str()).collect();
    let names = names.join(", ");
    print::note(
        "each daemon writes every file of the desired config again; its node is drained and rebooted",
    );
    if !args.yes && !print::confirm(&format!("restore {names}?"))? {
        return Err(error_with_hint("nothing was changed", "add --yes to restore without asking"));
    }
    for node in drifted {
        let plan = ForcePlan { node: node.name.clone(), to: node.config.clone(), retargets: false };
        force::request(client, &plan).await?;
        writeln!(screen, "node/{} restores its config", node.name)?;
    }
    print::note("follow the nodes with `mco status -w`");
    Ok(ExitCode::SUCCESS)
}

/// Prints a MachineConfig with the present state of a node.
fn adopt(drifted: &[DriftedNode], screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let [node] = drifted else {
        // Standard output has the MachineConfig, and nothing else.
        print::note("the node does not differ from its config");
        return Ok(ExitCode::SUCCESS);
    };
    let Findings::Found(machine, differences) = &node.findings else {
        return Err(error_with_hint(
            format!("the disk of node {} is not on this machine", node.name),
            "run the command on the node with --root /, or name a copy of its files with --root DIR",
        ));
    };
    let Some(pool) = &node.pool else {
        return Err(error_with_hint(
            format!("node {} belongs to no pool", node.name),
            explain::JOIN_POOL,
        ));
    };
    // The last MachineConfig by name wins; the names of generated ones begin with 99 and a pool.
    let name = format!("99-zz-drift-{}", node.name);
    let adoption = drift::adopt(&name, pool, machine, differences);
    for left in &adoption.left {
        print::note(&format!("not adopted: {left}"));
    }
    let Some(config) = &adoption.config else {
        return Err(error_with_hint(
            format!("no difference of node {} can be adopted", node.name),
            "restore the node with --fix",
        ));
    };
    screen.write_all(serde_saphyr::to_string(config)?.as_bytes())?;
    print::note(&format!(
        "every node of pool {pool} gets these contents; after `mco apply`, `mco node force {}` has the \
         node take them as they are",
        node.name
    ));
    Ok(ExitCode::SUCCESS)
}
