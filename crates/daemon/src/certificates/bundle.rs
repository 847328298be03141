//! The certificate files of a ControllerConfig, and writing those that differ.

use mco_api::{
    Bytes,
    controller_config::{ControllerConfigSpec, ImageRegistryBundle},
};
use mco_host::{Root, RootError};
use tracing::warn;

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const INTERNAL_REGISTRY: &str = "/etc/mco/internal-registry-pull-secret.json";
const REGISTRIES: &str = "/etc/docker/certs.d";
/// Record of the registry directories that the daemon created. Others are left alone.
const OWNED_REGISTRIES: &str = "/etc/machine-config-daemon/mco-registry-cas.json";

/// A file to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertificateFile {
    path: &'static str,
    bytes: Vec<u8>,
    /// Mode of a new file.
    mode: u32,
}

/// Returns the files of a ControllerConfig, without those that are empty in it.
pub(super) fn files(spec: &ControllerConfigSpec) -> Vec<CertificateFile> {
    let certificates = |path, data: Option<&Bytes>| {
        let bytes = data.map(Bytes::as_slice).unwrap_or_default();
        (!bytes.is_empty()).then(|| CertificateFile {
            path,
            bytes: with_newline(bytes),
            mode: 0o644,
        })
    };
    let secret = spec.internal_registry_pull_secret.as_ref().map(Bytes::as_slice);
    let secret = secret.filter(|bytes| !bytes.is_empty());
    [
        certificates(KUBELET_CA, Some(&spec.kube_api_server_serving_ca_data)),
        certificates(CLOUD_CA, spec.cloud_provider_ca_data.as_ref()),
        // The file holds credentials, so only root reads it.
        secret.map(|it| CertificateFile {
            path: INTERNAL_REGISTRY,
            bytes: it.to_vec(),
            mode: 0o600,
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the certificates of registries, by the name of their directory.
pub(super) fn registries(spec: &ControllerConfigSpec) -> Vec<(String, Vec<u8>)> {
    let all = spec.image_registry_bundle_data.iter().chain(&spec.image_registry_bundle_user_data);
    let mut found: Vec<(String, Vec<u8>)> = all.filter_map(registry).collect();
    found.sort();
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

fn registry(bundle: &ImageRegistryBundle) -> Option<(String, Vec<u8>)> {
    // Compat: a config map cannot have a colon in its keys (pkg/daemon/certificate_writer.go).
    let name = bundle.file.replace("..", ":");
    let is_name = !name.is_empty() && name != "." && !name.contains(['/', '\0']);
    if !is_name {
        warn!(
            registry = bundle.file,
            "Ignored certificates of a registry whose name is no directory name"
        );
        return None;
    }
    Some((name, with_newline(bundle.data.as_slice())))
}

/// Writes the files that differ; returns the written paths.
pub(super) fn write(root: &Root, wanted: &[CertificateFile]) -> Result<Vec<String>, RootError> {
    let mut changed = Vec::new();
    for CertificateFile { path, bytes, mode } in wanted {
        if write_if_different(root, path, bytes, *mode)? {
            changed.push((*path).to_owned());
        }
    }
    Ok(changed)
}

/// Writes the registry certificates that differ and removes the daemon's own that are no longer
/// listed; returns the changed paths.
pub(super) fn write_registries(
    root: &Root,
    wanted: &[(String, Vec<u8>)],
) -> Result<Vec<String>, RootError> {
    let mut changed = Vec::new();
    let owned = read_owned(root)?;
    let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    let mut record: Vec<&str> = owned.iter().map(String::as_str).chain(names.clone()).collect();
    record.sort_unstable();
    record.dedup();
    // Recorded before they are created, so that a crash leaves no unrecorded directory.
    write_owned(root, &owned, &record)?;
    for (name, bytes) in wanted {
        let path = format!("{REGISTRIES}/{name}/ca.crt");
        if write_if_different(root, &path, bytes, 0o644)? {
            changed.push(path);
        }
    }
    for name in owned.iter().filter(|name| !names.contains(&name.as_str())) {
        let folder = format!("{REGISTRIES}/{name}");
        let path = format!("{folder}/ca.crt");
        if root.remove(&path)? {
            changed.push(path);
        }
        root.remove_empty_directory(&folder)?;
    }
    let record: Vec<String> = record.into_iter().map(str::to_owned).collect();
    write_owned(root, &record, &names)?;
    Ok(changed)
}

fn read_owned(root: &Root) -> Result<Vec<String>, RootError> {
    let bytes = root.read(OWNED_REGISTRIES)?.unwrap_or_default();
    let names: Vec<String> = serde_json::from_slice(&bytes).unwrap_or_default();
    // The record decides what is removed, so that only names of directories are accepted.
    Ok(names.into_iter().filter(|name| !name.contains('/') && name != "..").collect())
}

fn write_owned(root: &Root, before: &[String], after: &[&str]) -> Result<(), RootError> {
    let mut sorted = after.to_vec();
    sorted.sort_unstable();
    if before.iter().map(String::as_str).eq(sorted.iter().copied()) {
        return Ok(());
    }
    let bytes = serde_json::to_vec(&sorted).expect("text is JSON");
    root.write(OWNED_REGISTRIES, &bytes, 0o600)
}

/// Writes a file unless it has these bytes; returns true if written. An existing file keeps its
/// mode.
fn write_if_different(root: &Root, path: &str, bytes: &[u8], mode: u32) -> Result<bool, RootError> {
    let stat = root.stat(path)?.filter(mco_host::Stat::is_file);
    if stat.is_some() && root.read(path)?.as_deref() == Some(bytes) {
        return Ok(false);
    }
    root.write(path, bytes, stat.map_or(mode, |stat| stat.mode & 0o7777))?;
    Ok(true)
}

fn with_newline(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(registries: &[(&str, &str)]) -> ControllerConfigSpec {
        let bundle = |(file, text): &(&str, &str)| ImageRegistryBundle {
            file: (*file).to_owned(),
            data: text.as_bytes().to_vec().into(),
        };
        ControllerConfigSpec {
            kube_api_server_serving_ca_data: b"kubelet".to_vec().into(),
            cloud_provider_ca_data: Some(Bytes::default()),
            internal_registry_pull_secret: Some(b"{}".to_vec().into()),
            image_registry_bundle_data: registries.iter().map(bundle).collect(),
            ..ControllerConfigSpec::default()
        }
    }

    fn root() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    // covers: C101, C105
    #[test]
    fn changed_files_are_written_once_and_empty_ones_never() {
        let (_folder, root) = root();
        let wanted = files(&spec(&[]));
        assert_eq!(write(&root, &wanted).unwrap(), [KUBELET_CA, INTERNAL_REGISTRY]);
        assert_eq!(root.read(KUBELET_CA).unwrap().unwrap(), b"kubelet\n");
        assert_eq!(root.stat(INTERNAL_REGISTRY).unwrap().unwrap().mode & 0o777, 0o600);
        assert_eq!(write(&root, &wanted).unwrap(), [""; 0]);
        root.write(KUBELET_CA, b"edited", 0o640).unwrap();
        assert_eq!(write(&root, &wanted).unwrap(), [KUBELET_CA]);
        assert_eq!(root.stat(KUBELET_CA).unwrap().unwrap().mode & 0o777, 0o640);
    }

    // covers: C102
    #[test]
    fn registries_come_and_go_and_foreign_ones_stay() {
        let (_folder, root) = root();
        root.write("/etc/docker/certs.d/theirs/ca.crt", b"x", 0o644).unwrap();
        let both = registries(&spec(&[("a.example..5000", "1"), ("b.example", "2")]));
        let first = "/etc/docker/certs.d/a.example:5000/ca.crt";
        let second = "/etc/docker/certs.d/b.example/ca.crt";
        assert_eq!(write_registries(&root, &both).unwrap(), [first, second]);
        assert_eq!(write_registries(&root, &both).unwrap(), [""; 0]);
        let one = registries(&spec(&[("b.example", "2")]));
        assert_eq!(write_registries(&root, &one).unwrap(), [first]);
        assert_eq!(root.list(REGISTRIES).unwrap(), ["b.example", "theirs"]);
    }

    #[test]
    fn a_name_with_path_separators_is_ignored() {
        assert_eq!(registries(&spec(&[("../../x", "1"), ("", "1"), (".", "1")])), []);
        let (_folder, root) = root();
        root.write(OWNED_REGISTRIES, br#"["../kept", "..", "gone"]"#, 0o600).unwrap();
        assert_eq!(read_owned(&root).unwrap(), ["gone"]);
    }
}
