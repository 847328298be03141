//! The manifests that rendering is about: configs, pools and the images of the release.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use mco_api::{MachineConfig, MachineConfigPool, PoolName, label};
use mco_core::render::{self, BaseImages, RenderError, Rendered, SelectError, Selection};

use super::{Loaded, Object, node::Path};
use crate::{
    check,
    fault::{Advice, Fault, Refused},
    suggest,
};

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// A typed object and where it stands.
#[derive(Debug)]
pub(crate) struct Manifest<T> {
    pub(crate) object: Object,
    pub(crate) value: T,
}

/// A pool, given or assumed.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: PoolName,
    pub(crate) value: MachineConfigPool,
    /// Where it stands; none for an assumed one.
    pub(crate) object: Option<Object>,
}

/// Everything in the input that rendering is about.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    pub(crate) configs: Vec<Manifest<MachineConfig>>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) images: Option<BaseImages>,
    pub(crate) faults: Vec<Fault>,
    /// What was assumed.
    pub(crate) notes: Vec<String>,
    /// What was left aside.
    pub(crate) details: Vec<String>,
}

impl Manifests {
    /// Sorts what was loaded; everything that does not fit is among the faults.
    pub(crate) fn new(loaded: Loaded) -> Self {
        let mut manifests = Self { faults: loaded.faults, ..Self::default() };
        for object in loaded.objects {
            manifests.add(object);
        }
        manifests.refuse_duplicates();
        manifests.assume_pools();
        manifests
    }

