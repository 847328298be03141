//! Kinds of the Prometheus operator, of which only the names are known here.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::NamespaceResourceScope};

macro_rules! kind {
    ($(#[doc = $doc:literal])+ $name:ident, $plural:literal) => {
        $(#[doc = $doc])+
        pub(super) struct $name {
            metadata: ObjectMeta,
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "monitoring.coreos.com".into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind! {
    /// The pods that Prometheus scrapes.
    ServiceMonitor, "servicemonitors"
}
kind! {
    /// Alerts and recorded expressions.
    PrometheusRule, "prometheusrules"
}
