//! The namespace of the installation in a cluster.
//!
//! The ClusterOperator tells it. Before the operator runs, and after an uninstallation, a label of the
//! namespace does; a cluster without either has, or gets, an installation in the standard one.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};
use mco_api::{ClusterOperator, label};
use mco_cluster::client::in_namespace;

use super::call_error;
use crate::error::error_with_hint;

/// Returns the client of the installation in the cluster.
pub(crate) async fn enter(client: Client) -> anyhow::Result<Client> {
    let namespace = find(&client).await?.unwrap_or_else(|| label::NAMESPACE.to_owned());
    Ok(in_namespace(client, &namespace))
}

/// Like [`enter`], with the standard namespace if the API server does not answer, which is a finding of
/// its own.
pub(crate) async fn enter_if_found(client: Client) -> Client {
    let namespace = find(&client).await.ok().flatten();
    in_namespace(client, namespace.as_deref().unwrap_or(label::NAMESPACE))
}

/// Returns the namespace that the ClusterOperator, or a label of a namespace, names; `None` if neither
/// exists.
pub(crate) async fn find(client: &Client) -> anyhow::Result<Option<String>> {
    let operators = Api::<ClusterOperator>::all(client.clone());
    match operators.get_metadata(label::CLUSTER_OPERATOR).await {
        Ok(found) => {
            return Ok(Some(label::installed_in(found.metadata.annotations.as_ref()).to_owned()));
        }
        Err(error) if is_hidden(&error) => {}
        Err(error) => return Err(call_error(error)),
    }
    let labelled = ListParams::default().labels(label::INSTALLATION);
    let namespaces = match Api::<Namespace>::all(client.clone()).list_metadata(&labelled).await {
        Ok(found) => found.items,
        Err(error) if is_hidden(&error) => Vec::new(),
        Err(error) => return Err(call_error(error)),
    };
    let names: Vec<String> = namespaces.iter().map(ResourceExt::name_any).collect();
    match names.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => Err(error_with_hint(
            format!(
                "the namespaces {} have the label {} of an installation, and there is no ClusterOperator",
                several.join(", "),
                label::INSTALLATION
            ),
            format!(
                "remove the label of those without one: kubectl label namespace NAME {}-",
                label::INSTALLATION
            ),
        )),
    }
}

/// Returns true if the object, or its kind, does not exist, or the user may not read it.
fn is_hidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}
