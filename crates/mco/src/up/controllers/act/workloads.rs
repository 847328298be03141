//! Deployments, ReplicaSets, DaemonSets and Jobs.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet},
    batch::v1::Job,
    core::v1::Pod,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PostParams, PropagationPolicy},
};
use mco_cluster::{
    Api, CallError,
    apply::{self, Precondition},
    error::Rejection,
};
use serde_json::json;

use super::{unless_changed, write_status};
use crate::up::controllers::{
    Controllers, daemon_set, deployment,
    job::{self, INDEX},
    pods::{self, PodView, controller},
    schedule::NodeView,
};

impl Controllers {
    /// Returns the pods that an object controls.
    fn pods_of(&self, owner: Option<&str>) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.list();
        let is_own = |pod: &Arc<Pod>| {
            let found = controller(&pod.metadata).map(|it| it.uid.as_str());
            found.is_some() && found == owner
        };
        pods.retain(is_own);
        pods
    }

    pub(in super::super) async fn deployment(
        &self,
        deployment: &Deployment,
    ) -> Result<(), CallError> {
        if deployment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut sets = self.replica_sets.list();
        let uid = deployment.metadata.uid.as_deref();
        sets.retain(|set| {
            let owner = controller(&set.metadata).map(|it| it.uid.as_str());
            owner == uid && set.metadata.deletion_timestamp.is_none()
        });
        let sets: Vec<&ReplicaSet> = sets.iter().map(|set| &**set).collect();
        let plan = deployment::plan(deployment, &sets, self.clock.now());
        let namespace = deployment.namespace();
        let api: Api<ReplicaSet> = self.api(namespace.as_deref());
        if let Some(set) = plan.create {
            match api.create(&PostParams::default(), &set).await.map_err(CallError::from) {
                Ok(made) => self.replica_sets.learn_new(made),
                // The cache does not have the set of the last pass yet.
                Err(error) if error.rejection() == Some(Rejection::AlreadyExists) => {}
                Err(error) => return unless_changed::<()>(Err(error)).map(drop),
            }
        }
        for (name, replicas) in plan.scale {
            let patch = json!({"spec": {"replicas": replicas}});
            self.merge_set(&api, &name, patch).await?;
        }
        if let Some((name, annotations)) = plan.annotate {
            let patch = json!({"metadata": {"annotations": annotations}});
            self.merge_set(&api, &name, patch).await?;
        }
        for name in plan.delete {
            unless_changed(
                api.delete(&name, &DeleteParams::background()).await.map_err(CallError::from),
            )?;
        }
        let (api, name) = (self.api(namespace.as_deref()), deployment.name_any());
        if let Some(revision) = plan.revision {
            let annotations = json!({"deployment.kubernetes.io/revision": revision});
            let patch = json!({"metadata": {"annotations": annotations}});
            let patched = apply::merge(&api, &name, patch, Precondition::Any).await;
            if let Some(patched) = unless_changed(patched)? {
                self.deployments.learn(patched);
            }
        }
        let before = deployment.status.as_ref();
        write_status(&api, &self.deployments, &name, before, &plan.status).await
    }

    async fn merge_set(
        &self,
        api: &Api<ReplicaSet>,
        name: &str,
        patch: serde_json::Value,
    ) -> Result<(), CallError> {
        let patched = apply::merge(api, name, patch, Precondition::Any).await;
        if let Some(patched) = unless_changed(patched)? {
            self.replica_sets.learn(patched);
        }
        Ok(())
    }

    pub(in super::super) async fn replica_set(&self, set: &ReplicaSet) -> Result<(), CallError> {
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let (uid, namespace) = (set.metadata.uid.as_deref(), set.namespace());
        let spec = set.spec.clone().unwrap_or_default();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let views: Vec<PodView> = self.pods_of(uid).iter().map(|pod| PodView::of(pod)).collect();
        let plan = pods::resize(wanted, &views.iter().collect::<Vec<_>>());
        let template = spec.template.unwrap_or_default();
        for _ in 0..plan.create {
            let owner = pods::reference("apps/v1", "ReplicaSet", &set.metadata);
            self.create_pod(namespace.as_deref(), &pods::from_template(&template, owner)).await?;
        }
        for name in &plan.delete {
            self.delete_pod(namespace.as_deref().unwrap_or_default(), name).await?;
        }
        let views: Vec<PodView> = self.pods_of(uid).iter().map(|pod| PodView::of(pod)).collect();
        let is_counted = |pod: &&PodView| pod.is_active() && !plan.delete.contains(&pod.name);
        let all = views.iter().filter(is_counted).count();
        let ready = views.iter().filter(is_counted).filter(|pod| pod.is_ready).count();
        let positive = |number: usize| (number > 0).then_some(number);
        let status = json!({"replicas": all, "fullyLabeledReplicas": positive(all),
            "readyReplicas": positive(ready), "availableReplicas": positive(ready),
            "observedGeneration": set.metadata.generation});
        let (api, name) = (self.api(namespace.as_deref()), set.name_any());
        write_status(&api, &self.replica_sets, &name, set.status.as_ref(), &status).await
    }

    pub(in super::super) async fn daemon_set(&self, set: &DaemonSet) -> Result<(), CallError> {
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let nodes: Vec<NodeView> =
            self.nodes.list().iter().map(|node| NodeView::of(node)).collect();
        let pods = self.pods_of(set.metadata.uid.as_deref());
        let views: Vec<PodView> = pods.iter().map(|pod| PodView::of(pod)).collect();
        let hashes = pods.iter().map(|pod| pod.labels().get(daemon_set::HASH));
        let pods: Vec<daemon_set::DaemonPod<'_>> =
            views.iter().zip(hashes.map(|it| it.map(String::as_str))).collect();
        let plan = daemon_set::plan(set, &nodes, &pods);
        let namespace = set.namespace();
        for node in &plan.create {
            self.create_pod(namespace.as_deref(), &daemon_set::pod(set, node)).await?;
        }
        for name in &plan.delete {
            self.delete_pod(namespace.as_deref().unwrap_or_default(), name).await?;
        }
        let (api, name) = (self.api(namespace.as_deref()), set.name_any());
        write_status(&api, &self.daemon_sets, &name, set.status.as_ref(), &plan.status).await
    }

    pub(in super::super) async fn job(&self, job: &Job) -> Result<(), CallError> {
        if job.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let pods = self.pods_of(job.metadata.uid.as_deref());
        let views: Vec<PodView> = pods.iter().map(|pod| PodView::of(pod)).collect();
        let index = |pod: &Arc<Pod>| pod.annotations().get(INDEX)?.parse().ok();
        let pods: Vec<job::JobPod<'_>> = views.iter().zip(pods.iter().map(index)).collect();
        let plan = job::plan(job, &pods, self.clock.now());
        let (namespace, name) = (job.namespace(), job.name_any());
        let api: Api<Job> = self.api(namespace.as_deref());
        if plan.is_expired {
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            let deleted = api.delete(&name, &params).await.map_err(CallError::from);
            return unless_changed(deleted).map(drop);
        }
        for index in plan.create {
            self.create_pod(namespace.as_deref(), &job::pod(job, index)).await?;
        }
        for pod in &plan.delete {
            self.delete_pod(namespace.as_deref().unwrap_or_default(), pod).await?;
        }
        match plan.status {
            Some(wanted) => {
                write_status(&api, &self.jobs, &name, job.status.as_ref(), &wanted).await
            }
            None => Ok(()),
        }
    }
}
