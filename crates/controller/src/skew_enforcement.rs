//! The metric for boot images whose age is not limited.

use std::sync::Arc;

use mco_api::{
    ControllerConfig, MachineConfiguration, annotation::Topology, controller_config::PlatformType,
};

use crate::{Context, control_plane::topology};

/// Updates the metric with every change of the objects that it depends on.
pub(crate) fn subscribe(context: &Arc<Context>) {
    let of = context.clone();
    context.caches.machine_configurations.on_change(move |_| update(&of));
    let of = context.clone();
    context.caches.controller_configs.on_change(move |_| update(&of));
}

fn update(context: &Context) {
    let settings = context.caches.machine_configuration();
    let cluster = context.caches.controller_config();
    context.metrics.set_no_skew_enforcement(is_disabled(settings.as_deref(), cluster.as_deref()));
}

/// Returns true if the administrator disabled the limit.
///
/// Compat: never on single nodes and on bare metal, where the cluster does not know the boot images.
fn is_disabled(
    settings: Option<&MachineConfiguration>,
    cluster: Option<&ControllerConfig>,
) -> bool {
    let status = settings.and_then(|settings| settings.status.as_ref());
    let status = status.and_then(|status| status.boot_image_skew_enforcement_status.as_ref());
    let is_single = cluster.and_then(topology) == Some(Topology::SingleReplica);
    let infra = cluster.and_then(|cluster| cluster.spec.infra.as_ref()?.status.as_ref());
    let platform = infra.and_then(|infra| infra.platform_status.as_ref());
    let is_metal = platform.is_some_and(|platform| platform.kind == PlatformType::BareMetal);
    status.is_some_and(|status| status.mode == "None") && !is_single && !is_metal
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // covers: MET-1
    #[test]
    fn the_alert_is_for_clusters_that_could_limit_the_age() {
        let settings = |mode: &str| -> MachineConfiguration {
            let status = json!({"bootImageSkewEnforcementStatus": {"mode": mode}});
            let object = json!({"metadata": {"name": "cluster"}, "spec": {}, "status": status});
            serde_json::from_value(object).unwrap()
        };
        let cluster = |platform: &str, topology: &str| -> ControllerConfig {
            let status = json!({
                "controlPlaneTopology": topology, "platformStatus": {"type": platform},
            });
            let spec = json!({"infra": {"spec": {}, "status": status}});
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap()
        };
        let rows = [
            ("None", "AWS", "HighlyAvailable", true),
            ("Manual", "AWS", "HighlyAvailable", false),
            ("None", "AWS", "SingleReplica", false),
            ("None", "BareMetal", "HighlyAvailable", false),
        ];
        for (mode, platform, topology, expected) in rows {
            let (settings, cluster) = (settings(mode), cluster(platform, topology));
            let found = is_disabled(Some(&settings), Some(&cluster));
            assert_eq!(found, expected, "{mode} {platform} {topology}");
        }
        assert!(!is_disabled(None, None));
    }
}
