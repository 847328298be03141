//! Status of pools in image mode, whose OS image is built in the cluster.

use mco_api::{
    MachineConfigPool, MachineOSBuild, MachineOSConfig,
    condition::{BuildCondition, PoolCondition, reason},
};

use super::{Finding, MachineConfigNodeView, condition};
use crate::rollout::NodeView;

/// The MachineOSConfig of a pool and its MachineOSBuild.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageBuild<'a> {
    /// MachineOSConfig of the pool.
    pub config: Option<&'a MachineOSConfig>,
    /// MachineOSBuild for the pool's config.
    pub build: Option<&'a MachineOSBuild>,
    /// The process that builds images.
    pub builder: Builder,
}

/// The process that builds the OS images of MachineOSConfigs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Builder {
    /// Some process builds images, or will.
    #[default]
    Present,
    /// No process builds images: a MachineOSConfig has no effect.
    Absent,
}

/// The config and image that a pool's nodes are to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    config: String,
    image: TargetImage,
}

/// The image that nodes are to run besides their config.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetImage {
    /// No image: the pool is not in image mode.
    None,
    /// The image is not built yet.
    Unbuilt,
    /// Any image: no process builds one.
    Any,
    /// This image, which contains this config.
    Built { image: String, config: String },
}

impl Target {
    /// Returns true if a node runs the target, by its annotations.
    pub(super) fn is_reached(&self, node: &NodeView) -> bool {
        match &self.image {
            TargetImage::None => node.is_updated(&self.config),
            TargetImage::Any => node.is_done() && node.desired == self.config,
            TargetImage::Unbuilt => false,
            TargetImage::Built { image, config } => {
                node.is_done()
                    && node.desired == self.config
                    && node.desired == *config
                    && node.desired_image.as_ref() == Some(image)
            }
        }
    }

    /// Returns true if a node keeps a built image with another config, because no process builds
    /// images.
    pub(super) fn is_kept(&self, node: &NodeView) -> bool {
        self.image == TargetImage::Any && node.has_built_image() && node.desired != self.config
    }

    /// Returns true if an updated MachineConfigNode refers to this target.
    pub(super) fn is_reported(&self, report: &MachineConfigNodeView) -> bool {
        report.desired == self.config
            && match &self.image {
                TargetImage::None => report.desired_image.is_empty(),
                TargetImage::Any => true,
                TargetImage::Unbuilt => false,
                TargetImage::Built { image, config } => {
                    report.desired == *config && report.desired_image == *image
                }
            }
    }
}

/// The progress of a build; if several conditions are true, the first one listed here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuildState {
    /// The pool is not in image mode.
    Absent,
    /// A MachineOSConfig exists, and no build.
    Wanted,
    Prepared,
    Running,
    Succeeded,
    Failed,
    Interrupted,
    /// The build exists and has not started.
    Created,
}

