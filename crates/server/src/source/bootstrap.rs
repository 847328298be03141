//! Configs from the disk, for the first machines of a cluster that does not run yet.
//!
//! `mco controller bootstrap` writes the files. Only the control plane is served: other machines wait
//! until the cluster itself serves them.

use std::{
    path::{Component, Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigPool, kubelet_config::TlsSecurityProfile, name,
};
use mco_cluster::{Clock, report, tls::Policy};
use mco_core::kubelet;
use serde_json::Value;
use tracing::{info, warn};

use super::{
    CONTROLLER_CONFIG, LookupError, Source,
    files::{FileError, Files, object},
};
use crate::document::{EncapsulatedVersion, FirstBoot, Inputs, Kubeconfig, RegistryCa};

/// Pools that are served before the cluster runs.
const POOLS: [&str; 2] = ["master", "arbiter"];

/// Settings of a server that reads its configs from the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapSettings {
    /// Folder with `machine-pools`, `machine-configs` and `controller-config`.
    pub folder: PathBuf,
    /// Kubeconfig that machines get as it is.
    pub kubeconfig: PathBuf,
    /// CA certificates of image registries.
    pub registry_cas: Vec<RegistryCaFile>,
}

/// A file with the CA certificates of an image registry, written as `HOST=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryCaFile {
    host: Arc<str>,
    /// Path below the folder of the other files.
    file: PathBuf,
}

/// A text that does not name a registry and a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryCaError {
    /// There is not exactly one `=`, or one side is empty.
    #[error("{0:?} is not HOST=FILE")]
    Shape(String),
    /// The host would be more than one part of a path.
    #[error("{0:?} is not a host, with or without a port")]
    Host(String),
    /// The file is outside of the folder.
    #[error("{0:?} is not a path below the folder of --server-basedir")]
    File(String),
}

impl FromStr for RegistryCaFile {
    type Err = RegistryCaError;

    fn from_str(text: &str) -> Result<Self, RegistryCaError> {
        let shape = || RegistryCaError::Shape(text.to_owned());
        let (host, file) = text.split_once('=').ok_or_else(shape)?;
        if host.is_empty() || file.is_empty() || file.contains('=') {
            return Err(shape());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
        if !host.chars().all(plain) || host.trim_matches('.').is_empty() {
            return Err(RegistryCaError::Host(host.to_owned()));
        }
        if !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(RegistryCaError::File(file.to_owned()));
        }
        Ok(Self { host: host.into(), file: file.into() })
    }
}

/// Configs from the disk.
pub struct BootstrapSource {
    settings: BootstrapSettings,
    pools: Files<MachineConfigPool>,
    configs: Files<MachineConfig>,
    controllers: Files<ControllerConfig>,
    kubeconfigs: Files<Arc<[u8]>>,
    certificates: Files<Arc<[u8]>>,
}

impl std::fmt::Debug for BootstrapSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapSource").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl BootstrapSource {
    /// Checks that the kubeconfig exists; the other files may be written later.
    pub async fn open(settings: BootstrapSettings, clock: Clock) -> Result<Self, FileError> {
        let source = Self {
            settings,
            pools: Files::new(clock, object),
            configs: Files::new(clock, object),
            controllers: Files::new(clock, object),
            kubeconfigs: Files::new(clock, kubeconfig),
            certificates: Files::new(clock, |_, bytes| Ok(bytes.into())),
        };
        source.kubeconfigs.get(&source.settings.kubeconfig).await?;
        Ok(source)
    }

    async fn config(&self, pool: &str) -> Result<Arc<MachineConfig>, LookupError> {
        let folder = &self.settings.folder;
        let found = self.pools.get(&folder.join(format!("machine-pools/{pool}.yaml"))).await;
        let found =
            found.map_err(|error| error.or_missing(|| LookupError::Pool(pool.to_owned())))?;
        // Compat: never that of the spec (pkg/server/bootstrap_server.go).
        let chosen = found.status.as_ref().map(|it| it.configuration.rendered.name.as_str());
        let chosen = chosen.unwrap_or_default();
        if name::check(chosen).is_err() {
            return Err(LookupError::NoConfig(pool.to_owned()));
        }
        let config = self.configs.get(&folder.join(format!("machine-configs/{chosen}.yaml"))).await;
        let missing = || LookupError::Config { pool: pool.to_owned(), config: chosen.to_owned() };
        config.map_err(|error| error.or_missing(missing))
    }

    async fn first_boot(&self) -> Result<FirstBoot, FileError> {
        let BootstrapSettings { folder, kubeconfig, registry_cas } = &self.settings;
        let controller = folder.join(format!("controller-config/{CONTROLLER_CONFIG}.yaml"));
        let controller = self.controllers.get(&controller).await?;
        let kubeconfig = Kubeconfig(Arc::clone(&*self.kubeconfigs.get(kubeconfig).await?));
        let mut first_boot = FirstBoot::new(controller, Some(kubeconfig));
        first_boot.encapsulated = EncapsulatedVersion::Newest;
        for RegistryCaFile { host, file } in registry_cas {
            let pem = Arc::clone(&*self.certificates.get(&folder.join(file)).await?);
            first_boot.registry_cas.push(RegistryCa { host: host.clone(), pem });
        }
        Ok(first_boot)
    }
}

