//! `mco operator bootstrap`: makes the manifests with which a cluster is installed.
//!
//! The ControllerConfig comes from the same function as in a running cluster, so that the rendered
//! configs of the first machines have the names that the cluster will give them.

mod images;
mod output;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mco_api::{
    ControllerConfig, annotation, annotation::Topology, controller_config::ControllerConfigSpec,
    label,
};
use mco_cluster::report::chain;
use mco_core::{
    controller_config::{
        self, Facts, Origin,
        source::{self, ConfigMaps},
    },
    template, yaml,
};
use mco_host::input::{self, InputError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{error::error_with_hint, load::MAX_FILE_SIZE, process};

/// Make the manifests with which a cluster is installed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BootstrapArgs {
    /// CA certificates of the config server, as PEM
    #[arg(long, default_value = "/etc/ssl/kubernetes/ca.crt", value_name = "FILE")]
    root_ca: String,
    /// CA certificates of the API server's clients, as PEM; may be absent
    #[arg(long, default_value = "", value_name = "FILE")]
    kube_ca: String,
    /// Pull secret, a Secret of type kubernetes.io/dockerconfigjson
    #[arg(long, default_value = "/assets/manifests/pull.json", value_name = "FILE")]
    pull_secret: String,
    /// Output directory for bootstrap/ and manifests/
    #[arg(long, value_name = "DIR")]
    dest_dir: PathBuf,
    /// ConfigMap with the settings of the installer
    #[arg(long, default_value = "", value_name = "FILE")]
    config_file: String,
    /// Infrastructure object
    #[arg(long, default_value = INFRA, value_name = "FILE")]
    infra_config_file: String,
    /// Network object
    #[arg(long, default_value = NETWORK, value_name = "FILE")]
    network_config_file: String,
    /// ConfigMap with the configuration of the cloud provider; may be absent
    #[arg(long, default_value = "", value_name = "FILE")]
    cloud_config_file: String,
    /// Proxy object
    #[arg(long, default_value = PROXY, value_name = "FILE")]
    proxy_config_file: String,
    /// DNS object
    #[arg(long, default_value = DNS, value_name = "FILE")]
    dns_config_file: String,
    /// ConfigMap with CA certificates to trust; may be absent
    #[arg(long, default_value = USER_CA, value_name = "FILE")]
    additional_trust_bundle_config_file: String,
    /// CA certificates of the cloud provider, as PEM; may be absent
    #[arg(long, default_value = "", value_name = "FILE")]
    cloud_provider_ca_file: String,
    #[command(flatten)]
    images: images::ImageArgs,
    /// Contents of the base configs: adopt or full; adopt if omitted
    #[arg(long, value_parser = ["adopt", "full"], value_name = "PROFILE")]
    profile: Option<String>,
    /// Release that the cluster is installed with
    #[arg(long, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot", value_name = "VERSION")]
    payload_version: String,
}

const EXAMPLES: &str = "\
Examples:
  mco operator bootstrap --dest-dir out --root-ca ca.crt --config-file cluster-config.yaml
  mco controller bootstrap --manifest-dir out/bootstrap/manifests --dest-dir rendered";

// Compat: the files of the installer.
const INFRA: &str = "/assets/manifests/cluster-infrastructure-02-config.yml";
const NETWORK: &str = "/assets/manifests/cluster-network-02-config.yml";
const PROXY: &str = "/assets/manifests/cluster-proxy-01-config.yaml";
const DNS: &str = "/assets/manifests/cluster-dns-02-config.yml";
const USER_CA: &str = "/assets/manifests/user-ca-bundle-config.yaml";

pub(super) fn run(args: &BootstrapArgs) -> anyhow::Result<ExitCode> {
    let inputs = Inputs::read(args)?;
    let facts = inputs.facts(args)?;
    let wanted = controller_config::wanted(&facts)?;
    let spec = ControllerConfigSpec {
        release_image: args.images.release_image.clone(),
        ..wanted.new_spec()
    };
    let topology = spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
    let topology = topology.and_then(|status| status.control_plane_topology.clone());
    let made = output::Manifests {
        controller_config: controller_config(args, spec),
        has_arbiter: topology == Some(Topology::HighlyAvailableArbiter),
        pull_secret: inputs.pull_secret.clone(),
        kube_ca: inputs.kube_ca.clone(),
        image: facts.images.get("machineConfigOperator").cloned().unwrap_or_default(),
        release: args.payload_version.clone(),
    };
    made.write(&args.dest_dir)?;
    Ok(ExitCode::SUCCESS)
}

fn controller_config(args: &BootstrapArgs, spec: ControllerConfigSpec) -> ControllerConfig {
    let mut config = ControllerConfig::new(label::CONTROLLER_CONFIG, spec);
    let version = process::build().version;
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::GENERATED_BY_VERSION.set(annotations, &version);
    annotation::GENERATED_BY_MCO.set(annotations, &version);
    annotation::RELEASE_IMAGE_VERSION.set(annotations, &args.payload_version);
    if let Some(profile) = &args.profile {
        annotation::PROFILE.set(annotations, &profile.as_str().into());
    }
    config
}

/// The files that the flags name.
struct Inputs {
    root_ca: String,
    kube_ca: Option<String>,
    /// The pull secret as it was given.
    pull_secret: String,
    infrastructure: mco_api::openshift::Infrastructure,
    network: mco_api::openshift::Network,
    proxy: mco_api::openshift::Proxy,
    dns: mco_api::openshift::DNS,
    trust_bundle: Option<ConfigMap>,
    cloud_config: Option<ConfigMap>,
    cloud_ca: Option<String>,
}

