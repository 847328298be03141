//! Objects of a running cluster as manifests, so that the commands that work on files also work on a
//! cluster.

use http::{Request, header::ACCEPT};
use kube::Client;
use mco_api::GROUP;
use mco_core::lint::Manifests;

use crate::{
    load::{self, Loaded},
    remote,
};

/// The file name of live objects in messages.
pub(crate) const CLUSTER: &str = "<cluster>";

/// The objects to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Inputs of the rendering: MachineConfigs, pools and the ControllerConfig.
    Configs,
    /// Also nodes, pods, budgets and the MachineConfiguration.
    Cluster,
}

/// Fetches the objects. Kinds that the API server does not serve, and those that the user may not list
/// apart from MachineConfigs and pools, are left out.
pub(crate) async fn fetch(client: &Client, scope: Scope) -> anyhow::Result<Loaded> {
    let mut loaded = Loaded::default();
    let required = ["machineconfigs", "machineconfigpools"];
    for plural in required {
        let text = list(client, &format!("/apis/{GROUP}/v1/{plural}")).await;
        loaded.extend(load::text(CLUSTER.as_ref(), text.map_err(remote::call_error)?));
    }
    let mut optional = vec![format!("/apis/{GROUP}/v1/controllerconfigs")];
    if scope == Scope::Cluster {
        optional.extend(
            [
                "/api/v1/nodes",
                "/api/v1/pods",
                "/apis/policy/v1/poddisruptionbudgets",
                "/apis/operator.openshift.io/v1/machineconfigurations",
            ]
            .map(str::to_owned),
        );
    }
    for path in optional {
        match list(client, &path).await {
            Ok(text) => loaded.extend(load::text(CLUSTER.as_ref(), text)),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
            Err(error) => return Err(remote::call_error(error)),
        }
    }
    Ok(loaded)
}

/// Fetches what is rendered.
pub(crate) async fn manifests(client: &Client) -> anyhow::Result<Manifests> {
    Ok(fetch(client, Scope::Configs).await?.into_manifests())
}

async fn list(client: &Client, path: &str) -> Result<Vec<u8>, kube::Error> {
    let request = Request::get(path).header(ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    Ok(client.request_text(request).await?.into_bytes())
}
