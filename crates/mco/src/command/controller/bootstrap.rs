//! `mco controller bootstrap`: renders the pools and configs of a cluster that is not running yet.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use kube::ResourceExt as _;
use mco_api::{ControllerConfig, object_yaml};
use mco_controller::bootstrap::{self, BootstrapManifests, BootstrapOutput, BuiltIns};
use mco_core::lint::{Fault, Object, SpannedValue};
use mco_host::{Root, input};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::{FaultsError, error_with_hint},
    load::{self, Loaded, MAX_FILE_SIZE, Sources},
    print, process,
};

/// Render the pools of a cluster that is not running yet
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BootstrapArgs {
    /// Directory with the manifests: ControllerConfig, feature gate, pools, MachineConfigs
    #[arg(long, value_name = "DIR")]
    manifest_dir: PathBuf,
    /// Output directory for machine-pools/, machine-configs/ and controller-config/
    #[arg(long, value_name = "DIR")]
    dest_dir: PathBuf,
    /// File with the pull secret, a Secret of type kubernetes.io/dockerconfigjson
    #[arg(long, value_name = "FILE")]
    pull_secret: Option<PathBuf>,
    /// Accepted for compatibility, without effect: the ControllerConfig names the release
    #[arg(long, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot", value_name = "VERSION")]
    payload_version: String,
}

const EXAMPLES: &str = "\
Examples:
  mco controller bootstrap --manifest-dir manifests --dest-dir out";

/// Compat: modes of the written files and directories (pkg/controller/bootstrap).
const FILE_MODE: u32 = 0o664;
const DIRECTORY_MODE: u32 = 0o764;

/// Roles with a base config in every cluster.
const ROLES: [&str; 2] = ["master", "worker"];

/// Kinds from which the reference makes configs and this command does not.
const IGNORED_KINDS: &[&str] = &[
    "ImageContentSourcePolicy",
    "ImageDigestMirrorSet",
    "ImageTagMirrorSet",
    "Image",
    "ClusterImagePolicy",
    "ImagePolicy",
    "Node",
];

pub(super) fn run(args: &BootstrapArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.pull_secret {
        check_pull_secret(path)?;
    }
    let sources = Sources { paths: vec![args.manifest_dir.clone()], recursive: false };
    let (given, api_server) = sort_by_kind(sources.load()?, &args.manifest_dir)?;
    let build = process::build();
    let base = |cluster: &ControllerConfig| {
        let config = |role: &str| mco_operator::base_config(role, &build, cluster);
        ROLES.map(config).to_vec()
    };
    let pools = mco_operator::built_in_pools();
    let furnishing = BuiltIns { build: &build, base: &base, pools: &pools };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let made = runtime.block_on(bootstrap::run(given, &furnishing))?;
    write(&args.dest_dir, &made, api_server.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the manifests by kind, and the `APIServer`, which is copied to the output.
fn sort_by_kind(loaded: Loaded, dir: &Path) -> anyhow::Result<(BootstrapManifests, Option<Value>)> {
    let mut given =
        BootstrapManifests { dir: dir.display().to_string(), ..BootstrapManifests::default() };
    let (mut faults, mut api_server) = (loaded.faults, None);
    for object in &loaded.objects {
        let (group, _) = object.api_version.split_once('/').unwrap_or(("", ""));
        let is_cluster = object.name == "cluster";
        match (group, object.kind.as_str()) {
            (mco_api::GROUP, "ControllerConfig") => {
                given.controller_config =
                    typed(object, &mut faults).map(Box::new).or(given.controller_config);
            }
            (mco_api::GROUP, "MachineConfigPool") => given.pools.extend(typed(object, &mut faults)),
            (mco_api::GROUP, "MachineConfig") => given.configs.extend(typed(object, &mut faults)),
            (mco_api::GROUP, "KubeletConfig") => {
                given.kubelet_configs.extend(typed(object, &mut faults));
            }
            (mco_api::GROUP, "ContainerRuntimeConfig") => {
                given.runtime_configs.extend(typed(object, &mut faults));
            }
            (mco_api::GROUP, "OSImageStream") => {
                given.os_image_stream = typed(object, &mut faults).map(Box::new);
            }
            (mco_api::GROUP, "MachineOSConfig" | "InternalReleaseImage") => {
                return Err(error_with_hint(
                    format!("{} is not supported", object.label()),
                    format!("remove the object from {}", dir.display()),
                ));
            }
            ("config.openshift.io", "FeatureGate") => given.has_feature_gate |= is_cluster,
            ("config.openshift.io", "APIServer") if is_cluster => {
                api_server = typed::<Value>(object, &mut faults);
            }
            (_, kind) if IGNORED_KINDS.contains(&kind) => {
                print::note(&format!("ignored {}: its kind is not supported", object.label()));
            }
            _ => {}
        }
    }
    if faults.iter().any(Fault::is_error) {
        return Err(anyhow::Error::new(FaultsError(faults)));
    }
    Ok((given, api_server))
}

fn typed<T: DeserializeOwned>(object: &Object, faults: &mut Vec<Fault>) -> Option<T> {
    object.root.typed::<T>().map_err(|error| faults.push(object.type_fault(error))).ok()
}

fn check_pull_secret(path: &Path) -> anyhow::Result<()> {
    let bytes = input::file(path, MAX_FILE_SIZE)?;
    let loaded = load::text(path, bytes);
    let is_secret = |object: &Object| {
        let text = |name: &str| object.root.get(name).and_then(SpannedValue::as_str);
        let data = object.root.get("data").and_then(|data| data.get(".dockerconfigjson"));
        object.kind == "Secret"
            && text("type") == Some("kubernetes.io/dockerconfigjson")
            && data.is_some()
    };
    if loaded.faults.is_empty() && loaded.objects.iter().any(is_secret) {
        return Ok(());
    }
    Err(error_with_hint(
        format!("{} is not a Secret of type kubernetes.io/dockerconfigjson", path.display()),
        "create one with: kubectl create secret docker-registry NAME --from-file=.dockerconfigjson=FILE \
         --dry-run=client -o yaml",
    ))
}

fn write(dir: &Path, made: &BootstrapOutput, api_server: Option<&Value>) -> anyhow::Result<()> {
    let root = Root::create(dir)?;
    let folder = |name: &str| -> anyhow::Result<()> {
        root.create_directory(&format!("/{name}"))?;
        root.set_mode(&format!("/{name}"), DIRECTORY_MODE)?;
        Ok(())
    };
    let file = |path: String, text: String| root.write(&path, text.as_bytes(), FILE_MODE);
    folder("machine-pools")?;
    for pool in &made.pools {
        file(format!("/machine-pools/{}.yaml", pool.name_any()), yaml(pool)?)?;
    }
    folder("machine-configs")?;
    for config in &made.configs {
        file(format!("/machine-configs/{}.yaml", config.name_any()), yaml(config)?)?;
    }
    if let Some(api_server) = api_server {
        folder("api-server")?;
        file("/api-server/api-server.yaml".to_owned(), yaml(api_server)?)?;
    }
    folder("controller-config")?;
    let name = "/controller-config/machine-config-controller.yaml".to_owned();
    file(name, yaml(&made.controller_config)?)?;
    Ok(())
}

fn yaml(object: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(object).context("the object is no JSON")?;
    let Value::Object(members) = value else { anyhow::bail!("the object has no members") };
    Ok(object_yaml(&members))
}
