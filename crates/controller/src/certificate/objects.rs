//! The Secrets and the ConfigMap that hold certificates.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
};
use mco_api::label;
use mco_cluster::{Api, CallError};

use super::{
    CertificateError,
    issue::{self, Pair},
};
use crate::Context;

/// Type of a Secret that holds a certificate and its key.
pub(super) const TLS: &str = "kubernetes.io/tls";

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca-bundle.crt";

fn secrets(context: &Context) -> Api<Secret> {
    Api::own(context.client.clone())
}

fn maps(context: &Context) -> Api<ConfigMap> {
    Api::own(context.client.clone())
}

/// Reads the Secret of that name.
pub(super) async fn read_secret(
    context: &Context,
    name: &str,
) -> Result<Option<Secret>, CertificateError> {
    let found = secrets(context).get_opt(name).await.map_err(CallError::from);
    found.map_err(|source| CertificateError::Read { kind: "Secret", name: name.to_owned(), source })
}

/// Returns the certificates in a Secret, as PEM.
pub(super) fn chain(secret: &Secret) -> Option<&[u8]> {
    secret.data.as_ref()?.get(CHAIN).map(|bytes| bytes.0.as_slice())
}

/// Returns the certificate and key in a Secret.
pub(super) fn pair(secret: &Secret) -> Option<Pair> {
    let text = |key: &str| {
        let bytes = &secret.data.as_ref()?.get(key)?.0;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    };
    Some(Pair { certificate: text(CHAIN)?, key: text(KEY)? })
}

/// Writes a certificate and its key into the Secret; `before` is its previous state.
pub(super) async fn write_pair(
    context: &Context,
    name: &str,
    before: Option<Secret>,
    made: &Pair,
) -> Result<Secret, CertificateError> {
    let api = secrets(context);
    let failed = |source: CallError| CertificateError::Write {
        kind: "Secret",
        name: name.to_owned(),
        source,
    };
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        (CHAIN.to_owned(), bytes(&made.certificate)),
        (KEY.to_owned(), bytes(&made.key)),
    ]);
    let before = match before {
        // A Secret's type is immutable, so a Secret of another type is deleted and created anew.
        Some(secret) if secret.type_.as_deref() != Some(TLS) => {
            let preconditions =
                Preconditions { uid: secret.uid(), resource_version: secret.resource_version() };
            let params = DeleteParams { preconditions: Some(preconditions), ..Default::default() };
            api.delete(name, &params).await.map_err(|error| failed(error.into()))?;
            None
        }
        other => other,
    };
    let written = if let Some(mut secret) = before {
        describe(&mut secret.metadata, made);
        secret.data.get_or_insert_default().extend(data);
        api.replace(name, &PostParams::default(), &secret).await
    } else {
        let mut secret =
            Secret { data: Some(data), type_: Some(TLS.to_owned()), ..Default::default() };
        secret.metadata.name = Some(name.to_owned());
        describe(&mut secret.metadata, made);
        api.create(&PostParams::default(), &secret).await
    };
    written.map_err(|error| failed(error.into()))
}

/// Describes the certificate in annotations, for users and for tools that search for certificates.
///
/// Compat: the keys are those of the reference's library (library-go, certrotation).
fn describe(metadata: &mut ObjectMeta, made: &Pair) {
    let Some(found) = issue::parse(made.certificate.as_bytes()) else { return };
    let annotations = metadata.annotations.get_or_insert_default();
    let mut set = |key: &str, value: String| {
        annotations.insert(format!("auth.openshift.io/certificate-{key}"), value);
    };
    set("not-before", found.view.not_before.to_string());
    set("not-after", found.view.not_after.to_string());
    set("issuer", found.view.signer);
    if !found.view.names.is_empty() {
        set("hostnames", found.view.names.into_iter().collect::<Vec<_>>().join(","));
    }
}

/// Reads the ConfigMap with the trusted CAs.
pub(super) async fn read_bundle(context: &Context) -> Result<Option<ConfigMap>, CertificateError> {
    let found = maps(context).get_opt(label::SERVER_CA).await.map_err(CallError::from);
    let name = label::SERVER_CA.to_owned();
    found.map_err(|source| CertificateError::Read { kind: "ConfigMap", name, source })
}

/// Returns the CAs in the ConfigMap, as PEM.
pub(super) fn bundle_text(map: &ConfigMap) -> Option<String> {
    map.data.as_ref()?.get(BUNDLE).cloned()
}

/// Writes the trusted CAs; `before` is the previous state of the ConfigMap.
pub(super) async fn write_bundle(
    context: &Context,
    before: Option<ConfigMap>,
    bundle: &str,
) -> Result<ConfigMap, CertificateError> {
    let api = maps(context);
    let name = label::SERVER_CA;
    let entry = (BUNDLE.to_owned(), bundle.to_owned());
    let written = if let Some(mut map) = before {
        map.data.get_or_insert_default().extend([entry]);
        api.replace(name, &PostParams::default(), &map).await
    } else {
        let mut map = ConfigMap { data: Some([entry].into()), ..Default::default() };
        map.metadata.name = Some(name.to_owned());
        api.create(&PostParams::default(), &map).await
    };
    written.map_err(|error| CertificateError::Write {
        kind: "ConfigMap",
        name: name.to_owned(),
        source: error.into(),
    })
}