impl ImageBuild<'_> {
    /// Returns the target of a pool's nodes.
    pub(super) fn target(&self, pool: &MachineConfigPool) -> Target {
        let image = match (self.image(), self.build) {
            _ if self.config.is_none() && self.build.is_none() => TargetImage::None,
            _ if self.builder == Builder::Absent => TargetImage::Any,
            ("", _) | (_, None) => TargetImage::Unbuilt,
            (image, Some(build)) => TargetImage::Built {
                image: image.to_owned(),
                config: build.spec.machine_config.name.clone(),
            },
        };
        Target { config: pool.spec.configuration.rendered.name.clone(), image }
    }

    /// Returns the latest image of the MachineOSConfig; empty before the first build.
    fn image(&self) -> &str {
        let status = self.config.and_then(|config| config.status.as_ref());
        status.map(|status| status.current_image_pull_spec.as_str()).unwrap_or_default()
    }

    /// Returns the text for the target, as in the reference's messages.
    pub(super) fn line(&self, config: &str) -> String {
        let image = if self.builder == Builder::Absent { "" } else { self.image() };
        match image {
            "" => format!("MachineConfig {config}"),
            image => format!("MachineConfig {config} / Image {image}"),
        }
    }

    fn is(&self, kind: &BuildCondition) -> bool {
        let status = self.build.and_then(|build| build.status.as_ref());
        status.is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|found| found.type_ == kind.as_str() && found.status == "True")
        })
    }

    fn state(&self) -> BuildState {
        if self.build.is_none() {
            return if self.config.is_some() { BuildState::Wanted } else { BuildState::Absent };
        }
        let states = [
            (BuildCondition::Prepared, BuildState::Prepared),
            (BuildCondition::Building, BuildState::Running),
            (BuildCondition::Succeeded, BuildState::Succeeded),
            (BuildCondition::Failed, BuildState::Failed),
            (BuildCondition::Interrupted, BuildState::Interrupted),
        ];
        let found = states.iter().find(|(kind, _)| self.is(kind));
        found.map_or(BuildState::Created, |(_, state)| *state)
    }

    /// Returns true if nodes cannot be updated because the image is not available yet.
    pub(super) fn is_pending(&self) -> bool {
        let (Some(_), Some(build)) = (self.config, self.build) else { return false };
        let under_way =
            [BuildCondition::Building, BuildCondition::Prepared, BuildCondition::Failed];
        let pushed = build.status.as_ref().map(|status| status.digested_image_push_spec.as_str());
        let pushed = pushed.filter(|image| !image.is_empty());
        under_way.iter().any(|kind| self.is(kind))
            || (self.is(&BuildCondition::Succeeded)
                && pushed.is_some_and(|image| image != self.image()))
    }

    /// Returns the condition `Updating` of a pool in image mode.
    pub(super) fn updating(&self, pool: &MachineConfigPool, all_updated: bool) -> Option<Finding> {
        let config = self.config.filter(|_| self.builder == Builder::Present)?;
        if pool.spec.paused {
            return Some(self.updating_paused(config));
        }
        let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
        let troubles = [
            PoolCondition::RenderDegraded,
            PoolCondition::NodeDegraded,
            PoolCondition::PinnedImageSetsDegraded,
        ];
        let is_in_trouble =
            troubles.iter().any(|kind| condition::holds(conditions.unwrap_or_default(), kind));
        if is_in_trouble {
            return Some(Finding::no("", "Pool update paused due to degraded condition"));
        }
        let build = self.name_of_build();
        let waits = |text: &str| Some(Finding::yes("", &format!("Pool is waiting for {text}")));
        let stopped = |text: &str| {
            let text = format!("Pool update stopped due to OS image build {text} (mosb: {build})");
            Some(Finding::no("", &text))
        };
        match self.state() {
            BuildState::Absent | BuildState::Wanted => {
                let name = config.metadata.name.as_deref().unwrap_or_default();
                waits(&format!("a new OS image build to start (mosc: {name})"))
            }
            BuildState::Prepared | BuildState::Created => {
                waits(&format!("OS image build to start (mosb: {build})"))
            }
            BuildState::Running => waits(&format!("OS image build to complete (mosb: {build})")),
            BuildState::Succeeded if all_updated => None,
            BuildState::Succeeded => waits(&format!("nodes to apply OS image (mosb: {build})")),
            BuildState::Failed => stopped("failure"),
            BuildState::Interrupted => stopped("being interrupted"),
        }
    }

    fn updating_paused(&self, config: &MachineOSConfig) -> Finding {
        let build = self.name_of_build();
        let say = |text: &str| format!("Pool is paused; OS image build {text} (mosb: {build})");
        match self.state() {
            BuildState::Absent | BuildState::Wanted => {
                let name = config.metadata.name.as_deref().unwrap_or_default();
                let text = "Pool is paused; waiting for a new OS image build to start";
                Finding::yes("", &format!("{text} (mosc: {name})"))
            }
            BuildState::Prepared => {
                Finding::yes("", &say("has been prepared but will not rollout"))
            }
            BuildState::Running => Finding::yes("", &say("in progress")),
            BuildState::Created => Finding::yes("", &say("has been created but not yet started")),
            BuildState::Succeeded => Finding::no("", &say("completed successfully")),
            BuildState::Failed => Finding::no("", &say("failed")),
            BuildState::Interrupted => Finding::no("", &say("was interrupted")),
        }
    }

    /// Returns the condition `ImageModeUnsupported` of a pool whose MachineOSConfig has no effect;
    /// `kept` is the number of nodes that keep a built image.
    pub(super) fn unsupported(&self, kept: usize) -> Option<Finding> {
        let config = self.config.filter(|_| self.builder == Builder::Absent)?;
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let kept = match kept {
            0 => String::new(),
            1 => " 1 node runs a built image with an earlier config and is not updated.".to_owned(),
            more => {
                format!(
                    " {more} nodes run a built image with an earlier config and are not updated."
                )
            }
        };
        let text = format!(
            "MachineOSConfig {name} has no effect: no process builds OS images in this cluster. \
             Nodes without a built image follow the pool's config.{kept}"
        );
        Some(Finding::yes(reason::NO_BUILDER, &text))
    }

    fn name_of_build(&self) -> &str {
        self.build.and_then(|build| build.metadata.name.as_deref()).unwrap_or_default()
    }

    /// Returns the condition that clears an earlier build failure, if any; `failed` is true if
    /// there is one.
    pub(super) fn clear_failure(&self, failed: bool) -> Option<Finding> {
        if self.build.is_some() {
            let is_active =
                self.is(&BuildCondition::Building) || self.is(&BuildCondition::Prepared);
            let building = PoolCondition::Building;
            let success = PoolCondition::BuildSuccess;
            return if is_active {
                Some(Finding::no(building.as_str(), "New build started"))
            } else if self.is(&BuildCondition::Succeeded) {
                Some(Finding::no(success.as_str(), "Build completed successfully"))
            } else {
                None
            };
        }
        if !failed {
            return None;
        }
        Some(if self.config.is_some() {
            let text = "MachineOSConfig updated/created, waiting for MachineOSBuild";
            Finding::no(PoolCondition::BuildPending.as_str(), text)
        } else {
            // No object builds images for the pool, so an earlier build failure is stale.
            let text = "No layered pool objects found, clearing stale build degraded condition";
            Finding::no(reason::NO_LAYERED_OBJECTS, text)
        })
    }
}
