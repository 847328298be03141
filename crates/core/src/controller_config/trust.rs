//! CA certificates for nodes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use mco_api::{Bytes, controller_config::ImageRegistryBundle};
use x509_parser::pem::Pem;

use super::{
    Facts, FactsError, Origin,
    source::{self, ConfigMaps, Source},
};

/// Key of CA certificates in most ConfigMaps.
pub(super) const BUNDLE_KEY: &str = "ca-bundle.crt";
/// Part of the subject of the CA that signs the API server's certificate for kubelets.
const KUBELET_SIGNER: &str = "kube-apiserver-to-kubelet-signer";

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END CERTIFICATE-----";

/// Returns the root CA certificates of the cluster. On OpenShift those of the config server, else those
/// that the installer left; on other clusters those of the API server.
pub(super) fn root_ca(facts: &Facts) -> Bytes {
    let maps = &facts.config_maps;
    let is_used = |found: &&[u8]| facts.origin == Origin::OpenShift && !found.is_empty();
    let own = maps.key(&source::server_ca(facts.namespace()), BUNDLE_KEY).filter(is_used);
    let installed = || maps.key(&source::ROOT_CA, "ca.crt").filter(is_used);
    let found = own.or_else(installed);
    found.unwrap_or(facts.authorities.as_bytes()).to_vec().into()
}

/// Returns the CA certificates that kubelets verify their clients with. Until the cluster is
/// installed, these are the installer's, with the signer of the API server's client replaced by the
/// current one.
pub(super) fn kubelet_ca(facts: &Facts) -> Bytes {
    let maps = &facts.config_maps;
    let current = maps.key(&source::KUBELET_CLIENT_CA, BUNDLE_KEY);
    if facts.is_installed()
        && let Some(current) = current
    {
        return current.to_vec().into();
    }
    let Some(initial) = maps.key(&source::INITIAL_CA, BUNDLE_KEY) else {
        return facts.authorities.as_bytes().to_vec().into();
    };
    match maps.key(&source::KUBELET_SIGNER_CA, BUNDLE_KEY) {
        Some(signer) => replace_signer(initial, signer).into(),
        None => initial.to_vec().into(),
    }
}

/// Replaces the certificates of the kubelet signer. A block that is no certificate is dropped.
fn replace_signer(bundle: &[u8], signer: &[u8]) -> Vec<u8> {
    let bundle = String::from_utf8_lossy(bundle);
    let is_other = |block: &&str| {
        let subject = subject(block);
        subject.is_some_and(|subject| !subject.contains(KUBELET_SIGNER))
    };
    let mut kept: Vec<&str> = blocks(&bundle).into_iter().filter(is_other).collect();
    let signer = String::from_utf8_lossy(signer);
    kept.extend(blocks(&signer));
    kept.iter().flat_map(|block| [block.trim(), "\n"]).collect::<String>().into_bytes()
}

/// Returns the PEM blocks of certificates.
fn blocks(bundle: &str) -> Vec<&str> {
    let starts = bundle.match_indices(BEGIN).map(|(at, _)| bundle.get(at..).unwrap_or_default());
    let whole = |block: &'_ str| block.find(END).map(|at| at + END.len());
    let cut = starts.filter_map(|block| block.get(..whole(block)?));
    cut.filter(|block| block.matches(BEGIN).count() == 1).collect()
}

/// Returns the subject of the certificate in a PEM block.
fn subject(block: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(block.as_bytes()).next()?.ok()?;
    Some(pem.parse_x509().ok()?.subject().to_string())
}

