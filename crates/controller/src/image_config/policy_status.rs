//! Conditions of ImagePolicies whose scopes a ClusterImagePolicy has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use mco_api::openshift::ImagePolicy;
use mco_cluster::{
    Api,
    apply::{self, Precondition},
};
use mco_core::{
    cluster_settings::ClusterSettings,
    image_config::{ImageConfig, ScopeConflict},
};
use serde_json::json;

use crate::{Context, error::ActError};

/// Compat: the type of the reference's condition.
const PENDING: &str = "Pending";

/// Sets the condition of each ImagePolicy with a conflict, and removes it where the conflict is over.
/// Conditions of others stay.
pub(super) async fn report(
    context: &Context,
    images: &ImageConfig,
    settings: &ClusterSettings,
) -> Result<(), ActError> {
    // Policies of the ConfigMap have no status.
    if !context.caches.settings.serves::<ImagePolicy>() {
        return Ok(());
    }
    for policy in &settings.image_policies {
        let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
        let conflict = images
            .conflicts()
            .iter()
            .find(|conflict| (&conflict.namespace, &conflict.name) == (&namespace, &name));
        let Some(conditions) = conditions(context, policy, conflict) else { continue };
        let api = Api::<ImagePolicy>::namespaced(context.client.clone(), &namespace);
        let version = policy.resource_version().unwrap_or_default();
        let status = json!({"conditions": conditions});
        let patched = apply::merge_status(&api, &name, status, Precondition::Unchanged(&version));
        patched.await.map_err(|source| ActError::PatchSettings {
            kind: "ImagePolicy",
            name: format!("{namespace}/{name}"),
            source,
        })?;
    }
    Ok(())
}

/// Returns the new conditions of a policy; `None` if they are right already.
fn conditions(
    context: &Context,
    policy: &ImagePolicy,
    conflict: Option<&ScopeConflict>,
) -> Option<Vec<Condition>> {
    let before = &policy.status.conditions;
    let is_ours = |condition: &&Condition| {
        condition.type_ == PENDING && condition.reason == ScopeConflict::REASON
    };
    let known = before.iter().find(is_ours);
    let message = conflict.map(ScopeConflict::message);
    let generation = policy.metadata.generation;
    let is_right = match (known, &message) {
        (None, None) => true,
        (Some(known), Some(message)) => {
            known.message == *message && known.observed_generation == generation
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_right {
        return None;
    }
    let mut conditions = before.clone();
    conditions.retain(|condition| condition.type_ != PENDING);
    conditions.extend(message.map(|message| Condition {
        type_: PENDING.to_owned(),
        status: "False".to_owned(),
        reason: ScopeConflict::REASON.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: Time(context.clock.now()),
    }));
    Some(conditions)
}
