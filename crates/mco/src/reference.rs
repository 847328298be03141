//! Names of a running cluster that stand for a config: a pool, a node, a rendered config or another
//! MachineConfig.

use k8s_openapi::api::core::v1::Node;
use kube::{Client, Resource, ResourceExt, api::ListParams};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_cluster::{Api, Object};
use mco_core::{history, lint::suggest, node_index::NodeIndex, rollout::NodeView};

use crate::{decoded::DecodedConfig, error::error_with_hint, remote};

/// The objects that names are resolved in.
pub(crate) struct ClusterObjects {
    pub(crate) pools: Vec<MachineConfigPool>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) configs: Vec<MachineConfig>,
}

/// The object that a name stands for.
#[derive(Clone, Copy)]
pub(crate) enum Reference<'o> {
    Pool(&'o MachineConfigPool),
    Node(&'o Node),
    Config(&'o MachineConfig),
}

impl ClusterObjects {
    /// Fetches the objects.
    pub(crate) async fn fetch(client: &Client) -> anyhow::Result<Self> {
        Ok(Self {
            pools: list(client).await?,
            nodes: list(client).await?,
            configs: list(client).await?,
        })
    }

    /// Returns the object of this name: a pool, or else a node, or else a MachineConfig.
    pub(crate) fn find(&self, name: &str) -> Option<Reference<'_>> {
        let pool = named(&self.pools, name).map(Reference::Pool);
        let pool = pool.or_else(|| named(&self.nodes, name).map(Reference::Node));
        pool.or_else(|| named(&self.configs, name).map(Reference::Config))
    }

    /// Returns the object of this name, or an error with a similar name.
    pub(crate) fn get(&self, name: &str) -> anyhow::Result<Reference<'_>> {
        self.find(name).ok_or_else(|| {
            let pools = self.pools.iter().map(ResourceExt::name_any);
            let nodes = self.nodes.iter().map(ResourceExt::name_any);
            let names: Vec<String> =
                pools.chain(nodes).chain(self.configs.iter().map(ResourceExt::name_any)).collect();
            let hint = match suggest::closest(name, names.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "name a pool, a node or a MachineConfig".to_owned(),
            };
            error_with_hint(format!("no file, pool, node or MachineConfig is named {name:?}"), hint)
        })
    }

    /// Returns the config that a name stands for: the target of a pool, the config that a node runs, or
    /// the MachineConfig itself.
    pub(crate) fn config(&self, name: &str) -> anyhow::Result<&MachineConfig> {
        match self.get(name)? {
            Reference::Pool(pool) => self.config_of(&pool.spec.configuration.rendered.name, name),
            Reference::Node(node) => self.config_of(&NodeView::of(node).current, name),
            Reference::Config(config) => Ok(config),
        }
    }

    /// Returns the configs of an update: of a node, the one that it runs and the target of its pool; of a
    /// pool, the one before the target and the target; of a rendered config, the one before it and itself.
    pub(crate) fn update(&self, name: &str) -> anyhow::Result<(&MachineConfig, &MachineConfig)> {
        let (from, to) = match self.get(name)? {
            Reference::Node(node) => {
                let view = NodeView::of(node);
                let target =
                    self.pool_of(node).map(|pool| pool.spec.configuration.rendered.name.clone());
                (view.current, target.unwrap_or(view.desired))
            }
            Reference::Pool(pool) => {
                let target = &pool.spec.configuration.rendered.name;
                (self.before(pool, target)?, target.clone())
            }
            Reference::Config(config) => {
                let name = config.name_any();
                let owner =
                    config.owner_references().iter().find(|it| it.kind == "MachineConfigPool");
                let pool = owner.and_then(|owner| named(&self.pools, &owner.name));
                let pool = pool.ok_or_else(|| {
                    error_with_hint(
                        format!("MachineConfig {name} is not rendered"),
                        "name the other config too",
                    )
                })?;
                (self.before(pool, &name)?, name)
            }
        };
        Ok((self.config_of(&from, name)?, self.config_of(&to, name)?))
    }

    /// Returns the node of this name, or an error with a similar name.
    pub(crate) fn node(&self, name: &str) -> anyhow::Result<&Node> {
        named(&self.nodes, name).ok_or_else(|| unknown("node", name, &self.nodes))
    }

    /// Returns the MachineConfig of this name, or an error with a similar name.
    pub(crate) fn rendered(&self, name: &str) -> anyhow::Result<&MachineConfig> {
        named(&self.configs, name).ok_or_else(|| unknown("MachineConfig", name, &self.configs))
    }

    /// Returns the pool of a node.
    pub(crate) fn pool_of(&self, node: &Node) -> Option<&MachineConfigPool> {
        let mut index = NodeIndex::new(&self.pools);
        index.set_node(NodeView::of(node), node.labels());
        let pool = index.pool_of(&node.name_any()).ok().flatten()?.to_owned();
        named(&self.pools, &pool)
    }

    fn before(&self, pool: &MachineConfigPool, config: &str) -> anyhow::Result<String> {
        let revisions = history::of(pool, &self.configs);
        let place = revisions.iter().position(|revision| revision.config == config);
        let before = place.and_then(|place| revisions.get(place.checked_sub(1)?));
        before.map(|revision| revision.config.clone()).ok_or_else(|| {
            anyhow::anyhow!("pool {} has no rendered config before {config}", pool.name_any())
        })
    }

    fn config_of(&self, config: &str, name: &str) -> anyhow::Result<&MachineConfig> {
        if config.is_empty() {
            return Err(error_with_hint(
                format!("{name} has no config yet"),
                "`mco status` shows what it waits for",
            ));
        }
        named(&self.configs, config)
            .ok_or_else(|| anyhow::anyhow!("MachineConfig {config} of {name} does not exist"))
    }
}

/// Decodes a MachineConfig of the cluster.
pub(crate) fn decoded(config: &MachineConfig) -> anyhow::Result<DecodedConfig> {
    DecodedConfig::new(config.name_any(), config.spec.clone())
}

fn unknown<K: Resource<DynamicType = ()>>(kind: &str, name: &str, known: &[K]) -> anyhow::Error {
    let names: Vec<String> = known.iter().map(ResourceExt::name_any).collect();
    let hint = match suggest::closest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("`mco get {}` lists them", kind.to_lowercase()),
    };
    error_with_hint(format!("unknown {kind} {name:?}"), hint)
}

fn named<'o, K: Resource<DynamicType = ()>>(objects: &'o [K], name: &str) -> Option<&'o K> {
    objects.iter().find(|object| object.meta().name.as_deref() == Some(name))
}

async fn list<K: Object>(client: &Client) -> anyhow::Result<Vec<K>> {
    let api = Api::<K>::all(client.clone());
    Ok(api.list(&ListParams::default()).await.map_err(remote::call_error)?.items)
}