/// Returns the certificates that the administrator added for the whole cluster: those of
/// `user-ca-bundle`, then those of the ConfigMap that the Proxy names.
pub(super) fn additional_bundle(facts: &Facts) -> Result<Option<Bytes>, FactsError> {
    let user = source::USER_CA;
    let mut bundle = match facts.config_maps.get(&user) {
        Some(map) => valid_bundle(&user, map.get(BUNDLE_KEY))?,
        None => Vec::new(),
    };
    if let Some(named) = facts.proxy_ca().filter(|named| *named != user) {
        let map = facts.config_maps.get(&named).ok_or_else(|| FactsError::Missing {
            object: format!("ConfigMap {named}"),
            wanted_by: "spec.trustedCA of Proxy cluster".to_owned(),
            fix: format!(
                "create it, let the operator read it (kubectl -n {} create role and rolebinding for \
                 configmaps), or clear spec.trustedCA",
                named.namespace
            ),
        })?;
        bundle.extend(valid_bundle(&named, map.get(BUNDLE_KEY))?);
    }
    Ok((!bundle.is_empty()).then(|| bundle.into()))
}

/// Returns a bundle with at least one certificate, or an empty one. Compat: a block that is no valid
/// certificate is passed over, as programs that read the bundle do (`AppendCertsFromPEM` of Go).
fn valid_bundle(source: &Source, bundle: Option<&Vec<u8>>) -> Result<Vec<u8>, FactsError> {
    let fault = || FactsError::Pem { config_map: source.clone() };
    let mut bundle = bundle.ok_or_else(fault)?.clone();
    if bundle.is_empty() {
        return Ok(bundle);
    }
    let is_certificate = |block: &Pem| block.label == "CERTIFICATE" && block.parse_x509().is_ok();
    if !Pem::iter_from_buffer(&bundle).flatten().any(|block| is_certificate(&block)) {
        return Err(fault());
    }
    if !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    Ok(bundle)
}

/// CA certificates of image registries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegistryAuthorities {
    /// Those that the administrator added.
    pub user: Vec<ImageRegistryBundle>,
    /// Those that the cluster added.
    pub managed: Vec<ImageRegistryBundle>,
}

impl RegistryAuthorities {
    pub(super) fn new(facts: &Facts) -> Self {
        let bundles = |map: Option<&BTreeMap<String, Vec<u8>>>| {
            let files = map.into_iter().flatten();
            let bundle = |(file, data): (&String, &Vec<u8>)| ImageRegistryBundle {
                file: file.clone(),
                data: decoded(data).into(),
            };
            files.map(bundle).collect::<Vec<_>>()
        };
        let maps: &ConfigMaps = &facts.config_maps;
        Self {
            user: bundles(facts.registry_ca().and_then(|named| maps.get(&named))),
            managed: bundles(maps.get(&source::REGISTRY_CA)),
        }
    }

    /// Returns all certificates by registry. Those of the administrator win.
    #[must_use]
    pub fn merged(&self) -> BTreeMap<String, Vec<u8>> {
        let all = self.managed.iter().chain(&self.user);
        all.map(|one| (one.file.clone(), one.data.as_slice().to_vec())).collect()
    }
}

/// Decodes base64; other data stay as they are.
fn decoded(data: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(data).ok().map(str::trim).filter(|text| !text.is_empty());
    let decoded = text
        .and_then(|text| serde_json::from_value::<ByteString>(serde_json::Value::from(text)).ok());
    decoded.map_or_else(|| data.to_vec(), |decoded| decoded.0)
}

/// Returns the ConfigMap with the CA certificates of registries that other components read, and the
/// data that it must have.
#[must_use]
pub fn merged_registry_ca(facts: &Facts) -> (Source, BTreeMap<String, Vec<u8>>) {
    (source::MERGED_REGISTRY_CA, RegistryAuthorities::new(facts).merged())
}

/// Returns the CA certificates of the API server that `kubeconfig-data` must have; `None` if the cluster
/// does not publish them.
#[must_use]
pub fn kubeconfig_data(facts: &Facts) -> Option<Vec<u8>> {
    let found = facts.config_maps.key(&source::API_SERVER_CA, BUNDLE_KEY)?;
    (!found.is_empty()).then(|| found.to_vec())
}

/// Returns the certificates that new machines verify the config server with.
#[must_use]
pub fn server_ca(facts: &Facts) -> Option<String> {
    let found = facts.config_maps.key(&source::server_ca(facts.namespace()), BUNDLE_KEY)?;
    let text = String::from_utf8(found.to_vec()).ok()?;
    (!text.is_empty()).then_some(text)
}
