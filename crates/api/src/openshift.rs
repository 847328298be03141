//! Kinds of OpenShift that the controller and the operator read. They are not part of this project: a
//! cluster has them or not, and no CRD is generated. Only the members that are read are declared.

pub mod cluster;
pub mod image;
pub mod image_policy;
pub mod mirror_set;

pub use cluster::{
    APIServer, ClusterVersion, DNS, FeatureGate, Infrastructure, Network, Node, Provisioning, Proxy,
};

use cluster::NoStatus;
use image::ImageSpec;
use image_policy::{ImagePolicySpec, ImagePolicyStatus};
use mirror_set::{ImageContentSourcePolicySpec, ImageDigestMirrorSetSpec, ImageTagMirrorSetSpec};

/// Declares the root object of a kind that another project defines.
macro_rules! foreign_kind {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident { spec: $spec:ty, status: $status:ty }
        $group:literal, $version:literal, $plural:literal, $scope:ident
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Standard object metadata.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// Desired state.
            #[serde(deserialize_with = "crate::wire::null_as_default")]
            pub spec: $spec,
            /// Observed state.
            #[serde(deserialize_with = "crate::wire::null_as_default")]
            pub status: $status,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = to.serialize_struct(stringify!($name), 5)?;
                let version = <Self as kube_core::Resource>::api_version(&());
                object.serialize_field("apiVersion", &version)?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                object.serialize_field("status", &self.status)?;
                object.end()
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use foreign_kind;

foreign_kind! {
    /// Settings for registries of images.
    pub struct Image { spec: ImageSpec, status: NoStatus }
    "config.openshift.io", "v1", "images", ClusterResourceScope
}

foreign_kind! {
    /// Mirrors of images that are referenced by digest.
    pub struct ImageDigestMirrorSet { spec: ImageDigestMirrorSetSpec, status: NoStatus }
    "config.openshift.io", "v1", "imagedigestmirrorsets", ClusterResourceScope
}

foreign_kind! {
    /// Mirrors of images that are referenced by tag.
    pub struct ImageTagMirrorSet { spec: ImageTagMirrorSetSpec, status: NoStatus }
    "config.openshift.io", "v1", "imagetagmirrorsets", ClusterResourceScope
}

foreign_kind! {
    /// Mirrors of images that are referenced by digest, in an older form.
    pub struct ImageContentSourcePolicy { spec: ImageContentSourcePolicySpec, status: NoStatus }
    "operator.openshift.io", "v1alpha1", "imagecontentsourcepolicies", ClusterResourceScope
}

foreign_kind! {
    /// Signatures that images need in the whole cluster.
    pub struct ClusterImagePolicy { spec: ImagePolicySpec, status: ImagePolicyStatus }
    "config.openshift.io", "v1", "clusterimagepolicies", ClusterResourceScope
}

foreign_kind! {
    /// Signatures that images need in one namespace.
    pub struct ImagePolicy { spec: ImagePolicySpec, status: ImagePolicyStatus }
    "config.openshift.io", "v1", "imagepolicies", NamespaceResourceScope
}
