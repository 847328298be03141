//! The condition `EvaluationConditionsDetected`: settings that matter to support.

use std::collections::BTreeSet;

use mco_api::{
    ContainerRuntimeConfig, KubeletConfig, condition::reason,
    container_runtime_config::DefaultRuntime,
};
use serde::Deserialize;

use super::upgradeable::SEPARATOR;
use crate::status::Finding;

/// A setting of the user that matters to support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detected {
    /// A KubeletConfig lets kubelets run on nodes with swap.
    SwapAllowed,
    /// A ContainerRuntimeConfig selects the runtime `runc`.
    Runc,
}

impl Detected {
    /// Returns the setting of a KubeletConfig.
    #[must_use]
    pub fn in_kubelet_config(config: &KubeletConfig) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Narrow {
            fail_swap_on: Option<bool>,
        }
        let raw = config.spec.kubelet_config.as_ref()?;
        // A config that cannot be read sets nothing.
        let narrow = serde_json::from_str::<Narrow>(raw.get()).ok()?;
        (narrow.fail_swap_on == Some(false)).then_some(Self::SwapAllowed)
    }

    /// Returns the setting of a ContainerRuntimeConfig.
    #[must_use]
    pub fn in_container_runtime_config(config: &ContainerRuntimeConfig) -> Option<Self> {
        let settings = &config.spec.container_runtime_config;
        (settings.default_runtime == Some(DefaultRuntime::Runc)).then_some(Self::Runc)
    }

    /// Returns the text of the reference.
    fn text(self) -> &'static str {
        match self {
            Self::SwapAllowed => {
                "failswapon: KubeletConfig setting is currently unsupported by OpenShift"
            }
            Self::Runc => "runc: transition to default crun",
        }
    }
}

/// Returns the value of the condition. Compat: the texts of the settings are its reason.
pub(super) fn finding(incomplete: &[String], detected: &[Detected]) -> Finding {
    let incomplete_reason = (!incomplete.is_empty()).then_some(reason::INCOMPLETE_DEFINITIONS);
    let reasons: BTreeSet<&str> =
        detected.iter().map(|found| found.text()).chain(incomplete_reason).collect();
    if reasons.is_empty() {
        return Finding::no(reason::AS_EXPECTED, "");
    }
    let reasons: Vec<&str> = reasons.into_iter().collect();
    Finding::yes(&reasons.join(SEPARATOR), &incomplete.join("; "))
}
