//! The objects that the operator deploys: it applies those that do not exist, and those that
//! another manager changed.
//!
//! One watch for each kind delivers the objects with the label of the installation. The version of an
//! object is recorded when it is applied; an object of another version was changed, and is applied
//! again. So nothing is written while nothing differs. An object of the same name without the label
//! belongs to another owner: it is left as it is, and reported.

mod decide;
mod observed;
mod prometheus;
mod store;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::Client;
use mco_cluster::{CallError, Queue, Shutdown, watch::Config as WatchConfig};
use mco_core::kubelet::TlsSettings;
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};
use tracing::info;

use self::{
    decide::{Action, Rollout, Version, decide, rollout},
    observed::Fingerprint,
    prometheus::{PrometheusRule, ServiceMonitor},
    store::Store,
};
use crate::manifests::{self, Condition, MANAGED_BY, ObjectName, Parameters, Stage};

/// Name of the controller's Deployment.
const CONTROLLER: &str = "machine-config-controller";

/// Time after which an object of another owner is looked at again. It is not watched.
const FOREIGN_INTERVAL: Duration = Duration::from_secs(25);

/// Time after which a controller that is not ready is a failure, as in the reference.
const ROLLOUT_LIMIT: Duration = Duration::from_mins(10);

/// A failure to deploy an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperandError {
    /// The API server rejected the object.
    #[error("failed to apply {0}")]
    Apply(Box<ObjectName>, #[source] CallError),
    /// The API server did not delete an object whose condition is over.
    #[error("failed to delete {0}")]
    Delete(Box<ObjectName>, #[source] CallError),
    /// The process cannot run, because another owner has an object of its name.
    #[error(
        "{0} belongs to another owner, because it has no label {key}={value}: delete it, or let the \
         operator replace it with `kubectl label {kind} {name} -n {namespace} {key}={value}`",
        key = MANAGED_BY.0,
        value = MANAGED_BY.1,
        kind = .0.kind.to_lowercase(),
        name = .0.name,
        namespace = .0.namespace.as_deref().unwrap_or_default()
    )]
    Foreign(Box<ObjectName>),
    /// The controller's pods are not ready.
    // Compat: the text of the reference (pkg/operator/sync.go).
    #[error("during waitForDeploymentRollout: {0}")]
    Rollout(String),
}

/// State of an object after the last reconcile.
#[derive(Clone, Debug)]
enum Record {
    Applied(Fingerprint),
    /// The object belongs to another owner.
    Foreign {
        checked: Instant,
        is_announced: bool,
    },
}

/// One object to deploy.
#[derive(Clone, Debug)]
struct Operand {
    stage: Stage,
    name: ObjectName,
    manifest: Value,
    /// Condition without which the object does not exist.
    condition: Option<Condition>,
}

/// A wait for the controller.
#[derive(Clone, Debug)]
struct Hold {
    since: Instant,
    reason: String,
}

/// The objects that the operator deploys.
pub(crate) struct Operands {
    stores: Vec<Arc<dyn Store>>,
    parameters: Mutex<Parameters>,
    objects: Mutex<Arc<Vec<Operand>>>,
    version: Version,
    has_tls: AtomicBool,
    records: Mutex<BTreeMap<ObjectName, Record>>,
    hold: Mutex<Option<Hold>>,
}

impl Operands {
    pub(crate) fn new(client: &Client, parameters: &Parameters) -> Self {
        Self {
            stores: stores(client),
            parameters: Mutex::new(parameters.clone()),
            objects: Mutex::new(Arc::new(objects(parameters))),
            version: (parameters.image.clone(), parameters.release.clone()),
            has_tls: AtomicBool::new(false),
            records: Mutex::default(),
            hold: Mutex::default(),
        }
    }

    /// Sets the verbosity of the processes.
    pub(crate) fn set_verbosity(&self, verbosity: u8) {
        self.change(|parameters| parameters.verbosity = verbosity);
    }

    /// Sets the TLS versions and cipher suites of the processes. Before that, no process is deployed,
    /// because those that run may have others.
    pub(crate) fn set_tls(&self, tls: TlsSettings) {
        self.change(|parameters| parameters.tls = tls);
        self.has_tls.store(true, Ordering::Release);
    }

    /// Changes the settings of the processes. Those that have others are applied again.
    fn change(&self, change: impl FnOnce(&mut Parameters)) {
        let mut parameters = self.parameters.lock().unwrap_or_else(PoisonError::into_inner);
        let before = parameters.clone();
        change(&mut parameters);
        if *parameters == before {
            return;
        }
        let Parameters { verbosity, tls, .. } = &*parameters;
        info!(
            verbosity,
            min_tls_version = tls.min_version,
            "Changed the settings of all processes"
        );
        let new = objects(&parameters);
        let mut known = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |it: &Operand| {
            known.iter().any(|old| old.name == it.name && old.manifest == it.manifest)
        };
        for changed in new.iter().filter(|it| !is_known(it)) {
            self.lock_records().remove(&changed.name);
        }
        *known = Arc::new(new);
    }

