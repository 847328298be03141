//! The manifests of rendering: MachineConfigs, pools and the images of the release.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use mco_api::{MachineConfig, MachineConfigPool, PoolName, label};

use super::{Fault, FieldPath, Object, SpannedValue, settings::SettingsObjects, suggest};
use crate::render::BaseImages;

pub(super) const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// A typed object and its source.
#[derive(Debug)]
pub struct Manifest<T> {
    /// The object with its positions.
    pub object: Object,
    /// The typed object.
    pub value: T,
}

/// A pool, given or assumed.
#[derive(Debug)]
pub struct Pool {
    /// Name of the pool.
    pub name: PoolName,
    /// The typed object.
    pub value: MachineConfigPool,
    /// The object with its positions; `None` for an assumed pool.
    pub object: Option<Object>,
}

/// The objects of the input that rendering needs, by kind.
#[derive(Debug, Default)]
pub struct Manifests {
    /// MachineConfigs in the order of the input.
    pub configs: Vec<Manifest<MachineConfig>>,
    /// MachineConfigs that the controller generates from other objects of the input, which stand in for
    /// them.
    pub generated: Vec<Manifest<MachineConfig>>,
    /// Pools, given or assumed.
    pub pools: Vec<Pool>,
    /// Images of the release, from the ControllerConfig.
    pub images: Option<BaseImages>,
    /// Faults found so far.
    pub faults: Vec<Fault>,
    /// Assumptions.
    pub notes: Vec<String>,
    /// Ignored objects.
    pub details: Vec<String>,
}

impl Manifests {
    /// Sorts objects by kind; objects that do not fit their kind are added to the faults.
    #[must_use]
    pub fn new(objects: Vec<Object>, faults: Vec<Fault>) -> Self {
        let mut manifests = Self { faults, ..Self::default() };
        let mut settings = SettingsObjects::default();
        for object in objects {
            if object.kind == "ControllerConfig" {
                settings.add_release(&object);
            }
            if let Some(object) = settings.add(object, &mut manifests.faults) {
                manifests.add(object);
            }
        }
        manifests.refuse_duplicates();
        manifests.assume_pools(&settings);
        manifests.add_generated(&settings);
        manifests.note_assumptions();
        manifests
    }

    /// Returns all MachineConfigs, those that the controller generates included.
    pub fn all_configs(&self) -> impl Iterator<Item = &Manifest<MachineConfig>> {
        self.configs.iter().chain(&self.generated)
    }

    fn add_generated(&mut self, settings: &SettingsObjects) {
        let pools: Vec<_> = self.pools.iter().map(|pool| &pool.value).collect();
        let configs: Vec<_> = self.configs.iter().map(|config| &config.value).collect();
        let generated = settings.generate(&pools, &configs);
        self.generated = generated.configs;
        self.faults.extend(generated.faults);
        // A pool that was assumed for the sake of settings which do not concern it.
        let roles: BTreeSet<String> =
            self.all_configs().filter_map(|config| role(&config.value)).collect();
        self.pools.retain(|pool| pool.object.is_some() || roles.contains(pool.name.as_str()));
    }

    /// Returns true if the input contains generated MachineConfigs, and so the configs of a whole
    /// cluster.
    #[must_use]
    pub(crate) fn is_whole(&self) -> bool {
        self.configs.iter().any(|config| config.object.is_generated())
    }

    fn add(&mut self, object: Object) {
        match object.kind.as_str() {
            "MachineConfig" | "MachineConfigPool" | "ControllerConfig"
                if object.api_version != API_VERSION =>
            {
                let message =
                    format!("unknown apiVersion {} of {}", object.api_version, object.kind);
                let fault = Fault::error("UnknownApiVersion", message);
                let fault = fault.hint(format!("set apiVersion: {API_VERSION}"));
                self.faults.push(object.fault_at(&FieldPath::of("apiVersion"), fault));
            }
            "MachineConfig" => match object.root.typed::<MachineConfig>() {
                Ok(value) => self.add_config(Manifest { object, value }),
                Err(error) => self.faults.push(object.type_fault(error)),
            },
            "MachineConfigPool" => match object.root.typed::<MachineConfigPool>() {
                Ok(value) => self.add_pool(object, value),
                Err(error) => self.faults.push(object.type_fault(error)),
            },
            "ControllerConfig" => self.add_images(&object),
            _ => self.ignore(&object),
        }
    }

    fn add_config(&mut self, config: Manifest<MachineConfig>) {
        if let Err(fault) = mco_api::name::check(&config.object.name) {
            let message = format!("invalid name {:?}: {fault}", config.object.name);
            let fault = Fault::error("BadName", message);
            self.faults.push(config.object.fault_at(&FieldPath::of("metadata.name"), fault));
        }
        self.configs.push(config);
    }

