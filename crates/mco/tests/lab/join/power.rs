//! A machine that loses its power at each stage of joining.

use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Machine, Network},
};
use serde_json::Value;

use super::cluster::JoinCluster;

const RECORD: &str = "/var/lib/machine-config-daemon/join/join.json";
const DOCUMENT: &str = "/var/lib/machine-config-daemon/join/config.ign";
const LEDGER: &str = "/var/lib/machine-config-daemon/mco-update.json";

/// The power cuts of one machine.
pub(crate) struct Cuts<'c> {
    cluster: &'c JoinCluster<'c>,
    machine: &'c Machine,
}

impl<'c> Cuts<'c> {
    /// Starts to join without a network, so that nothing can be fetched yet.
    pub(crate) fn start(
        cluster: &'c JoinCluster<'c>,
        machine: &'c Machine,
    ) -> anyhow::Result<Self> {
        machine.set_network(Network::Cut)?;
        let mut words = vec!["systemd-run", "--unit=first-join", "--collect"];
        words.extend(cluster.join_words());
        machine.ask(&words)?;
        let cuts = Self { cluster, machine };
        cuts.wait("the record of the join", || cuts.stage().map(drop))?;
        Ok(cuts)
    }

    /// Cuts the power at every stage.
    pub(crate) fn at_every_stage(&self, log: &dyn Fn(&str)) -> anyhow::Result<()> {
        self.cut("before the config was fetched", log)?;
        self.machine.set_network(Network::Connected)?;
        self.machine.start()?;
        self.wait("the fetched config", || self.exists(DOCUMENT))?;
        self.cut("after the config was fetched", log)?;
        self.machine.start()?;
        self.wait("the begun apply", || self.exists(LEDGER).or_else(|| self.has_applied()))?;
        self.cut("amid the apply", log)?;
        self.machine.start()?;
        self.wait("the applied config", || self.has_applied())?;
        self.cut("after the apply", log)?;
        self.machine.start()?;
        self.wait("the certificate request", || self.has_requested())?;
        self.cut("before the approval", log)?;
        self.machine.boot()
    }

    fn cut(&self, when: &str, log: &dyn Fn(&str)) -> anyhow::Result<()> {
        self.machine.power_cut()?;
        let stage = self.stage().unwrap_or_default();
        log(&format!("{} lost its power {when}: {stage}", self.machine.name()));
        anyhow::ensure!(stage != "joined", "the join was over {when}");
        Ok(())
    }

    fn wait(&self, what: &str, is: impl Fn() -> Option<()>) -> anyhow::Result<()> {
        wait(what, PATIENCE, is)
            .map_err(|error| error.context(self.machine.journal(None, 60).unwrap_or_default()))
    }

    fn stage(&self) -> Option<String> {
        let text = self.machine.read(RECORD).ok()??;
        let record: Value = serde_json::from_str(&text).ok()?;
        Some(record["stage"].as_str()?.to_owned())
    }

    fn exists(&self, path: &str) -> Option<()> {
        self.machine.disk().ok()?.stat(path).ok()?.map(drop)
    }

    fn has_applied(&self) -> Option<()> {
        self.stage().filter(|stage| stage == "starting" || stage == "registering").map(drop)
    }

    fn has_requested(&self) -> Option<()> {
        let waiting = self.cluster.waiting().ok()?;
        waiting.split_whitespace().any(|word| word == self.machine.name()).then_some(())
    }
}
