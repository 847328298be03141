//! OpenShift's kind `Scheduler`, which says if ordinary pods may run on the control plane.
//!
//! The kind is not part of this project and most clusters do not have it: no controller waits for
//! it.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Name of the one Scheduler object.
pub(crate) const NAME: &str = "cluster";

/// The part of a Scheduler's spec that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, CustomResource, Deserialize, Serialize)]
#[kube(group = "config.openshift.io", version = "v1", kind = "Scheduler", schema = "disabled")]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SchedulerSpec {
    /// True if ordinary pods may run on the control plane.
    pub(crate) masters_schedulable: bool,
}
