//! Condition types and reasons of all kinds.
//!
//! Programs and alerts match on these words, so they are part of the contract; messages are not.

use crate::wire_enum::wire_enum;

wire_enum! {
    /// Condition types of a MachineConfigPool.
    pub enum PoolCondition {
        /// All nodes run the pool's config.
        Updated = "Updated",
        /// Some nodes are being updated to the pool's config.
        Updating = "Updating",
        /// The pool cannot make progress; one of the specific conditions below has the reason.
        Degraded = "Degraded",
        /// Some nodes failed to apply their config.
        NodeDegraded = "NodeDegraded",
        /// The controller failed to render the pool's config.
        RenderDegraded = "RenderDegraded",
        /// The build of the pool's OS image failed.
        ImageBuildDegraded = "ImageBuildDegraded",
        /// The pool has a MachineOSConfig, and no process builds its OS images.
        ImageModeUnsupported = "ImageModeUnsupported",
        /// Some nodes failed to pull pinned images.
        PinnedImageSetsDegraded = "PinnedImageSetsDegraded",
        /// A pool synchronizer fails.
        PoolSynchronizerDegraded = "PoolSynchronizerDegraded",
        /// An image build is about to start.
        BuildPending = "BuildPending",
        /// An image build is running.
        Building = "Building",
        /// The last image build succeeded.
        BuildSuccess = "BuildSuccess",
        /// The last image build failed.
        BuildFailed = "BuildFailed",
        /// The last image build was interrupted.
        BuildInterrupted = "BuildInterrupted",
    }
}

wire_enum! {
    /// Condition types of a MachineConfigNode: the steps of an update, and failures.
    pub enum NodeCondition {
        /// The node runs its desired config.
        Updated = "Updated",
        /// The daemon checked the change and can apply it.
        UpdatePrepared = "UpdatePrepared",
        /// The daemon applied the change.
        UpdateExecuted = "UpdateExecuted",
        /// The action after the change is complete: reload, restart or none.
        UpdatePostActionComplete = "UpdatePostActionComplete",
        /// The update is complete.
        UpdateComplete = "UpdateComplete",
        /// The node is back in service.
        Resumed = "Resumed",
        /// The node is unschedulable.
        Cordoned = "Cordoned",
        /// The node's pods were evicted.
        Drained = "Drained",
        /// The files and the OS were changed.
        AppliedFilesAndOS = "AppliedFilesAndOS",
        /// The files were changed.
        AppliedFiles = "AppliedFiles",
        /// The OS was changed.
        AppliedOSImage = "AppliedOSImage",
        /// The OS image was pulled.
        ImagePulledFromRegistry = "ImagePulledFromRegistry",
        /// The node rebooted.
        RebootedNode = "RebootedNode",
        /// The node is schedulable again.
        Uncordoned = "Uncordoned",
        /// The last update failed.
        NodeDegraded = "NodeDegraded",
        /// The daemon is pulling pinned images.
        PinnedImageSetsProgressing = "PinnedImageSetsProgressing",
        /// The daemon failed to pull pinned images.
        PinnedImageSetsDegraded = "PinnedImageSetsDegraded",
        /// The registry on the node has problems.
        InternalReleaseImageDegraded = "InternalReleaseImageDegraded",
        /// The node needs another config, and the controller has not assigned it yet; not in the
        /// reference.
        Waiting = "Waiting",
    }
}

wire_enum! {
    /// Condition types of a KubeletConfig or a ContainerRuntimeConfig.
    pub enum SettingsCondition {
        /// The controller generated a MachineConfig from the settings.
        Success = "Success",
        /// The controller rejected the settings.
        Failure = "Failure",
        /// Acceptance of the settings; the newer form, on KubeletConfigs only.
        Accepted = "Accepted",
    }
}

wire_enum! {
    /// Condition types of a ControllerConfig.
    pub enum ControllerConfigConditionType {
        /// The template controller is generating base configs.
        TemplateControllerRunning = "TemplateControllerRunning",
        /// The template controller generated the base configs.
        TemplateControllerCompleted = "TemplateControllerCompleted",
        /// The template controller failed to generate the base configs.
        TemplateControllerFailing = "TemplateControllerFailing",
    }
}

wire_enum! {
    /// Condition types of a MachineOSBuild.
    pub enum BuildCondition {
        /// The objects that the build needs exist.
        Prepared = "Prepared",
        /// The build is running.
        Building = "Building",
        /// The image was built and pushed.
        Succeeded = "Succeeded",
        /// The build was interrupted.
        Interrupted = "Interrupted",
        /// The build failed.
        Failed = "Failed",
    }
}

