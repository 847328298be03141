//! `mco delete`: deletes objects of a cluster.

use std::{io::Write as _, process::ExitCode};

use kube::{
    Client,
    api::{DeleteParams, ListParams},
};
use serde_json::Value;

use super::apply::api;
use crate::{
    error::error_with_hint,
    load::{ChangeSources, Loaded},
    print::Screen,
    remote::{
        self, Access, Connection,
        kinds::{Kind, Kinds},
    },
};

/// Delete objects of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a flag of the command line")]
pub(crate) struct DeleteArgs {
    /// Kind, or `KIND/NAME`
    #[arg(value_name = "KIND", conflicts_with_all = ["paths", "kustomize"])]
    kind: Option<String>,
    /// Names of objects
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    sources: ChangeSources,
    /// Delete the objects of the kind with these labels, such as `role=worker,tier!=db`
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "names")]
    selector: Option<String>,
    /// Delete all objects of the kind
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    all: bool,
    /// Namespace of the objects; that of the context if omitted
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// With --selector or --all: delete the objects of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Objects that do not exist are no error
    #[arg(long)]
    ignore_not_found: bool,
    /// Print what would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco delete mc 99-worker-custom
  mco delete mc/99-worker-custom
  mco delete -f examples/99-worker-custom.yaml
  mco delete -k deploy/
  mco delete mc -l team=web --dry-run";

/// An object to delete.
struct Target {
    kind: Kind,
    namespace: String,
    name: String,
}

/// Deletes the objects in order.
pub(crate) fn run(args: &DeleteArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    if args.kind.is_none() && args.sources.is_empty() {
        let hint = "run `mco delete KIND NAME`, or name manifests with -f PATH";
        return Err(error_with_hint("no object named", hint));
    }
    // Read first: a URL is fetched on a runtime of its own.
    let manifests = if args.sources.is_empty() { None } else { Some(args.sources.load()?) };
    remote::block_on(async {
        let access = Access::of_dry_run(args.dry_run);
        let client = args.connection.client_for(access).await?;
        let kinds = Kinds::fetch(&client).await?;
        for target in targets(args, manifests.as_ref(), &client, &kinds).await? {
            delete(args, &client, &target, screen).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn delete(
    args: &DeleteArgs,
    client: &Client,
    target: &Target,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let Target { kind, namespace, name } = target;
    let api = api(client, kind, namespace);
    let params = DeleteParams { dry_run: args.dry_run, ..DeleteParams::default() };
    let suffix = if args.dry_run { " (server dry run)" } else { "" };
    match api.delete(name, &params).await {
        Ok(_) => writeln!(screen, "{} \"{name}\" deleted{suffix}", kind.qualified_singular())?,
        Err(kube::Error::Api(status)) if status.code == 404 && args.ignore_not_found => {}
        Err(error) => return Err(remote::call_error(error)),
    }
    Ok(())
}

async fn targets(
    args: &DeleteArgs,
    manifests: Option<&Loaded>,
    client: &Client,
    kinds: &Kinds,
) -> anyhow::Result<Vec<Target>> {
    let namespace = args.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let Some(word) = &args.kind else { return of_manifests(manifests, kinds, &namespace) };
    let (word, first) = match word.split_once('/') {
        Some((kind, name)) => (kind, Some(name.to_owned())),
        None => (word.as_str(), None),
    };
    let kind = kinds.resolve(word)?;
    if args.selector.is_some() || args.all {
        return selected(args, client, kind, &namespace).await;
    }
    let names: Vec<String> = first.into_iter().chain(args.names.iter().cloned()).collect();
    if names.is_empty() {
        let hint = "run `mco delete KIND NAME`, or choose objects with -l SELECTOR or --all";
        return Err(error_with_hint("no object named", hint));
    }
    let target = |name| Target { kind: kind.clone(), namespace: namespace.clone(), name };
    Ok(names.into_iter().map(target).collect())
}

/// Returns the objects of the manifests, the last one first: later ones depend on earlier ones.
fn of_manifests(
    manifests: Option<&Loaded>,
    kinds: &Kinds,
    namespace: &str,
) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for object in manifests.into_iter().flat_map(|it| it.objects.iter().rev()) {
        let value: Value = serde_json::from_str(&object.root.to_json())?;
        let own = value.pointer("/metadata/namespace").and_then(Value::as_str);
        targets.push(Target {
            kind: kinds.of(&object.api_version, &object.kind)?.clone(),
            namespace: own.unwrap_or(namespace).to_owned(),
            name: object.name.clone(),
        });
    }
    Ok(targets)
}

async fn selected(
    args: &DeleteArgs,
    client: &Client,
    kind: &Kind,
    namespace: &str,
) -> anyhow::Result<Vec<Target>> {
    let mut params = ListParams::default();
    params.label_selector.clone_from(&args.selector);
    let api = if args.all_namespaces {
        kube::Api::all_with(client.clone(), &kind.resource())
    } else {
        api(client, kind, namespace)
    };
    let found = api.list_metadata(&params).await.map_err(remote::call_error)?;
    if found.items.is_empty() {
        crate::print::note("no objects found");
    }
    let target = |metadata: kube::api::ObjectMeta| Target {
        kind: kind.clone(),
        namespace: metadata.namespace.unwrap_or_else(|| namespace.to_owned()),
        name: metadata.name.unwrap_or_default(),
    };
    Ok(found.items.into_iter().map(|object| target(object.metadata)).collect())
}
