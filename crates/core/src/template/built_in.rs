//! The templates of this build: the folder `templates` of the repository, embedded.

/// Builds the table of paths and texts.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../templates/", $path)))),+]
    };
}

/// Paths and texts, by path.
pub(super) const FILES: &[(&str, &str)] = files![
    "arbiter/01-arbiter-kubelet/_base/files/kubelet.conf",
    "common/01-container-runtime/_base/files/containerd",
    "common/01-container-runtime/_base/files/crio-default",
    "common/01-container-runtime/_base/files/policy",
    "common/01-container-runtime/_base/files/registries",
    "common/01-container-runtime/_base/files/storage",
    "common/01-kubelet/_base/files/cloud-config",
    "common/01-kubelet/_base/files/node-environment",
    "common/01-kubelet/_base/files/node-sizing",
    "common/01-kubelet/_base/units/kubelet.service",
    "common/01-kubelet/_base/units/kubelet.service.d/20-logging.conf",
    "common/01-kubelet/_base/units/mco-node-environment.service",
    "common/01-kubelet/aws/files/credential-provider",
    "common/01-kubelet/azure/files/credential-provider",
    "common/01-kubelet/gcp/files/credential-provider",
    "common/_base/files/apiserver-url",
    "common/_base/files/chrony",
    "common/_base/files/fetch-daemon",
    "common/_base/files/modules-kubernetes",
    "common/_base/files/proxy",
    "common/_base/files/pull-secret",
    "common/_base/files/sysctl-kubernetes",
    "common/_base/files/trust-bundle",
    "common/_base/files/update-ca-trust",
    "common/_base/units/containerd.service.d/10-mco-proxy.conf",
    "common/_base/units/coreos-update-ca-trust.service",
    "common/_base/units/crio.service.d/10-mco-proxy.conf",
    "common/_base/units/kubelet.service.d/10-mco-proxy.conf",
    "common/_base/units/machine-config-daemon-firstboot.service",
    "common/_base/units/machine-config-daemon-pull.service",
    "common/aws/files/chrony",
    "common/azure/files/chrony",
    "common/cloud-platform-alt-dns/files/hosts",
    "common/gcp/files/chrony",
    "common/on-prem/files/vips",
    "master/01-master-kubelet/_base/files/kubelet.conf",
    "worker/01-worker-kubelet/_base/files/kubelet.conf",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the test reads the repository")]
    fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn every_template_of_the_folder_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates");
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        found.sort();
        let embedded: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
        assert_eq!(embedded, found);
    }
}
