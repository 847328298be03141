//! The container engines of a pool's nodes, and the base config with their files.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{MachineConfig, MachineConfigPool, label, selector};
use mco_cluster::cache::Change;
use mco_core::{
    container_runtime::{Engines, base_config as base_config_name},
    generated,
    kubelet::{self, Delivery},
};

use crate::Context;

/// The pool whose base configs custom pools have.
const WORKER: &str = "worker";

/// Returns the engines of the nodes of these pools.
pub(crate) fn engines<'p>(context: &Context, pools: impl IntoIterator<Item = &'p str>) -> Engines {
    let mut names = Vec::new();
    let index = context.enqueuer.node_index();
    for nodes in pools.into_iter().filter_map(|pool| index.pool_nodes(pool)) {
        names.extend(nodes.nodes().map(|node| node.name.clone()));
    }
    drop(index);
    let nodes = names.iter().filter_map(|name| context.caches.nodes.get(name));
    let versions: BTreeSet<String> = nodes.filter_map(|node| version(&node).cloned()).collect();
    Engines::of(versions.iter().map(String::as_str))
}

fn version(node: &Node) -> Option<&String> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    Some(&info.container_runtime_version)
}

/// Returns true if a node came, went, changed its engine or its labels, which decide its pool.
pub(crate) fn is_affected(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    version(before) != version(after) || before.metadata.labels != after.metadata.labels
}

/// Returns the names of the pools that select the MachineConfigs of a role.
pub(crate) fn pools_with_role(context: &Context, role: &str) -> Vec<String> {
    let labels = [(label::ROLE.to_owned(), role.to_owned())].into();
    let selects = |pool: &Arc<MachineConfigPool>| {
        let selector = pool.spec.machine_config_selector.as_ref();
        selector.is_some_and(|selector| selector::matches(selector, &labels).unwrap_or_default())
    };
    let pools = context.caches.pools.list();
    pools.iter().filter(|pool| selects(pool)).map(|pool| pool.name_any()).collect()
}

/// Returns the base config with the files of a pool's container engine; that of `worker` for a custom
/// pool.
pub(crate) fn base_config(context: &Context, pool: &str) -> Option<Arc<MachineConfig>> {
    let get = |role: &str| context.caches.configs.get(&base_config_name(role));
    get(pool).or_else(|| if pool == "master" { None } else { get(WORKER) })
}

/// Returns the way in which settings reach the kubelets of a pool.
pub(crate) fn kubelet_delivery(context: &Context, pool: &str) -> Delivery {
    kubelet::delivery(context.caches.configs.get(&kubelet::base_name(pool)).as_deref())
}

/// Returns true if a MachineConfig may be a base config with the files of a container engine.
pub(crate) fn is_base_config(name: &str) -> bool {
    let ends = name.ends_with("-container-runtime") || name.ends_with("-kubelet");
    name.starts_with("01-") && ends
}

/// Returns the text of a file in a config; `None` if it has no such file.
pub(crate) fn text_of(config: Option<&MachineConfig>, path: &str) -> Option<String> {
    let contents = config.and_then(|config| generated::file_of(config, path))?;
    String::from_utf8(contents).ok()
}