    /// Returns the objects to deploy.
    fn objects(&self) -> Arc<Vec<Operand>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to `queue` when an object changes.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue<()>>) {
        self.stores.iter().for_each(|store| store.subscribe(queue));
    }

    /// Starts the watches.
    pub(crate) fn watch(&self, config: &WatchConfig, stop: &Shutdown, tasks: &mut JoinSet<()>) {
        for store in &self.stores {
            let (store, config, stop) = (store.clone(), config.clone(), stop.clone());
            tasks.spawn(async move { store.run(config, stop).await });
        }
    }

    /// Waits until all objects were listed.
    pub(crate) async fn ready(&self) {
        join_all(self.stores.iter().map(|store| store.ready())).await;
    }

    /// Returns true if the objects of a kind cannot be listed. Its first list is no change of an object.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stores.iter().any(|store| !store.is_synced() && !store.is_optional())
    }

    /// Applies the objects of a stage that differ, and deletes those whose condition is over. A failure
    /// does not keep the others from being applied; the first one is returned.
    pub(crate) async fn apply(
        &self,
        stage: Stage,
        holds: impl Fn(Condition) -> bool,
    ) -> Result<(), OperandError> {
        let mut failure = Ok(());
        for operand in self.objects().iter().filter(|operand| operand.stage == stage) {
            failure = failure.and(if operand.condition.is_none_or(&holds) {
                self.keep(operand).await
            } else {
                self.remove(operand).await
            });
        }
        if stage == Stage::MachineConfigController {
            failure = failure.and(self.check_hold());
        }
        failure
    }

    /// Returns the objects of other owners, as text.
    pub(crate) fn foreign(&self) -> Vec<String> {
        let records = self.lock_records();
        let foreign = records.iter().filter(|(_, it)| matches!(it, Record::Foreign { .. }));
        foreign.map(|(name, _)| foreign_text(name)).collect()
    }

    /// Returns the objects of other owners that were not reported yet, as text, and marks them as
    /// reported.
    pub(crate) fn take_unannounced(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for (name, record) in self.lock_records().iter_mut() {
            if let Record::Foreign { is_announced: is_announced @ false, .. } = record {
                *is_announced = true;
                texts.push(foreign_text(name));
            }
        }
        texts
    }

    /// Returns the store of an object's kind; `None` if the API server does not serve the kind, which
    /// then has no objects.
    fn store_of(&self, name: &ObjectName) -> Option<&Arc<dyn Store>> {
        let store = self.stores.iter().find(|store| store.kind() == name.kind);
        store.filter(|store| store.is_synced())
    }

    /// Deletes an object of this installation.
    async fn remove(&self, operand: &Operand) -> Result<(), OperandError> {
        let name = &operand.name;
        let store = self.store_of(name);
        let Some(store) = store.filter(|store| store.get(name).is_some()) else { return Ok(()) };
        let failed = |source| OperandError::Delete(Box::new(name.clone()), source);
        store.delete(name).await.map_err(failed)?;
        info!(kind = name.kind, name = name.key(), "Deleted an object whose condition is over");
        self.lock_records().remove(name);
        Ok(())
    }

    async fn keep(&self, operand: &Operand) -> Result<(), OperandError> {
        let name = &operand.name;
        if is_workload(name) && !self.has_tls.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(store) = self.store_of(name) else { return Ok(()) };
        let record = self.lock_records().get(name).cloned();
        let failed = |source| OperandError::Apply(Box::new(name.clone()), source);
        let found = match (store.get(name), &record) {
            (Some(found), _) => Some(found),
            (None, Some(Record::Foreign { checked, .. }))
                if checked.elapsed() < FOREIGN_INTERVAL =>
            {
                return refuse(name);
            }
            // The cache has only objects of this installation.
            (None, _) => store.fetch(name).await.map_err(failed)?,
        };
        let applied = match &record {
            Some(Record::Applied(applied)) => Some(applied),
            Some(Record::Foreign { .. }) | None => None,
        };
        let controller = (name.kind == "DaemonSet").then(|| self.controller());
        let follows = controller.as_ref().map(|state| (&self.version, state));
        match decide(applied, found.as_ref(), follows) {
            Action::Nothing => Ok(()),
            Action::Leave => {
                let is_announced =
                    matches!(record, Some(Record::Foreign { is_announced: true, .. }));
                let foreign = Record::Foreign { checked: Instant::now(), is_announced };
                self.lock_records().insert(name.clone(), foreign);
                refuse(name)
            }
            Action::Hold => {
                self.hold(name, controller);
                Ok(())
            }
            Action::Apply(force) => {
                let stored = store.apply(name, &operand.manifest, force).await.map_err(failed)?;
                info!(kind = name.kind, name = name.key(), "Applied an object");
                let applied = Record::Applied(stored.fingerprint);
                self.lock_records().insert(name.clone(), applied);
                Ok(())
            }
        }
    }

    /// Returns the state of the controller.
    fn controller(&self) -> Rollout {
        let is_it = |it: &&Operand| it.name.kind == "Deployment" && it.name.name == CONTROLLER;
        let objects = self.objects();
        let found = objects.iter().find(is_it).and_then(|operand| {
            let store = self.stores.iter().find(|store| store.kind() == operand.name.kind)?;
            store.get(&operand.name)
        });
        rollout(CONTROLLER, found.as_ref(), &self.version)
    }

    /// Returns the reason for which the controller of the wanted version does not run yet, or another
    /// workload still waits for it.
    pub(crate) fn pending(&self) -> Option<String> {
        let held = self.hold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (self.controller(), held) {
            (Rollout::Incomplete(reason), _) => Some(reason),
            (Rollout::Complete, held) => held.map(|hold| hold.reason),
        }
    }

    /// Records that a workload waits for the controller.
    fn hold(&self, name: &ObjectName, controller: Option<Rollout>) {
        let Some(Rollout::Incomplete(reason)) = controller else { return };
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = hold.as_ref().is_none_or(|hold| hold.reason != reason);
        let since = hold.as_ref().map_or_else(Instant::now, |hold| hold.since);
        if is_new {
            let waiting_for = since.elapsed().as_secs();
            info!(%name, reason, waiting_for, "Waiting for the controller before an update");
        }
        *hold = Some(Hold { since, reason });
    }

    /// Ends a wait that is over. Fails if it takes too long.
    fn check_hold(&self) -> Result<(), OperandError> {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = hold.as_ref() else { return Ok(()) };
        match self.controller() {
            Rollout::Complete => {
                *hold = None;
                Ok(())
            }
            Rollout::Incomplete(reason) if waiting.since.elapsed() >= ROLLOUT_LIMIT => {
                Err(OperandError::Rollout(reason))
            }
            Rollout::Incomplete(_) => Ok(()),
        }
    }

    fn lock_records(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the objects to deploy, in the order in which they are applied.
fn objects(parameters: &Parameters) -> Vec<Operand> {
    let operand = |stage: Stage, condition: Option<Condition>, manifest: Value| {
        let name = ObjectName::of(&manifest);
        Operand { stage, name, manifest, condition }
    };
    let of_stage = |stage: &Stage| {
        let stage = *stage;
        let objects = manifests::operands(stage, parameters).into_iter();
        objects.map(move |manifest| operand(stage, None, manifest))
    };
    let conditional =
        manifests::conditional(&parameters.namespace).into_iter().map(|(condition, manifest)| {
            operand(Stage::MachineConfigController, Some(condition), manifest)
        });
    Stage::ALL.iter().flat_map(of_stage).chain(conditional).collect()
}

/// Fails if the process cannot run without the object. Its other objects may be given by another owner.
fn refuse(name: &ObjectName) -> Result<(), OperandError> {
    if is_workload(name) { Err(OperandError::Foreign(Box::new(name.clone()))) } else { Ok(()) }
}

fn is_workload(name: &ObjectName) -> bool {
    matches!(name.kind.as_str(), "Deployment" | "DaemonSet")
}

fn foreign_text(name: &ObjectName) -> String {
    let (key, value) = MANAGED_BY;
    format!("{name} belongs to another owner, because it has no label {key}={value}")
}

/// Returns a store for each kind.
fn stores(client: &Client) -> Vec<Arc<dyn Store>> {
    vec![
        store::own::<ServiceAccount>(client),
        store::own::<Service>(client),
        store::own::<ConfigMap>(client),
        store::own::<NetworkPolicy>(client),
        store::workloads::<Deployment>(client),
        store::workloads::<DaemonSet>(client),
        store::everywhere::<Role>(client),
        store::everywhere::<RoleBinding>(client),
        store::cluster::<ClusterRole>(client),
        store::cluster::<ClusterRoleBinding>(client),
        store::cluster::<ValidatingAdmissionPolicy>(client),
        store::cluster::<ValidatingAdmissionPolicyBinding>(client),
        store::optional::<ServiceMonitor>(client),
        store::optional::<PrometheusRule>(client),
    ]
}
