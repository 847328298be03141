//! SSH keys of nodes: the ConfigMap `ssh-authorized-keys` becomes `99-<role>-ssh`.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use mco_cluster::{
    Api, Cache, Note, Queue, Shutdown, client::namespace, queue::Reconciled, report::chain, watch,
};
use mco_core::template;
use tracing::warn;

use super::{Item, apply, trim_map};
use crate::Context;

/// Name of the ConfigMap, in the namespace of the operator.
const CONFIG_MAP: &str = "ssh-authorized-keys";

/// Roles that get the keys for all; custom pools have the configs of `worker` too.
const ROLES: [&str; 3] = ["arbiter", "master", "worker"];

/// Returns true for the name of a MachineConfig with the SSH keys of a role.
pub(super) fn is_ssh_config(name: &str) -> bool {
    let role = name.strip_prefix("99-").and_then(|rest| rest.strip_suffix("-ssh"));
    role.is_some_and(|role| template::ssh_config_name(role) == name)
}

/// The SSH keys of the cluster.
pub(super) struct Keys {
    maps: Arc<Cache<ConfigMap>>,
    /// True once the ConfigMap is cached or known to be absent.
    is_known: AtomicBool,
    queue: Arc<Queue<Item>>,
}

impl Keys {
    pub(super) fn new(queue: &Arc<Queue<Item>>) -> Self {
        let (maps, again) = (Cache::<ConfigMap>::new(trim_map), queue.clone());
        maps.on_change(move |_| again.add(Item::SshKeys));
        Self { maps: Arc::new(maps), is_known: AtomicBool::new(false), queue: queue.clone() }
    }

    /// Watches the ConfigMap until shutdown is requested.
    pub(super) async fn run(&self, context: &Context, shutdown: &Shutdown) {
        let api = Api::<ConfigMap>::own(context.client.clone());
        let config = watch::Config::default().named(CONFIG_MAP);
        let known = async {
            self.maps.ready().await;
            self.is_known.store(true, Ordering::Relaxed);
            self.queue.add(Item::SshKeys);
        };
        tokio::select! {
            () = self.maps.run(api, config, shutdown) => {}
            () = async { known.await; future::pending().await } => {}
        }
    }

    pub(super) async fn reconcile(&self, context: &Context) -> Reconciled {
        // Without the ConfigMap the MachineConfigs are deleted; so it must be known to be absent.
        if !self.is_known.load(Ordering::Relaxed) || context.own_controller_config().is_none() {
            return Reconciled::Done;
        }
        let map = self.maps.get(&format!("{}/{CONFIG_MAP}", namespace(&context.client)));
        let data = map.as_ref().and_then(|map| map.data.clone()).unwrap_or_default();
        let has_pool = |role: &&str| context.caches.pools.get(role).is_some();
        let roles: Vec<&str> = ROLES.into_iter().filter(has_pool).collect();
        let wanted = match template::ssh_configs(&data, &roles, &context.build) {
            Ok(wanted) => wanted,
            Err(error) => {
                warn!(config_map = CONFIG_MAP, error = chain(&error), "Refused SSH keys");
                if let Some(map) = &map {
                    let note = Note::warning(&**map, "InvalidSSHKeys", &error);
                    context.reporter("templatecontroller").publish(&note).await;
                }
                return Reconciled::Done;
            }
        };
        let found = context.caches.configs.list().into_iter();
        let plan = apply::compare(found.filter(|it| is_ssh_config(&it.name_any())), &wanted);
        if !plan.kept.is_empty() {
            let configs = plan.kept.join(", ");
            warn!(configs, "Kept SSH keys that another operator or a user made");
        }
        match apply::run(context, &plan).await {
            Ok(()) => Reconciled::Done,
            Err(error) => {
                warn!(error = chain(&error), "Failed to write the SSH keys of nodes");
                Reconciled::after(&error)
            }
        }
    }
}
