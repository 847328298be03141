//! The TLS profile of the cluster's servers.

use mco_core::kubelet::{self, TlsSettings};

use super::{RenderConfigError, one};
use crate::Context;

/// Returns the TLS versions and cipher suites of the profile in OpenShift's APIServer, or in the
/// settings of another cluster.
pub(crate) async fn settings(context: &Context) -> Result<TlsSettings, RenderConfigError> {
    let sources = &context.facts;
    let settings = sources.settings(&context.client).await?;
    let server = match sources.openshift().await? {
        Some(_) => one(&sources.api_servers),
        None => None,
    };
    let profile = server.or(settings.api_server).and_then(|it| it.spec.tls_security_profile);
    Ok(kubelet::tls_settings(profile.as_ref()))
}
