//! OpenShift's kind `Scheduler`, which says if ordinary pods may run on the control plane.
//!
//! The kind is not part of this project and most clusters do not have it: no controller waits for
//! it.

use std::borrow::Cow;

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};

/// Name of the one Scheduler object.
pub(crate) const NAME: &str = "cluster";

/// The cluster's scheduler settings.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Scheduler {
    metadata: ObjectMeta,
    /// The part of the spec that the controller reads.
    #[serde(default)]
    pub(crate) spec: SchedulerSpec,
}

mco_cluster::object!(Scheduler);

impl Resource for Scheduler {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Scheduler".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "config.openshift.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "schedulers".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The part of a Scheduler's spec that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SchedulerSpec {
    /// True if ordinary pods may run on the control plane.
    pub(crate) masters_schedulable: bool,
}
