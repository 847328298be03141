//! Settings for kubelets whose configuration another program owns, such as kubeadm.
//!
//! A kubelet with `--config-dir` merges the fragments of that folder over its configuration in the
//! order of their names. So the file of kubeadm, which `kubeadm upgrade` rewrites, stays as it is,
//! and without the fragments the kubelet has its old configuration again.
//!
//! The unit of kubeadm starts `kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS
//! $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`. The last two come from files
//! (`/var/lib/kubelet/kubeadm-flags.env`, `/etc/default/kubelet`), which belong to kubeadm and to the
//! administrator and override every `Environment=`. `KUBELET_CONFIG_ARGS` comes from `Environment=`
//! of kubeadm's own drop-in `10-kubeadm.conf` alone. A drop-in that sorts after it can therefore set
//! the variable to kubeadm's value and one more flag, and no file can undo that. A unit that does
//! not use the variable ignores it.

use mco_api::kubelet_config::KubeletConfigSpec;
use serde_json::{Value, json};

use super::{configuration::Configuration, inputs::set_tls, refusal::Refusal, tls};
use crate::generated::GeneratedFile;

/// Folder of the fragments.
pub const FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";

/// Path of the drop-in of the kubelet's unit that names the folder.
pub const UNIT: &str = "/etc/systemd/system/kubelet.service.d/20-mco-config-dir.conf";

/// Contents of the drop-in of the unit. `/var/lib/kubelet/config.yaml` is kubeadm's configuration.
const UNIT_TEXT: &str = "\
[Service]
Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml \
--config-dir=/etc/kubernetes/kubelet.conf.d\"
";

/// Returns the drop-in of the kubelet's unit that names the folder.
pub(crate) fn unit() -> GeneratedFile {
    GeneratedFile::new(UNIT, UNIT_TEXT)
}

/// Returns the fields of the fragment of a KubeletConfig.
pub(super) fn configuration(
    spec: &KubeletConfigSpec,
    mut user: Configuration,
    pool: &str,
) -> Result<Configuration, Refusal> {
    if spec.auto_sizing_reserved == Some(true) {
        return Err(Refusal::AutoSizing(pool.to_owned()));
    }
    if let Some(path) = user.get("staticPodPath") {
        let value = path.as_str().unwrap_or_default().to_owned();
        return Err(Refusal::Forbidden { field: "staticPodPath", value });
    }
    check_enforcements(&user)?;
    if let Some(profile) = &spec.tls_security_profile {
        let mut fields = Configuration::default();
        set_tls(&mut fields, &tls::settings(Some(profile)));
        for (name, value) in fields.fields() {
            if user.get(name).is_none() {
                user.set(name, value.clone());
            }
        }
    }
    if let Some(level) = spec.log_level {
        user.add_entries("logging", [("verbosity".to_owned(), json!(level))]);
    }
    Ok(user)
}

/// Returns a fragment and the drop-in of the unit. The fragment comes first: a kubelet does not
/// start if the folder is missing.
pub(super) fn fragment(
    name: &str,
    configuration: &Configuration,
) -> Result<Vec<GeneratedFile>, Refusal> {
    if configuration.fields().is_empty() {
        return Ok(Vec::new());
    }
    let text = configuration.print_fragment().map_err(Refusal::Text)?;
    let fragment = GeneratedFile::new(format!("{FOLDER}/{name}"), text);
    Ok(vec![fragment, unit()])
}

/// Refuses enforcements for which a kubelet needs a cgroup that the fragment does not name.
fn check_enforcements(user: &Configuration) -> Result<(), Refusal> {
    let needs =
        [("system-reserved", "systemReservedCgroup"), ("kube-reserved", "kubeReservedCgroup")];
    let enforced = user.list("enforceNodeAllocatable");
    let missing = needs.into_iter().find(|(enforcement, cgroup)| {
        enforced.iter().any(|item| item.starts_with(enforcement)) && user.text(cgroup).is_empty()
    });
    match missing {
        Some((enforcement, cgroup)) => Err(Refusal::Faults(vec![format!(
            "enforceNodeAllocatable contains {enforcement}, and {cgroup} must be set with it"
        )])),
        None => Ok(()),
    }
}

/// Returns the fields of a fragment.
pub(super) fn fields_of(fragment: &str) -> Option<Value> {
    crate::yaml::documents(fragment).ok()?.into_iter().next()
}
