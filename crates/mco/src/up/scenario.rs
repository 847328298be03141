//! Scenarios that `mco up` plays on its cluster, with a line for every step and every change of a node.

mod narrator;
mod stories;

use std::{fmt, net::SocketAddr, str::FromStr};

use kube::Client;
use mco_apiserver::ApiServer;
use mco_cluster::Shutdown;
use mco_core::lint::suggest;

use self::narrator::Narrator;
use super::{
    Settings, display::ClusterWatch, fleet, rights::Identities, state_dir::StateDir,
    view::StatusView,
};
use crate::print::Screen;

/// The cluster that a scenario is played on.
pub(super) struct Stage<'s> {
    pub(super) client: Client,
    pub(super) api: ApiServer,
    pub(super) identities: Identities,
    pub(super) cluster: ClusterWatch,
    pub(super) state: &'s StateDir,
    pub(super) settings: &'s Settings,
    /// Address of the config server.
    pub(super) server: SocketAddr,
    pub(super) shutdown: &'s Shutdown,
}

impl Stage<'_> {
    /// Plays a scenario, once all nodes run their configs.
    pub(super) async fn play(
        &self,
        story: Scenario,
        screen: &mut Screen<'_>,
    ) -> anyhow::Result<()> {
        let mut narrator = Narrator::new(self, screen);
        let machines = fleet::machines(self.settings.masters, self.settings.workers).len();
        let is_complete = |view: &StatusView| {
            let members = view.progress.pools.iter().map(|pool| pool.machines).sum::<usize>();
            let is_ready = view.progress.pools.iter().all(|pool| pool.ready == pool.machines);
            view.progress.is_done() && is_ready && members == machines
        };
        narrator.until("all nodes to run their configs", is_complete).await?;
        narrator.begin();
        narrator.tell(&format!("Scenario {story}: {}.", story.summary()))?;
        stories::play(&mut narrator, story).await?;
        narrator.tell(&format!(
            "Scenario {story} is complete. The cluster stops; `mco up` continues it."
        ))
    }
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    NoReboot,
    KernelArgument,
    BadConfig,
    Drift,
    Budget,
    Join,
    ApiLost,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::NoReboot,
        Self::KernelArgument,
        Self::BadConfig,
        Self::Drift,
        Self::Budget,
        Self::Join,
        Self::ApiLost,
    ];

    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoReboot => "no-reboot",
            Self::KernelArgument => "kernel-argument",
            Self::BadConfig => "bad-config",
            Self::Drift => "drift",
            Self::Budget => "budget",
            Self::Join => "join",
            Self::ApiLost => "api-lost",
        }
    }

    /// Returns the scenario in one line.
    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::NoReboot => {
                "an SSH key reaches every worker, without a drain and without a reboot"
            }
            Self::KernelArgument => {
                "a kernel argument drains and reboots one worker after the other"
            }
            Self::BadConfig => {
                "a config that cannot be applied stops at the first worker and is reverted"
            }
            Self::Drift => "an editor changes a managed file; the node is degraded, then restored",
            Self::Budget => "a PodDisruptionBudget blocks a drain until it is deleted",
            Self::Join => "a new machine takes its config from the config server and joins",
            Self::ApiLost => {
                "the API server is lost for a minute during an update; no node reboots or rolls back for it"
            }
        }
    }
}

/// The value of `--scenario`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioChoice {
    /// Print the scenarios.
    List,
    /// Play a scenario.
    Play(Scenario),
}

impl FromStr for ScenarioChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "list" {
            return Ok(Self::List);
        }
        let names = || Scenario::ALL.iter().map(|it| it.name());
        let found = Scenario::ALL.iter().find(|it| it.name() == text);
        found.map(|it| Self::Play(*it)).ok_or_else(|| match suggest::closest(text, names()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("the scenarios are {}", names().collect::<Vec<_>>().join(", ")),
        })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name() {
        assert_eq!("list".parse(), Ok(ScenarioChoice::List));
        for story in Scenario::ALL {
            assert_eq!(story.name().parse(), Ok(ScenarioChoice::Play(story)));
        }
        let error = "bugdet".parse::<ScenarioChoice>().unwrap_err();
        assert_eq!(error, "did you mean budget?");
    }
}