wire_enum! {
    /// Condition types of a ClusterOperator.
    pub enum OperatorCondition {
        /// The components that the operator manages work.
        Available = "Available",
        /// The operator is rolling out a change.
        Progressing = "Progressing",
        /// The operator fails to do its work.
        Degraded = "Degraded",
        /// The cluster may be upgraded.
        Upgradeable = "Upgradeable",
        /// The operator found settings that may matter to support.
        EvaluationConditionsDetected = "EvaluationConditionsDetected",
        /// Every host on the network can read the configs of new machines; not in the reference.
        FirstBootUnauthenticated = "FirstBootUnauthenticated",
    }
}

wire_enum! {
    /// Condition types of a release in an InternalReleaseImage or on a node.
    pub enum ReleaseCondition {
        /// The release can be used.
        Available = "Available",
        /// The medium with the release is mounted.
        Mounted = "Mounted",
        /// The release is being copied to the node.
        Installing = "Installing",
        /// The release is being removed.
        Removing = "Removing",
        /// The release has a problem.
        Degraded = "Degraded",
    }
}

/// Condition reasons, grouped by subject.
pub mod reason {
    /// Everything is as expected.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// No data yet.
    pub const NO_DATA: &str = "NoData";
    /// The step has not happened in this update.
    pub const NOT_YET_OCCURRED: &str = "NotYetOccurred";
    /// The daemon is pulling pinned images.
    pub const IMAGE_PREFETCH: &str = "ImagePrefetch";
    /// The daemon failed to pull pinned images.
    pub const PREFETCH_FAILED: &str = "PrefetchFailed";
    /// A degraded pool blocks cluster upgrades.
    pub const DEGRADED_POOL: &str = "DegradedPool";
    /// The controller and its inputs are of different builds, as in the middle of an upgrade.
    pub const BUILD_SKEW: &str = "BuildSkew";
    /// The controller does not renew its Lease.
    pub const CONTROLLER_NOT_RUNNING: &str = "MachineConfigControllerNotRunning";
    /// The DaemonSet of the config server has no ready pod.
    pub const SERVER_NOT_RUNNING: &str = "MachineConfigServerNotRunning";
    /// Nodes of a pool do not have its config yet.
    pub const POOL_UPDATING: &str = "PoolUpdating";
    /// Nodes of a paused pool do not have its config.
    pub const POOL_PAUSED: &str = "PoolPaused";
    /// A `CustomResourceDefinition` of another owner lacks members.
    pub const INCOMPLETE_DEFINITIONS: &str = "IncompleteDefinitions";
    /// New machines are not authenticated.
    pub const JOIN_TOKENS_OFF: &str = "JoinTokensOff";
    /// An interrupted build blocks cluster upgrades.
    pub const INTERRUPTED_BUILD: &str = "InterruptedBuild";
    /// Boot images are too old for the next cluster upgrade.
    pub const BOOT_IMAGE_SKEW: &str = "ClusterBootImageSkewError";
    /// A build started.
    pub const BUILDING: &str = "Building";
    /// A build is pending.
    pub const BUILD_PENDING: &str = "BuildPending";
    /// A build succeeded.
    pub const BUILD_SUCCESS: &str = "BuildSuccess";
    /// A build failed.
    pub const BUILD_FAILED: &str = "BuildFailed";
    /// No process builds OS images.
    pub const NO_BUILDER: &str = "NoBuilder";
    /// The pool no longer builds images.
    pub const NO_LAYERED_OBJECTS: &str = "NoLayeredObjects";
    /// All releases are available.
    pub const ALL_RELEASES_AVAILABLE: &str = "AllReleasesAvailable";
    /// The registry on the node does not answer.
    pub const REGISTRY_UNREACHABLE: &str = "RegistryUnreachable";
    /// A release is missing on the node.
    pub const RELEASE_IMAGE_NOT_FOUND: &str = "ReleaseImageNotFound";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printer columns of `kubectl get` filter on condition types.
    #[test]
    fn columns_name_conditions_that_exist() {
        let known: Vec<&str> = [PoolCondition::WORDS, NodeCondition::WORDS, BuildCondition::WORDS]
            .into_iter()
            .chain([OperatorCondition::WORDS])
            .flatten()
            .copied()
            .collect();
        let crds = crate::crds();
        let paths = crds
            .iter()
            .flat_map(|crd| &crd.spec.versions)
            .flat_map(|version| version.additional_printer_columns.iter().flatten())
            .filter_map(|column| column.json_path.strip_prefix(".status.conditions[?(@.type==\""));
        let mut seen = 0;
        for path in paths {
            let (word, _) = path.split_once('"').expect("a quoted word");
            assert!(known.contains(&word), "{word}");
            seen += 1;
        }
        assert!(seen > 20, "{seen} columns");
    }
}
