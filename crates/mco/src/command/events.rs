//! `mco events`: what the operator, the controller, the server and the daemons reported.

use std::{io::Write as _, process::ExitCode};

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use mco_cluster::Api;
use serde_json::json;

use crate::{
    print,
    print::Screen,
    remote::{self, Connection, table},
};

/// Show the events of pools, nodes and configs, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EventsArgs {
    /// Pool, node or other object; all if omitted
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show warnings only
    #[arg(long)]
    warnings: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco events                 the events of the last hour or so, oldest first
  mco events worker-0        of one node
  mco events --warnings";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// Prefixes of the names under which the processes report.
const REPORTERS: [&str; 2] = ["machineconfig", "machine-config"];

/// Prints the events.
pub(crate) fn run(args: &EventsArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let api = Api::<Event>::all(client);
        let list = api.list(&ListParams::default()).await.map_err(remote::call_error)?;
        let mut events: Vec<&Event> = list.items.iter().filter(|it| is_shown(args, it)).collect();
        events.sort_by_key(|event| time(event));
        if events.is_empty() {
            let about = args.name.as_ref().map(|name| format!(" about {name}")).unwrap_or_default();
            print::note(&format!("there are no events{about}; they are kept for an hour"));
        }
        match args.output {
            Output::Table => {
                let titles = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
                let mut lines = vec![titles.map(str::to_owned).to_vec()];
                lines.extend(events.iter().map(|event| cells(event)));
                table::write(screen, &lines)?;
            }
            Output::Json => {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": events});
                writeln!(screen, "{}", serde_json::to_string_pretty(&list)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn is_shown(args: &EventsArgs, event: &Event) -> bool {
    let regarding = event.regarding.as_ref();
    let group = regarding.and_then(|it| it.api_version.as_deref()).unwrap_or_default();
    let reporter = event.reporting_controller.as_deref().unwrap_or_default();
    let reporter = reporter.rsplit('/').next().unwrap_or_default();
    let is_ours = group.starts_with(mco_api::GROUP)
        || REPORTERS.iter().any(|prefix| reporter.starts_with(prefix));
    let name = regarding.and_then(|it| it.name.as_deref());
    is_ours
        && args.name.as_deref().is_none_or(|wanted| name == Some(wanted))
        && (!args.warnings || event.type_.as_deref() == Some("Warning"))
}

/// Returns the time at which the event happened last.
fn time(event: &Event) -> Timestamp {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let own = || event.event_time.as_ref().map(|time| time.0);
    let old = || event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    series.or_else(own).or_else(old).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn cells(event: &Event) -> Vec<String> {
    let regarding = event.regarding.as_ref();
    let object = regarding.map(|it| {
        let kind = it.kind.as_deref().unwrap_or_default().to_lowercase();
        format!("{kind}/{}", it.name.as_deref().unwrap_or_default())
    });
    let note = event.note.as_deref().unwrap_or_default().replace('\n', " ");
    vec![
        format!("{:.0}", time(event)),
        event.type_.clone().unwrap_or_default(),
        event.reason.clone().unwrap_or_default(),
        object.unwrap_or_default(),
        note,
    ]
}
