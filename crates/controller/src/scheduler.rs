//! OpenShift's setting of whether ordinary pods may run on the control plane.
//!
//! The kind is not ours and most clusters do not have it: nothing waits for it.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Name of the one object that counts.
pub(crate) const NAME: &str = "cluster";

/// What is read of the kind `Scheduler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, CustomResource, Deserialize, Serialize)]
#[kube(group = "config.openshift.io", version = "v1", kind = "Scheduler", schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SchedulerSpec {
    /// Whether ordinary pods may run on the control plane.
    pub(crate) masters_schedulable: bool,
}
