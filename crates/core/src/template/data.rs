//! The values that templates can use.
//!
//! All members of the ControllerConfig's spec have their API names. A member that the spec lacks is
//! empty, so that templates can test it; certificates are text instead of base64.

use mco_api::{
    Bytes,
    controller_config::{ControllerConfigSpec, ImageRegistryBundle, ProxyStatus},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Facts, TemplateError,
    platform::{self, Platform},
};

/// File on each node with the URL of the API server.
const API_SERVER_URL_FILE: &str = "/etc/kubernetes/apiserver-url.env";

/// The values for the templates of one role; some are secret.
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Data(Map<String, Value>);

impl Data {
    pub(super) fn new(role: &str, facts: &Facts<'_>) -> Result<Self, TemplateError> {
        let spec = &facts.controller_config.spec;
        let mut data = members(spec);
        let infra = spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
        let api_server = infra.map(|status| status.api_server_internal_uri.as_str());
        let base_domain = spec.dns.as_ref().map(|dns| dns.spec.base_domain.as_str());
        let bundles = |list: &[ImageRegistryBundle], field| {
            let one = |it: &ImageRegistryBundle| {
                Ok(json!({"file": it.file, "data": text(Some(&it.data), field)?}))
            };
            list.iter().map(one).collect::<Result<Vec<Value>, TemplateError>>()
        };
        let rootcas = ("rootCAData", Some(&spec.root_ca_data));
        let serving = ("kubeAPIServerServingCAData", Some(&spec.kube_api_server_serving_ca_data));
        let cloud = ("cloudProviderCAData", spec.cloud_provider_ca_data.as_ref());
        let trust = ("additionalTrustBundle", spec.additional_trust_bundle.as_ref());
        let internal = ("internalRegistryPullSecret", spec.internal_registry_pull_secret.as_ref());
        for (name, bytes) in [rootcas, serving, cloud, trust, internal] {
            data.insert(name.to_owned(), json!(text(bytes, name)?));
        }
        let own = [
            ("role", json!(role)),
            (
                "imageRegistryBundleData",
                json!(bundles(&spec.image_registry_bundle_data, "imageRegistryBundleData")?),
            ),
            (
                "imageRegistryBundleUserData",
                json!(bundles(
                    &spec.image_registry_bundle_user_data,
                    "imageRegistryBundleUserData"
                )?),
            ),
            ("proxy", proxy(spec.proxy.as_ref())),
            ("pullSecret", json!(facts.pull_secret.unwrap_or_default())),
            ("tlsMinVersion", json!(facts.tls.min_version)),
            ("tlsCipherSuites", json!(facts.tls.ciphers)),
            ("platform", json!(Platform::of(spec)?)),
            ("topology", json!(platform::topology(spec).map_or("", |topology| topology.as_str()))),
            ("baseDomain", json!(base_domain.unwrap_or_default())),
            ("apiServerInternalURL", json!(api_server.unwrap_or_default())),
            ("apiServerURLFile", json!(API_SERVER_URL_FILE)),
        ];
        data.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Ok(Self(data))
    }
}

/// Returns the members of the spec. Those that are left out when empty are added.
fn members(spec: &ControllerConfigSpec) -> Map<String, Value> {
    let mut data: Map<String, Value> = ["etcdDiscoveryDomain", "networkType", "osImageURL"]
        .map(|name| (name.to_owned(), json!("")))
        .into_iter()
        .collect();
    data.insert("baseOSExtensionsContainerImage".to_owned(), json!(""));
    if let Ok(Value::Object(members)) = serde_json::to_value(spec) {
        data.extend(members);
    }
    data
}

fn proxy(proxy: Option<&ProxyStatus>) -> Value {
    let proxy = proxy.cloned().unwrap_or_default();
    json!({
        "httpProxy": proxy.http_proxy, "httpsProxy": proxy.https_proxy, "noProxy": proxy.no_proxy,
    })
}

fn text<'b>(bytes: Option<&'b Bytes>, field: &'static str) -> Result<&'b str, TemplateError> {
    let bytes = bytes.map(Bytes::as_slice).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| TemplateError::Text(field))
}