impl Source for BootstrapSource {
    async fn ready(&self) {}

    async fn inputs(&self, pool: &str) -> Result<Inputs, LookupError> {
        if !POOLS.contains(&pool) {
            return Err(LookupError::NotInBootstrap(pool.to_owned()));
        }
        let config = self.config(pool).await?;
        let first_boot = self.first_boot().await.map_err(LookupError::File)?;
        Ok(Inputs { config, first_boot: Some(first_boot) })
    }
}

/// Checks that the kubeconfig names a cluster and keeps its bytes.
///
/// A machine that boots with a kubeconfig without a cluster never joins and is not asked again.
fn kubeconfig(path: &Path, bytes: &[u8]) -> Result<Arc<[u8]>, FileError> {
    let document: Value = object(path, bytes)?;
    let clusters = document.get("clusters").and_then(Value::as_array);
    if clusters.is_none_or(Vec::is_empty) {
        return Err(FileError::NoClusters(path.to_owned()));
    }
    Ok(bytes.into())
}

/// Returns the TLS settings of the APIServer in `folder`. The settings of the profile `Intermediate`
/// apply if there is none, or if it cannot be used.
pub async fn tls_policy(folder: &Path) -> Policy {
    let path = folder.join("api-server/api-server.yaml");
    let profile = match tokio::fs::read(&path).await {
        Ok(bytes) => object::<Value>(&path, &bytes).and_then(|server| profile(&path, &server)),
        Err(source) => Err(FileError::Read { path: path.clone(), source }),
    };
    let profile = profile.unwrap_or_else(|error| {
        let (path, cause) = (path.display(), report::chain(&error));
        if error.is_missing() {
            info!(%path, "No TLS profile found; using the profile Intermediate");
        } else {
            warn!(%path, cause, "Failed to read the TLS profile; using the profile Intermediate");
        }
        None
    });
    let wanted = kubelet::tls_settings(profile.as_ref());
    Policy::parse(&wanted.min_version, &wanted.ciphers).unwrap_or_else(|error| {
        let (path, cause) = (path.display(), report::chain(&error));
        warn!(%path, cause, "The TLS profile cannot be used; using the defaults");
        Policy::default()
    })
}

fn profile(path: &Path, server: &Value) -> Result<Option<TlsSecurityProfile>, FileError> {
    let profile = server.pointer("/spec/tlsSecurityProfile").filter(|profile| !profile.is_null());
    let profile = profile.map(|profile| serde_json::from_value(profile.clone())).transpose();
    profile.map_err(|_| FileError::Object(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: S44
    #[test]
    fn a_registry_ca_is_a_host_and_a_file_below_the_folder() {
        let rows = [
            ("foo=bar.crt", Ok(("foo", "bar.crt"))),
            ("r.example.com:5000=certs/a.crt", Ok(("r.example.com:5000", "certs/a.crt"))),
            ("foo", Err("\"foo\" is not HOST=FILE")),
            ("a=b=c", Err("\"a=b=c\" is not HOST=FILE")),
            ("=b", Err("\"=b\" is not HOST=FILE")),
            ("a=", Err("\"a=\" is not HOST=FILE")),
            ("../x=b", Err("\"../x\" is not a host, with or without a port")),
            ("..=b", Err("\"..\" is not a host, with or without a port")),
            ("a=../b", Err("\"../b\" is not a path below the folder of --server-basedir")),
            ("a=/etc/b", Err("\"/etc/b\" is not a path below the folder of --server-basedir")),
        ];
        for (text, expected) in rows {
            let found = text.parse::<RegistryCaFile>();
            let found = found.map(|it| (it.host.to_string(), it.file.display().to_string()));
            let found = found.map_err(|error| error.to_string());
            let expected = expected.map(|(host, file)| (host.to_owned(), file.to_owned()));
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_kubeconfig_without_clusters_is_refused() {
        let path = Path::new("kubeconfig");
        for text in ["clusters: []\n", "apiVersion: v1\n", "clusters: {}\n"] {
            let error = kubeconfig(path, text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "the kubeconfig kubeconfig has no clusters", "{text}");
        }
        let text = "clusters:\n- name: local # kept byte for byte\n";
        assert_eq!(*kubeconfig(path, text.as_bytes()).unwrap(), *text.as_bytes());
    }
}
