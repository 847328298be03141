//! What the daemon does about each task.

use std::time::Duration;

use mco_api::{
    MachineConfig, RenderedName,
    annotation::{self, DaemonState, DrainVerb, PostConfigAction, Topology},
};
use mco_core::{
    drift::Drift,
    machine::Machine,
    plan::{self, Circumstances, Drain, Force, NodePlan, default_policies},
};
use mco_host::System;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Agent, Next, SyncError};
use crate::{
    cluster::{Changes, Cluster, Weight},
    decide::{self, NodeView},
    disk,
    execute::{self, Outcome},
    heal::{self, Decision, Why},
    ledger::{self, Resume},
    verify,
};

/// Long enough for pods that take their time, short enough for somebody to hear of it.
const DRAIN_LIMIT: Duration = Duration::from_hours(1);
/// The kernel tells of changes as they happen; a look at everything now and then finds what it missed.
const LOOK_AGAIN: Duration = Duration::from_mins(30);
const UNCORDON_LIMIT: Duration = Duration::from_mins(10);

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Sees that the node is as its config says, has it uncordoned and says that all is well.
    pub(super) async fn settle(
        &mut self,
        node: &NodeView,
        config: &RenderedName,
    ) -> Result<Next, SyncError> {
        if self.verified.as_ref() != Some(config) {
            let current = self.current(config).await?;
            if self.pivots_to(&current).await? {
                return self.conclude(Outcome::RebootDue, config.as_str()).await;
            }
            self.verify(config, &current).await?;
            info!("Validated on-disk state");
            // Only now, so that a disk that was never right is never on record as right.
            self.on_host(move |host| -> Result<(), disk::DiskError> {
                if disk::current_config(&host.root)?.is_none() {
                    disk::record_config(&host.root, &current)?;
                }
                if disk::tidy_first_boot(&host.root)? {
                    warn!(
                        "Failed to complete machine-config-daemon-firstboot before joining cluster!"
                    );
                }
                disk::has_joined(&host.root)
            })
            .await??;
        }
        let is_said = node.state == Some(DaemonState::Done)
            && node.current.as_ref() == Some(config)
            && node.reason.is_empty();
        if is_said {
            self.waiting = None;
            return Ok(Next::Wait(Some(Instant::now() + LOOK_AGAIN)));
        }
        if let Some(next) = self.await_drain(node, DrainVerb::Uncordon, config).await? {
            return Ok(next);
        }
        info!("Update completed for config {config} and node has been successfully uncordoned");
        let text = format!("Update completed for config {config} and node has been uncordoned");
        self.cluster.tell(Weight::Normal, "Uncordon", &text).await;
        let text = format!("Setting node {}, currentConfig {config} to Done", self.node);
        self.cluster.tell(Weight::Normal, "NodeDone", &text).await;
        let mut done = Changes::new();
        done.insert(annotation::STATE.name().to_owned(), Some(DaemonState::Done.to_string()));
        done.insert(annotation::CURRENT_CONFIG.name().to_owned(), Some(config.to_string()));
        done.insert(annotation::REASON.name().to_owned(), Some(String::new()));
        self.annotate(done).await?;
        info!("In desired state MachineConfig: {config}");
        Ok(Next::Wait(Some(Instant::now() + LOOK_AGAIN)))
    }

    /// Moves the node from one config to another.
    pub(super) async fn update(
        &mut self,
        node: &NodeView,
        from: &RenderedName,
        to: &RenderedName,
        force: bool,
    ) -> Result<Next, SyncError> {
        let target = self.cluster.machine_config(to.as_str()).await?;
        let source = self.current(from).await?;
        self.expect_confirmation(to, force).await?;
        if force {
            info!("Skipping preflight config drift check; {} present", execute::FORCE_FILE);
        } else {
            self.verify(from, &source).await?;
            info!("Preflight config drift check successful");
        }
        // Compat: a node that failed stays failed until it is done (pkg/daemon/update.go).
        if !node.is_failing() {
            let state = Some(DaemonState::Working.to_string());
            self.annotate([(annotation::STATE.name().to_owned(), state)].into()).await?;
        }
        let plan = self.plan(&source, &target, force).await?;
        let drains = matches!(plan.drain, Drain::Needed(_));
        info!("Drain calculated for node disruption: {drains} for config {to}");
        if !drains {
            info!("Changes do not require drain, skipping.");
        } else if node.topology == Some(Topology::SingleReplica) {
            self.cluster.tell(Weight::Normal, "Drain", "Drain not required, skipping").await;
        } else if let Some(next) = self.await_drain(node, DrainVerb::Drain, to).await? {
            return Ok(next);
        }
        self.unguard();
        let outcome = self
            .on_host(move |host| execute::begin(host, &source, &target, plan, &mut |_| {}))
            .await??;
        self.conclude(outcome, to.as_str()).await
    }

    /// Goes on with an update that was begun before.
    pub(super) async fn resume(&mut self, resume: Resume) -> Result<Next, SyncError> {
        info!("Resuming an update: {resume:?}");
        self.unguard();
        let (target, outcome) = self
            .on_host(move |host| -> Result<_, SyncError> {
                let Some((update, progress)) = ledger::open(&host.root)? else {
                    return Ok((String::new(), Outcome::Applied));
                };
                let target = update.to.metadata.name.clone().unwrap_or_default();
                let witness: execute::Witness<'_> = &mut |_| {};
                let outcome = match resume {
                    Resume::Continue(done) => execute::proceed(host, &update, done, witness)?,
                    Resume::Undo => execute::undo(host, &update, &progress)?,
                    Resume::Reboot => Outcome::RebootDue,
                    Resume::Verify => {
                        ledger::close(&host.root)?;
                        Outcome::Applied
                    }
                };
                Ok((target, outcome))
            })
            .await??;
        self.conclude(outcome, &target).await
    }

    /// Says that the reboot is over.
    pub(super) async fn note_reboot(&mut self) -> Result<Next, SyncError> {
        let key = annotation::POST_CONFIG_ACTION.name().to_owned();
        self.annotate([(key, Some(String::new()))].into()).await?;
        Ok(Next::Again)
    }

    async fn conclude(&mut self, outcome: Outcome, config: &str) -> Result<Next, SyncError> {
        match outcome {
            Outcome::Applied => Ok(Next::Again),
            Outcome::RebootDue => {
                let text = format!("Node will reboot into config {config}");
                self.cluster.tell(Weight::Normal, "Reboot", &text).await;
                let key = annotation::POST_CONFIG_ACTION.name().to_owned();
                let value = Some(PostConfigAction::Rebooting.to_string());
                if let Err(error) = self.annotate([(key, value)].into()).await {
                    warn!(%error, "Could not update annotation");
                }
                let config = config.to_owned();
                self.on_host(move |host| execute::reboot(host, &config)).await??;
                Ok(Next::Rebooting)
            }
        }
    }

    async fn plan(
        &self,
        source: &MachineConfig,
        target: &MachineConfig,
        force: bool,
    ) -> Result<NodePlan, SyncError> {
        let policies = self.cluster.policies().await?.unwrap_or_else(default_policies);
        let facts = self.on_host(|host| host.system.facts()).await??;
        let circumstances = Circumstances {
            force: if force { Force::Yes } else { Force::No },
            kernel_fips: facts.kernel_fips,
            ..Circumstances::default()
        };
        let (from, to) = (read(source)?, read(target)?);
        info!("Checking Reconcilable for config {} to {}", from.name, to.name);
        let plan = plan::node(&from, &to, &policies, &circumstances)?;
        info!("Starting update from {} to {}", from.name, to.name);
        for verdict in &plan.verdicts {
            info!("Calculated node disruption action: {verdict}");
        }
        Ok(plan)
    }

    /// Has the node drained or uncordoned; none once that is done.
    async fn await_drain(
        &mut self,
        node: &NodeView,
        verb: DrainVerb,
        config: &RenderedName,
    ) -> Result<Option<Next>, SyncError> {
        let request = decide::request(verb, config);
        if node.asked.as_ref() == Some(&request) && node.has_answer(&request) {
            self.waiting = None;
            return Ok(None);
        }
        if node.asked.as_ref() != Some(&request) {
            if verb == DrainVerb::Drain {
                info!("Update prepared; requesting cordon and drain via annotation to controller");
                self.cluster.tell(Weight::Normal, "Cordon", "Cordoned node to apply update").await;
                let text = "Draining node to update config.";
                self.cluster.tell(Weight::Normal, "Drain", text).await;
            }
            let key = annotation::DESIRED_DRAIN.name().to_owned();
            self.annotate([(key, Some(request.to_string()))].into()).await?;
            let node = NodeView::read(&self.known.annotations)?;
            if node.has_answer(&request) {
                self.waiting = None;
                return Ok(None);
            }
        }
        let now = Instant::now();
        let since = match &self.waiting {
            Some((waiting, since)) if *waiting == request => *since,
            _ => now,
        };
        self.waiting = Some((request, since));
        let limit = match verb {
            DrainVerb::Drain => DRAIN_LIMIT,
            DrainVerb::Uncordon => UNCORDON_LIMIT,
        };
        if now >= since + limit {
            return Err(SyncError::NoAnswer { verb, node: self.node.clone() });
        }
        Ok(Some(Next::Wait(Some(since + limit))))
    }

    /// The config that the node has: from its disk, or from the cluster where the disk has none.
    async fn current(&self, name: &RenderedName) -> Result<MachineConfig, SyncError> {
        let recorded = self.on_host(|host| disk::current_config(&host.root)).await??;
        match recorded {
            Some(config) if config.metadata.name.as_deref() == Some(name.as_str()) => Ok(config),
            _ => Ok(self.cluster.machine_config(name.as_str()).await?),
        }
    }

    /// Refuses a disk that is not as the config says. Watches first, so that nothing slips between.
    async fn verify(
        &mut self,
        name: &RenderedName,
        config: &MachineConfig,
    ) -> Result<(), SyncError> {
        let machine = read(config)?;
        self.guard(&machine).await?;
        let mut found = self.differences(&machine).await?;
        if !found.is_empty() && self.heal(&machine, config, &found).await? {
            found = self.differences(&machine).await?;
        }
        self.verified = found.is_empty().then(|| name.clone());
        match found.into_iter().next() {
            Some(drift) => Err(SyncError::Drift { config: name.clone(), drift }),
            None => Ok(()),
        }
    }

    async fn differences(&self, machine: &Machine) -> Result<Vec<Drift>, SyncError> {
        let machine = machine.clone();
        Ok(self.on_host(move |host| verify::all(host, &machine)).await??)
    }

    /// Puts right what differs where the pool wants it so; says whether anything was done.
    async fn heal(
        &mut self,
        machine: &Machine,
        config: &MachineConfig,
        found: &[Drift],
    ) -> Result<bool, SyncError> {
        let policy = self.cluster.drift_policy().await?;
        let now = self.since.elapsed();
        let (steps, subjects) = match heal::decide(&policy, machine, found, &self.healed, now) {
            Decision::Leave(Why::Policy) => return Ok(false),
            Decision::Leave(why) => {
                warn!("Leaving config drift as it is: {why}");
                return Ok(false);
            }
            Decision::Heal(steps, subjects) => (steps, subjects),
        };
        self.healed.note(&subjects, now);
        let config = config.clone();
        self.on_host(move |host| execute::repair(host, &config, &steps)).await??;
        let text = format!("Put back what config {} has at {}", machine.name, subjects.join(", "));
        info!("{text}");
        self.cluster.tell(Weight::Warning, "ConfigDriftHealed", &text).await;
        Ok(true)
    }
}

pub(super) fn read(config: &MachineConfig) -> Result<Machine, SyncError> {
    let name = config.metadata.name.clone().unwrap_or_default();
    Machine::read(config).map_err(|source| SyncError::Config { config: name, source })
}
