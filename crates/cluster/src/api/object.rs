//! Kinds that can be read and written, each with its own decoder.

use std::fmt::Debug;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        batch::v1::Job,
        certificates::v1::CertificateSigningRequest,
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Endpoints, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount,
        },
        discovery::v1::EndpointSlice,
        events::v1::Event as NewEvent,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRoleBinding, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Resource, core::PartialObjectMeta};
use mco_api::{
    ClusterOperator, ContainerRuntimeConfig, ControllerConfig, InternalReleaseImage, KubeletConfig,
    MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfiguration, MachineOSBuild,
    MachineOSConfig, OSImageStream, PinnedImageSet, openshift,
};

use crate::watch::Unreadable;

/// A kind that can be read from JSON and written to it.
///
/// [`object!`](crate::object) implements this trait.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {
    /// Reads an object.
    fn decode(json: &str) -> serde_json::Result<Self>;

    /// Writes the object.
    fn encode(&self) -> serde_json::Result<Vec<u8>>;

    /// Returns an object for one that cannot be decoded, if the safest decisions are those about an
    /// object of which only the metadata is known. `None` leaves it out.
    #[must_use]
    fn salvage(_: &Unreadable) -> Option<Self> {
        None
    }
}

/// Implements [`Object`] for kinds that implement serde's traits.
///
/// The implementation is not generic, so it is compiled in the crate that states it and nowhere else.
#[macro_export]
macro_rules! object {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::api::Object for $kind {
            fn decode(json: &str) -> serde_json::Result<Self> {
                serde_json::from_str(json)
            }

            fn encode(&self) -> serde_json::Result<Vec<u8>> {
                serde_json::to_vec(self)
            }
        }
    )+};
}

object!(
    CertificateSigningRequest,
    ClusterOperator,
    ClusterRoleBinding,
    ConfigMap,
    ContainerRuntimeConfig,
    ControllerConfig,
    CustomResourceDefinition,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Endpoints,
    Event,
    InternalReleaseImage,
    Job,
    KubeletConfig,
    Lease,
    MachineConfig,
    MachineConfigNode,
    MachineConfigPool,
    MachineConfiguration,
    MachineOSBuild,
    MachineOSConfig,
    Namespace,
    NewEvent,
    Node,
    OSImageStream,
    PinnedImageSet,
    Pod,
    PartialObjectMeta<ControllerConfig>,
    PartialObjectMeta<CustomResourceDefinition>,
    PartialObjectMeta<MachineConfig>,
    PartialObjectMeta<Node>,
    PodDisruptionBudget,
    ReplicaSet,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
);

// Kinds of OpenShift. One of them is also called Node.
object!(
    openshift::APIServer,
    openshift::ClusterImagePolicy,
    openshift::ClusterVersion,
    openshift::DNS,
    openshift::FeatureGate,
    openshift::Image,
    openshift::ImageContentSourcePolicy,
    openshift::ImageDigestMirrorSet,
    openshift::ImagePolicy,
    openshift::ImageTagMirrorSet,
    openshift::Infrastructure,
    openshift::Network,
    openshift::Node,
    openshift::Provisioning,
    openshift::Proxy,
);
