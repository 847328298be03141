//! `mco controller bootstrap`: renders the pools and configs of a cluster that is not running yet.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use mco_api::{ControllerConfig, annotation, kubelet_config::TlsSecurityProfile, object_yaml};
use mco_controller::bootstrap::{self, BootstrapManifests, BootstrapOutput, BuiltIns};
use mco_core::{
    kubelet::{self, TlsSettings},
    lint::{Fault, Object},
    template::{self, Facts, Profile, TemplateTree},
};
use mco_host::{Root, input};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::{FaultsError, error_with_hint},
    load::{self, Loaded, MAX_FILE_SIZE, Sources},
    process,
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
    /// Contents of the base configs: adopt or full; that of the ControllerConfig if omitted
    #[arg(long, value_parser = ["adopt", "full"], value_name = "PROFILE")]
    profile: Option<String>,
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

pub(super) fn run(args: &BootstrapArgs, templates: &TemplateTree) -> anyhow::Result<ExitCode> {
    let pull_secret = args.pull_secret.as_deref().map(read_pull_secret).transpose()?;
    let sources = Sources { paths: vec![args.manifest_dir.clone()], recursive: false };
    let (given, api_server) = sort_by_kind(sources.load()?, &args.manifest_dir)?;
    let tls = tls_settings(api_server.as_ref())?;
    let build = process::build();
    let base = |cluster: &ControllerConfig| {
        let annotated = cluster.annotations().get(annotation::PROFILE.name());
        let profile = args.profile.as_ref().or(annotated).map(|word| Profile::from(&**word));
        let pull_secret = pull_secret.as_deref();
        let facts = Facts { controller_config: cluster, pull_secret, tls: &tls, build: &build };
        template::base_configs(templates, &profile.unwrap_or_default(), &facts)
    };
    let pools = mco_operator::built_in_pools();
    let furnishing = BuiltIns { build: &build, base: &base, pools: &pools };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let made = runtime.block_on(bootstrap::run(given, &furnishing))?;
    write(&args.dest_dir, &made, api_server.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the TLS settings of the `APIServer` manifest.
fn tls_settings(api_server: Option<&Value>) -> anyhow::Result<TlsSettings> {
    let profile = api_server.and_then(|object| object.pointer("/spec/tlsSecurityProfile"));
    let profile: Option<TlsSecurityProfile> =
        profile.map(|profile| serde_json::from_value(profile.clone())).transpose()?;
    Ok(kubelet::tls_settings(profile.as_ref()))
}

/// Returns the manifests by kind, and the `APIServer`, which is copied to the output.
fn sort_by_kind(loaded: Loaded, dir: &Path) -> anyhow::Result<(BootstrapManifests, Option<Value>)> {
    let mut given =
        BootstrapManifests { dir: dir.display().to_string(), ..BootstrapManifests::default() };
    let (mut faults, mut api_server) = (loaded.faults, None);
    for object in &loaded.objects {
        let (group, _) = object.api_version.split_once('/').unwrap_or(("", ""));
        let is_cluster = object.name == "cluster";
        // Compat: of some kinds only the object `cluster` counts.
        let is_single =
            matches!(object.kind.as_str(), "APIServer" | "FeatureGate" | "Image" | "Node");
        if is_cluster || !is_single {
            let value = typed::<Value>(object, &mut faults).unwrap_or_default();
            given.settings.add_manifest(&object.file.name, &value)?;
        }
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

/// Reads the credentials of a pull secret.
fn read_pull_secret(path: &Path) -> anyhow::Result<String> {
    let bytes = input::file(path, MAX_FILE_SIZE)?;
    let loaded = load::text(path, bytes);
    let mut secrets = loaded.objects.iter().filter(|object| object.kind == "Secret");
    let secret = secrets.next().and_then(|object| object.root.typed::<Secret>().ok());
    let text = secret.filter(|_| loaded.faults.is_empty()).and_then(|secret| {
        let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        let kind = secret.type_.clone().unwrap_or_default();
        template::compact(&kind, data.map(|data| data.0.as_slice())).ok()
    });
    text.ok_or_else(|| {
        error_with_hint(
            format!("{} is not a Secret of type kubernetes.io/dockerconfigjson", path.display()),
            "create one with: kubectl create secret docker-registry NAME --from-file=.dockerconfigjson=FILE \
             --dry-run=client -o yaml",
        )
    })
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