impl Inputs {
    fn read(args: &BootstrapArgs) -> anyhow::Result<Self> {
        // Compat: the reference requires the file, and reads nothing in it.
        required("config-file", &args.config_file)?;
        Ok(Self {
            root_ca: required("root-ca", &args.root_ca)?,
            kube_ca: optional(&args.kube_ca)?,
            pull_secret: pull_secret(&args.pull_secret)?,
            infrastructure: object("infra-config-file", &args.infra_config_file)?,
            network: object("network-config-file", &args.network_config_file)?,
            proxy: object("proxy-config-file", &args.proxy_config_file)?,
            dns: object("dns-config-file", &args.dns_config_file)?,
            trust_bundle: optional_map(&args.additional_trust_bundle_config_file)?,
            cloud_config: optional_map(&args.cloud_config_file)?,
            cloud_ca: optional(&args.cloud_provider_ca_file)?,
        })
    }

    fn facts(&self, args: &BootstrapArgs) -> anyhow::Result<Facts> {
        let images = args.images.read()?;
        Ok(Facts {
            origin: Origin::OpenShift,
            infrastructure: Some(self.infrastructure.clone()),
            network: Some(self.network.clone()),
            proxy: Some(self.proxy.clone()),
            dns: Some(self.dns.clone()),
            config_maps: self.config_maps(args)?,
            authorities: self.root_ca.clone(),
            images: images.images,
            os_image: images.os_image,
            os_extensions_image: images.os_extensions_image,
            ..Facts::default()
        })
    }

    /// Returns the ConfigMaps that the cluster will have.
    fn config_maps(&self, args: &BootstrapArgs) -> anyhow::Result<ConfigMaps> {
        let mut maps = ConfigMaps::default();
        maps.insert(source::ROOT_CA, &config_map("ca.crt", &self.root_ca));
        if let Some(kube_ca) = &self.kube_ca {
            maps.insert(source::INITIAL_CA, &config_map("ca-bundle.crt", kube_ca));
        }
        if let Some(bundle) = &self.trust_bundle {
            maps.insert(source::USER_CA, bundle);
        }
        maps.insert(source::CLOUD_CONFIG, &self.cloud_config(args)?);
        Ok(maps)
    }

    /// Returns the configuration of the cloud provider. It is required only if the Infrastructure names
    /// it: the cluster writes it later.
    fn cloud_config(&self, args: &BootstrapArgs) -> anyhow::Result<ConfigMap> {
        let named = self.infrastructure.spec.cloud_config.clone().unwrap_or_default();
        if self.cloud_config.is_none() && !named.name.is_empty() {
            required("cloud-config-file", &args.cloud_config_file)?;
        }
        let data = self.cloud_config.iter().flat_map(|map| map.data.clone().unwrap_or_default());
        let data: std::collections::BTreeMap<_, _> = data.collect();
        let text = data.get("cloud.conf").or_else(|| data.get(&named.key));
        let mut map = config_map("cloud.conf", text.map(String::as_str).unwrap_or_default());
        if let (Some(ca), Some(data)) = (&self.cloud_ca, &mut map.data) {
            data.insert("ca-bundle.pem".to_owned(), ca.clone());
        }
        Ok(map)
    }
}

fn config_map(key: &str, text: &str) -> ConfigMap {
    let data = [(key.to_owned(), text.to_owned())];
    ConfigMap { data: Some(data.into()), ..ConfigMap::default() }
}

/// Reads a file that must exist. Compat: the texts of the errors are the reference's.
fn required(flag: &str, path: &str) -> anyhow::Result<String> {
    if path.is_empty() {
        return Err(error_with_hint(
            format!("required file {flag} not set"),
            format!("name the file with --{flag}"),
        ));
    }
    let failed = |error: String| {
        error_with_hint(
            format!("cannot read {path} file. Error: {error}"),
            format!("name another file with --{flag}"),
        )
    };
    let bytes =
        input::file(Path::new(path), MAX_FILE_SIZE).map_err(|error| failed(chain(&error)))?;
    String::from_utf8(bytes).map_err(|_| failed("the file is not text".to_owned()))
}

/// Reads a file that may be absent.
fn optional(path: &str) -> anyhow::Result<Option<String>> {
    if path.is_empty() {
        return Ok(None);
    }
    match input::file(Path::new(path), MAX_FILE_SIZE) {
        Err(InputError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(_) | Ok(_) => required("FILE", path).map(Some),
    }
}

fn object<K: DeserializeOwned>(flag: &str, path: &str) -> anyhow::Result<K> {
    parse(path, &required(flag, path)?)
}

fn optional_map(path: &str) -> anyhow::Result<Option<ConfigMap>> {
    optional(path)?.map(|text| parse(path, &text)).transpose()
}

/// Reads the pull secret, which is checked and passed on as it is.
fn pull_secret(path: &str) -> anyhow::Result<String> {
    let text = required("pull-secret", path)?;
    let secret: Secret = parse(path, &text)?;
    let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
    let kind = secret.type_.unwrap_or_default();
    template::compact(&kind, data.map(|data| data.0.as_slice())).map_err(|error| {
        error_with_hint(
            format!("{path}: {error}"),
            "name a Secret of type kubernetes.io/dockerconfigjson with --pull-secret",
        )
    })?;
    Ok(text)
}

/// Parses the only object of a file.
fn parse<K: DeserializeOwned>(path: &str, text: &str) -> anyhow::Result<K> {
    let failed = |reason: String| {
        error_with_hint(format!("{path}: {reason}"), "the file must have one Kubernetes object")
    };
    let documents = yaml::documents(text).map_err(|error| failed(error.to_string()))?;
    let [document]: [Value; 1] =
        documents.try_into().map_err(|_| failed("expected one object".to_owned()))?;
    // The error of the decoder could show a secret.
    serde_json::from_value(document).map_err(|_| failed("a member has the wrong type".to_owned()))
}