    /// The manifests, provided there is no error among the faults.
    pub(crate) fn or_refuse(mut self) -> anyhow::Result<Self> {
        if self.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(Refused(self.faults)));
        }
        if self.configs.is_empty() {
            return Err(Advice::error(
                "the input holds no MachineConfig",
                "name files or directories with -f, or pipe `kubectl get machineconfigs -o yaml` \
                 into -f -",
            ));
        }
        if self.images.is_none() {
            self.details.push(
                "no ControllerConfig in the input: the OS image stays empty unless a MachineConfig \
                 names one, so the rendered name differs from a cluster's"
                    .to_owned(),
            );
        }
        Ok(self)
    }

    /// Prints what the person should know before the result.
    pub(crate) fn tell(&self, verbose: bool) {
        let details = self.details.iter().filter(|_| verbose);
        self.notes.iter().chain(details).for_each(|text| crate::print::note(text));
    }

    /// The pool of that name, or the only one.
    pub(crate) fn pool(&self, name: Option<&str>) -> anyhow::Result<&Pool> {
        let names = || self.pools.iter().map(|pool| pool.name.as_str());
        let listed = names().collect::<Vec<_>>().join(", ");
        match (name, self.pools.as_slice()) {
            (Some(name), pools) => {
                pools.iter().find(|pool| pool.name.as_str() == name).ok_or_else(|| {
                    let hint = match suggest::closest(name, names()) {
                        Some(meant) => format!("did you mean {meant}?"),
                        None => format!("the pools are: {listed}"),
                    };
                    Advice::error(format!("there is no pool {name} in the input"), hint)
                })
            }
            (None, [only]) => Ok(only),
            (None, []) => Err(Advice::error(
                "the input has no pool, and no MachineConfig with a role to assume one from",
                format!("add the label {}: worker to the MachineConfigs", label::ROLE),
            )),
            (None, [_, ..]) => Err(Advice::error(
                "the input has several pools",
                format!("choose one with --pool: {listed}"),
            )),
        }
    }

    /// Whether the input holds what the cluster itself adds, and so is more than somebody's part.
    pub(crate) fn is_whole(&self) -> bool {
        self.configs.iter().any(|config| config.object.is_generated())
    }

    /// Renders the pool of that name, or all that have something to render.
    pub(crate) fn render_all(&self, name: Option<&str>) -> anyhow::Result<Vec<(&Pool, Rendered)>> {
        if name.is_some() || self.pools.len() < 2 {
            let pool = self.pool(name)?;
            return Ok(vec![(pool, self.render(pool)?)]);
        }
        let mut rendered = Vec::new();
        for pool in &self.pools {
            let configs = self.configs.iter().map(|config| &config.value);
            match render::select(&pool.value, configs) {
                Err(SelectError::Nothing(_)) => {
                    crate::print::note(&format!("pool {} selects nothing in the input", pool.name));
                }
                Ok(_) | Err(SelectError::BadSelector { .. }) => {
                    rendered.push((pool, self.render(pool)?));
                }
            }
        }
        if rendered.is_empty() {
            return Err(Advice::error(
                "no pool selects any MachineConfig of the input",
                "check the role labels against the pools' machineConfigSelector",
            ));
        }
        Ok(rendered)
    }

    /// Renders a pool.
    pub(crate) fn render(&self, pool: &Pool) -> anyhow::Result<Rendered> {
        let selected = match render::select(&pool.value, self.configs.iter().map(|c| &c.value)) {
            Ok(Selection::Configs(configs)) => configs,
            Ok(Selection::Everything) => {
                return Err(Advice::error(
                    format!("pool {} selects all MachineConfigs", pool.name),
                    "give it a machineConfigSelector that names roles",
                ));
            }
            Err(error) => {
                return Err(anyhow::Error::new(error).context(cannot_render(&pool.name)));
            }
        };
        let images = self.images.clone().unwrap_or_default();
        render::pool(&pool.name, &selected, &images).map_err(|error| self.failure(pool, error))
    }

    /// Why a pool does not render: the faults with their places, where one config is to blame.
    fn failure(&self, pool: &Pool, error: RenderError) -> anyhow::Error {
        let culprit = match &error {
            RenderError::Invalid { config, .. } | RenderError::Upgrade { config, .. } => {
                Some(config.clone())
            }
            RenderError::Nothing(_)
            | RenderError::NoLabels(_)
            | RenderError::KernelDevel(_)
            | RenderError::Unhashable { .. }
            | RenderError::Name { .. }
            | RenderError::TooLarge { .. }
            | RenderError::StreamAndOverride => None,
        };
        let error = anyhow::Error::new(error);
        let error = match culprit {
            Some(config) => self.blame(&config, error),
            None => error,
        };
        error.context(cannot_render(&pool.name))
    }

    /// The errors that a config has, with their places; `otherwise` where none was found.
    pub(crate) fn blame(&self, config: &str, otherwise: anyhow::Error) -> anyhow::Error {
        let label = format!("MachineConfig/{config}");
        let mut faults = check::all(self);
        faults.retain(|fault| fault.is_error() && fault.object.as_ref() == Some(&label));
        if faults.is_empty() { otherwise } else { anyhow::Error::new(Refused(faults)) }
    }

    fn add(&mut self, object: Object) {
        match object.kind.as_str() {
            "MachineConfig" | "MachineConfigPool" | "ControllerConfig"
                if object.api_version != API_VERSION =>
            {
                let message = format!("{} has apiVersion {}", object.kind, object.api_version);
                let fault = Fault::error("UnknownApiVersion", message);
                let fault = fault.hint(format!("write apiVersion: {API_VERSION}"));
                self.faults.push(object.fault_at(&Path::of("apiVersion"), fault));
            }
            "MachineConfig" => match object.node.typed::<MachineConfig>() {
                Ok(value) => self.add_config(Manifest { object, value }),
                Err(misfit) => self.faults.push(object.misfit(misfit)),
            },
            "MachineConfigPool" => match object.node.typed::<MachineConfigPool>() {
                Ok(value) => self.add_pool(object, value),
                Err(misfit) => self.faults.push(object.misfit(misfit)),
            },
            "ControllerConfig" => self.add_images(&object),
            _ => self.leave_aside(&object),
        }
    }

    fn add_config(&mut self, config: Manifest<MachineConfig>) {
        if let Err(fault) = mco_api::name::check(&config.object.name) {
            let message =
                format!("{:?} cannot be the name of an object: {fault}", config.object.name);
            let fault = Fault::error("BadName", message);
            self.faults.push(config.object.fault_at(&Path::of("metadata.name"), fault));
        }
        self.configs.push(config);
    }

    fn add_pool(&mut self, object: Object, value: MachineConfigPool) {
        match object.name.parse::<PoolName>() {
            Ok(name) => self.pools.push(Pool { name, value, object: Some(object) }),
            Err(error) => {
                let fault = Fault::error("BadName", error.to_string());
                self.faults.push(object.fault_at(&Path::of("metadata.name"), fault));
            }
        }
    }

    fn add_images(&mut self, object: &Object) {
        let text = |name: &str| {
            let node = object.node.find(&Path::of("spec").member(name));
            node.and_then(super::node::Node::as_str).unwrap_or_default().to_owned()
        };
        self.images = Some(BaseImages {
            os: text("baseOSContainerImage"),
            extensions: text("baseOSExtensionsContainerImage"),
        });
    }

    fn leave_aside(&mut self, object: &Object) {
        let ours = object.api_version.starts_with("machineconfiguration.openshift.io/");
        if ours && !kinds().contains(&object.kind) {
            let message = format!("there is no kind {} in {}", object.kind, object.api_version);
            let mut fault = Fault::error("UnknownKind", message);
            fault.hint = suggest::closest(&object.kind, kinds().iter().map(String::as_str))
                .map(|meant| format!("did you mean {meant}?"));
            self.faults.push(object.fault_at(&Path::of("kind"), fault));
        } else {
            let file = &object.file.name;
            self.details.push(format!("{file}: {} is left aside", object.label()));
        }
    }

    fn refuse_duplicates(&mut self) {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let pools = self.pools.iter().filter_map(|pool| pool.object.as_ref());
        for object in self.configs.iter().map(|config| &config.object).chain(pools) {
            let at = object.fault_at(&Path::of("metadata.name"), Fault::error("", ""));
            let place = at.place.map(|place| place.to_string()).unwrap_or_default();
            if let Some(earlier) = first.get(&object.label()) {
                let message = format!("{} comes twice", object.label());
                let fault = Fault::error("DuplicateName", message);
                let fault = fault.hint(format!("the first one is at {earlier}"));
                self.faults.push(object.fault_at(&Path::of("metadata.name"), fault));
            } else {
                first.insert(object.label(), place);
            }
        }
    }

    /// Adds the pools that go without saying.
    ///
    /// Those that ship with the cluster always exist; others are assumed only where the input says
    /// nothing about pools at all, because a given pool may select several roles.
    fn assume_pools(&mut self) {
        let roles: BTreeSet<String> = self.configs.iter().filter_map(|c| role(&c.value)).collect();
        let given: BTreeSet<String> = self.pools.iter().map(|pool| pool.name.to_string()).collect();
        let mut assumed = Vec::new();
        for role in roles.into_iter().filter(|role| !given.contains(role)) {
            let Ok(name) = role.parse::<PoolName>() else { continue };
            if name.is_built_in() || given.is_empty() {
                assumed.push(role);
                self.pools.push(assumed_pool(name));
            }
        }
        if !assumed.is_empty() {
            let names = assumed.join(", ");
            self.notes.push(format!(
                "assuming pools that are not in the input, from role labels: {names}"
            ));
        }
    }
}

fn assumed_pool(name: PoolName) -> Pool {
    let own = name.as_str();
    let roles = if name.is_built_in() { vec![own] } else { vec!["worker", own] };
    let pool = serde_json::json!({
        "metadata": { "name": own },
        "spec": { "machineConfigSelector": { "matchExpressions": [
            { "key": label::ROLE, "operator": "In", "values": roles },
        ] } },
    });
    let value = serde_json::from_value(pool).expect("the text above is a pool");
    Pool { name, value, object: None }
}

/// Every kind we define.
fn kinds() -> &'static [String] {
    static KINDS: OnceLock<Vec<String>> = OnceLock::new();
    KINDS.get_or_init(|| mco_api::crds().into_iter().map(|crd| crd.spec.names.kind).collect())
}

/// The role a config is labelled with.
pub(crate) fn role(config: &MachineConfig) -> Option<String> {
    config.metadata.labels.as_ref()?.get(label::ROLE).cloned()
}

fn cannot_render(pool: &PoolName) -> String {
    format!("cannot render pool {pool}")
}