    fn add_pool(&mut self, object: Object, value: MachineConfigPool) {
        match object.name.parse::<PoolName>() {
            Ok(name) => self.pools.push(Pool { name, value, object: Some(object) }),
            Err(error) => {
                let fault = Fault::error("BadName", error.to_string());
                self.faults.push(object.fault_at(&FieldPath::of("metadata.name"), fault));
            }
        }
    }

    fn add_images(&mut self, object: &Object) {
        let text = |name: &str| {
            let node = object.root.find(&FieldPath::of("spec").member(name));
            node.and_then(SpannedValue::as_str).unwrap_or_default().to_owned()
        };
        self.images = Some(BaseImages {
            os: text("baseOSContainerImage"),
            extensions: text("baseOSExtensionsContainerImage"),
        });
    }

    fn ignore(&mut self, object: &Object) {
        let ours = object.api_version.starts_with("machineconfiguration.openshift.io/");
        if ours && !kinds().contains(&object.kind) {
            let message = format!("unknown kind {} in {}", object.kind, object.api_version);
            let mut fault = Fault::error("UnknownKind", message);
            fault.hint = suggest::closest(&object.kind, kinds().iter().map(String::as_str))
                .map(|meant| format!("did you mean {meant}?"));
            self.faults.push(object.fault_at(&FieldPath::of("kind"), fault));
        } else {
            let file = &object.file.name;
            self.details.push(format!("{file}: ignored {}", object.label()));
        }
    }

    fn refuse_duplicates(&mut self) {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        let pools = self.pools.iter().filter_map(|pool| pool.object.as_ref());
        for object in self.configs.iter().map(|config| &config.object).chain(pools) {
            let at = object.fault_at(&FieldPath::of("metadata.name"), Fault::error("", ""));
            let location = at.location.map(|location| location.to_string()).unwrap_or_default();
            if let Some(earlier) = first.get(&object.label()) {
                let message = format!("duplicate {}", object.label());
                let fault = Fault::error("DuplicateName", message);
                let fault = fault.hint(format!("the first one is at {earlier}"));
                self.faults.push(object.fault_at(&FieldPath::of("metadata.name"), fault));
            } else {
                first.insert(object.label(), location);
            }
        }
    }

    /// Adds the pools that the roles of the configs imply.
    ///
    /// Built-in pools always exist; other pools are assumed only if the input contains no pools,
    /// because a given pool may select several roles.
    fn assume_pools(&mut self, settings: &SettingsObjects) {
        let mut roles: BTreeSet<String> =
            self.configs.iter().filter_map(|c| role(&c.value)).collect();
        if !settings.is_empty() && self.pools.is_empty() {
            roles.extend(["master", "worker"].map(str::to_owned));
        }
        let given: BTreeSet<String> = self.pools.iter().map(|pool| pool.name.to_string()).collect();
        for role in roles.into_iter().filter(|role| !given.contains(role)) {
            let Ok(name) = role.parse::<PoolName>() else { continue };
            if name.is_built_in() || given.is_empty() {
                self.pools.push(assumed_pool(name));
            }
        }
    }

    fn note_assumptions(&mut self) {
        let assumed = self.pools.iter().filter(|pool| pool.object.is_none());
        let names: Vec<&str> = assumed.map(|pool| pool.name.as_str()).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes.push(format!(
                "assuming pools that are not in the input, from role labels: {names}"
            ));
        }
    }
}

fn assumed_pool(name: PoolName) -> Pool {
    let own = name.as_str();
    let roles = if name.is_built_in() { vec![own] } else { vec!["worker", own] };
    // Those that the operator gives to built-in pools: other objects select pools by them.
    let own_label = format!("{}{own}", label::POOL_PREFIX);
    let labels =
        name.is_built_in().then(|| serde_json::json!({ label::BUILT_IN_POOL: "", own_label: "" }));
    let pool = serde_json::json!({
        "metadata": { "name": own, "labels": labels },
        "spec": { "machineConfigSelector": { "matchExpressions": [
            { "key": label::ROLE, "operator": "In", "values": roles },
        ] } },
    });
    let value = serde_json::from_value(pool).expect("the object above is a MachineConfigPool");
    Pool { name, value, object: None }
}

/// Returns the kinds of the CRDs.
fn kinds() -> &'static [String] {
    static KINDS: OnceLock<Vec<String>> = OnceLock::new();
    KINDS.get_or_init(|| mco_api::crds().into_iter().map(|crd| crd.spec.names.kind).collect())
}

/// Returns the role label of a config.
#[must_use]
pub fn role(config: &MachineConfig) -> Option<String> {
    config.metadata.labels.as_ref()?.get(label::ROLE).cloned()
}
