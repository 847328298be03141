//! Endpoints and EndpointSlices of Services.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Resource, ResourceExt as _, api::DeleteParams, core::NamespaceResourceScope};
use mco_cluster::{
    Api, Cache, CallError, Object,
    apply::{self, Created, Precondition},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::unless_changed;
use crate::up::controllers::{
    Controllers,
    endpoints::{self, ENDPOINT_CONTROLLER, MANAGED_BY},
};

impl Controllers {
    pub(in super::super) async fn service(&mut self, service: &Service) -> Result<(), CallError> {
        if !endpoints::is_managed(service) || service.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let pods = self.pods.list();
        let pods: Vec<&Pod> =
            pods.iter().map(Arc::as_ref).filter(|pod| endpoints::selects(service, pod)).collect();
        let wanted = [endpoints::endpoints(service, &pods), endpoints::slice(service, &pods)];
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let key = format!("{namespace}/{name}");
        let slice = format!("{namespace}/{}", endpoints::slice_name(service));
        let is_present = self.endpoints.get(&key).is_some() && self.slices.get(&slice).is_some();
        let both = json!(wanted);
        if is_present && self.written.get(&key) == Some(&both) {
            return Ok(());
        }
        let [points, slice] = wanted;
        write::<Endpoints>(&self.api(Some(&namespace)), &self.endpoints, points).await?;
        write::<EndpointSlice>(&self.api(Some(&namespace)), &self.slices, slice).await?;
        self.written.insert(key, both);
        Ok(())
    }

    /// Deletes the Endpoints of Services that are gone. Slices are deleted with their owner.
    pub(in super::super) async fn collect_endpoints(&mut self) -> Result<(), CallError> {
        for found in self.endpoints.list() {
            let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
            let key = format!("{namespace}/{name}");
            let is_ours =
                found.labels().get(MANAGED_BY).is_some_and(|it| it == ENDPOINT_CONTROLLER);
            if !is_ours || self.services.get(&key).is_some() {
                continue;
            }
            let services: Api<Service> = self.api(Some(&namespace));
            if services.get_opt(&name).await?.is_some() {
                continue;
            }
            let api: Api<Endpoints> = self.api(Some(&namespace));
            let deleted = api.delete(&name, &DeleteParams::default()).await;
            unless_changed(deleted.map_err(CallError::from))?;
            self.written.remove(&key);
        }
        Ok(())
    }
}

/// Creates an object or replaces its members.
async fn write<K>(api: &Api<K>, cache: &Cache<K>, object: Value) -> Result<(), CallError>
where
    K: Object + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
{
    let typed: K = serde_json::from_value(object.clone())
        .map_err(|error| CallError::from(kube::Error::SerdeError(error)))?;
    let name = typed.name_any();
    match unless_changed(apply::create(api, &typed).await)? {
        Some(Created::Now(made)) => cache.learn_new(*made),
        Some(Created::Before) => {
            let merged = apply::merge(api, &name, object, Precondition::Any).await;
            if let Some(merged) = unless_changed(merged)? {
                cache.learn(merged);
            }
        }
        None => {}
    }
    Ok(())
}
