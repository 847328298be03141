//! `mco apply`: creates or updates the objects of manifests in a cluster.

use std::{io::Write as _, process::ExitCode};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use mco_cluster::{CallError, error};
use mco_core::lint::{Fault, FieldPath, Object};
use serde_json::Value;

use crate::{
    error::{FaultsError, error_with_hint},
    load::{Loaded, Sources},
    print::Screen,
    remote::{
        self, Connection,
        kinds::{Kind, Kinds},
    },
};

/// Field manager of the applied fields.
const MANAGER: &str = "mco";

/// Create or update the objects of manifests
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    sources: Sources,
    /// Namespace of objects without one
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Take over fields of other field managers
    #[arg(long)]
    force_conflicts: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco apply -f examples/99-worker-custom.yaml
  mco apply -f manifests/ -R
  mco apply -f pool.yaml --force-conflicts

Fields that the manifests do not set stay unchanged (server-side apply, field manager `mco`).";

/// The result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Configured,
    Unchanged,
}

/// Applies every object, in the order of files and lines.
pub(crate) fn run(args: &ApplyArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let Loaded { objects, faults } = args.sources.load()?;
    if faults.iter().any(Fault::is_error) {
        return Err(anyhow::Error::new(FaultsError(faults)));
    }
    if let Some(unnamed) = objects.iter().find(|object| object.name.is_empty()) {
        let fault = Fault::error("NoName", "the object has no metadata.name");
        let path = FieldPath::of("metadata");
        return Err(anyhow::Error::new(FaultsError(vec![unnamed.fault_at(&path, fault)])));
    }
    remote::block_on(async {
        let client = args.connection.client().await?;
        let mut kinds = Kinds::fetch(&client).await?;
        for object in &objects {
            if kinds.of(&object.api_version, &object.kind).is_err() {
                // An earlier object may have defined the kind.
                kinds = Kinds::fetch(&client).await?;
            }
            let kind = kinds.of(&object.api_version, &object.kind)?.clone();
            let outcome = apply(args, &client, &kind, object).await?;
            let word = match outcome {
                Outcome::Created => "created",
                Outcome::Configured => "configured",
                Outcome::Unchanged => "unchanged",
            };
            writeln!(screen, "{} {word}", kind.label(&object.name))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn apply(
    args: &ApplyArgs,
    client: &Client,
    kind: &Kind,
    object: &Object,
) -> anyhow::Result<Outcome> {
    let value: Value = serde_json::from_str(&object.root.to_json())?;
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
    let namespace = namespace.unwrap_or(&args.namespace);
    let api = api(client, kind, namespace);
    let name = object.name.as_str();
    let before = api.get_metadata_opt(name).await.map_err(remote::call_error)?;
    let mut params = PatchParams::apply(MANAGER);
    params.force = args.force_conflicts;
    let after = api.patch(name, &params, &Patch::Apply(&value)).await;
    let after = after.map_err(|error| apply_error(kind, name, error))?;
    Ok(match before {
        None => Outcome::Created,
        Some(before) if before.metadata.resource_version == after.metadata.resource_version => {
            Outcome::Unchanged
        }
        Some(_) => Outcome::Configured,
    })
}

/// Returns the API of a kind.
pub(crate) fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    let api_version = if kind.group.is_empty() {
        kind.version.clone()
    } else {
        format!("{}/{}", kind.group, kind.version)
    };
    let resource = ApiResource {
        group: kind.group.clone(),
        version: kind.version.clone(),
        api_version,
        kind: kind.name.clone(),
        plural: kind.plural.clone(),
    };
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

fn apply_error(kind: &Kind, name: &str, error: kube::Error) -> anyhow::Error {
    let label = kind.label(name);
    let error = CallError::from(error);
    if error.rejection() == Some(error::Rejection::Conflict) {
        return error_with_hint(
            format!("failed to apply {label}: {error}"),
            "another field manager owns these fields; add --force-conflicts to take them over",
        );
    }
    anyhow::Error::new(error).context(format!("failed to apply {label}"))
}
