//! Condition types and the fixed reason words that go with them.
//!
//! Programs and alerts match on these, so they are part of the contract; messages are not.

use crate::wire_enum::wire_enum;

wire_enum! {
    /// Conditions of a MachineConfigPool.
    pub enum PoolCondition {
        /// Every node runs the pool's config.
        Updated = "Updated",
        /// Some node is on its way to the pool's config.
        Updating = "Updating",
        /// The pool cannot make progress: any of the specific ones below.
        Degraded = "Degraded",
        /// Some node failed to take its config.
        NodeDegraded = "NodeDegraded",
        /// The pool's configs cannot be merged.
        RenderDegraded = "RenderDegraded",
        /// The pool's OS image cannot be built.
        ImageBuildDegraded = "ImageBuildDegraded",
        /// Pinned images cannot be pulled.
        PinnedImageSetsDegraded = "PinnedImageSetsDegraded",
        /// Side work of the pool fails.
        PoolSynchronizerDegraded = "PoolSynchronizerDegraded",
        /// A build is about to start.
        BuildPending = "BuildPending",
        /// A build runs.
        Building = "Building",
        /// The last build succeeded.
        BuildSuccess = "BuildSuccess",
        /// The last build failed.
        BuildFailed = "BuildFailed",
        /// The last build was interrupted.
        BuildInterrupted = "BuildInterrupted",
    }
}

wire_enum! {
    /// Conditions of a MachineConfigNode: the steps of an update, and what is wrong.
    pub enum NodeCondition {
        /// The node runs its config.
        Updated = "Updated",
        /// The change was checked and can be applied.
        UpdatePrepared = "UpdatePrepared",
        /// The change was applied.
        UpdateExecuted = "UpdateExecuted",
        /// What follows the change is done: reload, restart or nothing.
        UpdatePostActionComplete = "UpdatePostActionComplete",
        /// The update is over.
        UpdateComplete = "UpdateComplete",
        /// The node works again.
        Resumed = "Resumed",
        /// No pods are scheduled onto the node.
        Cordoned = "Cordoned",
        /// The node's pods were evicted.
        Drained = "Drained",
        /// Files and OS were changed.
        AppliedFilesAndOS = "AppliedFilesAndOS",
        /// Files were changed.
        AppliedFiles = "AppliedFiles",
        /// The OS was changed.
        AppliedOSImage = "AppliedOSImage",
        /// The OS image was pulled.
        ImagePulledFromRegistry = "ImagePulledFromRegistry",
        /// The machine restarted.
        RebootedNode = "RebootedNode",
        /// Pods may be scheduled onto the node again.
        Uncordoned = "Uncordoned",
        /// The last attempt failed.
        NodeDegraded = "NodeDegraded",
        /// Images are being pulled ahead of time.
        PinnedImageSetsProgressing = "PinnedImageSetsProgressing",
        /// Images cannot be pulled ahead of time.
        PinnedImageSetsDegraded = "PinnedImageSetsDegraded",
        /// The node's own registry has problems.
        InternalReleaseImageDegraded = "InternalReleaseImageDegraded",
        /// The node needs another config and is not told it yet; not in the reference.
        Waiting = "Waiting",
    }
}

wire_enum! {
    /// Conditions of a KubeletConfig or a ContainerRuntimeConfig.
    pub enum SettingsCondition {
        /// The settings became part of a config.
        Success = "Success",
        /// The settings were refused.
        Failure = "Failure",
        /// Whether the settings were accepted; the newer form, on KubeletConfigs only.
        Accepted = "Accepted",
    }
}

wire_enum! {
    /// Conditions of a ControllerConfig.
    pub enum ControllerConfigConditionType {
        /// Base configs are being made.
        TemplateControllerRunning = "TemplateControllerRunning",
        /// Base configs are made.
        TemplateControllerCompleted = "TemplateControllerCompleted",
        /// Base configs cannot be made.
        TemplateControllerFailing = "TemplateControllerFailing",
    }
}

wire_enum! {
    /// Conditions of a MachineOSBuild.
    pub enum BuildCondition {
        /// What the build needs is there.
        Prepared = "Prepared",
        /// The build runs.
        Building = "Building",
        /// The image was built and pushed.
        Succeeded = "Succeeded",
        /// The build was stopped.
        Interrupted = "Interrupted",
        /// The build failed.
        Failed = "Failed",
    }
}

wire_enum! {
    /// Conditions of a ClusterOperator.
    pub enum OperatorCondition {
        /// What it manages works.
        Available = "Available",
        /// It is changing something.
        Progressing = "Progressing",
        /// It fails to do its work.
        Degraded = "Degraded",
        /// The cluster may be upgraded.
        Upgradeable = "Upgradeable",
        /// Settings were found that may matter to support.
        EvaluationConditionsDetected = "EvaluationConditionsDetected",
    }
}

wire_enum! {
    /// Conditions of a release in an InternalReleaseImage or on a node.
    pub enum ReleaseCondition {
        /// The release can be used.
        Available = "Available",
        /// The medium with the release is mounted.
        Mounted = "Mounted",
        /// The release is being copied.
        Installing = "Installing",
        /// The release is being removed.
        Removing = "Removing",
        /// Something is wrong.
        Degraded = "Degraded",
    }
}

/// Reason words, by what they are about.
pub mod reason {
    /// All is well.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// Nothing is known yet.
    pub const NO_DATA: &str = "NoData";
    /// The step has not happened in this update.
    pub const NOT_YET_OCCURRED: &str = "NotYetOccurred";
    /// Images are being pulled ahead of time.
    pub const IMAGE_PREFETCH: &str = "ImagePrefetch";
    /// Images could not be pulled ahead of time.
    pub const PREFETCH_FAILED: &str = "PrefetchFailed";
    /// A pool keeps the cluster from being upgraded.
    pub const DEGRADED_POOL: &str = "DegradedPool";
    /// A build was stopped and keeps the cluster from being upgraded.
    pub const INTERRUPTED_BUILD: &str = "InterruptedBuild";
    /// Boot images are too old for the next upgrade.
    pub const BOOT_IMAGE_SKEW: &str = "ClusterBootImageSkewError";
    /// A build started.
    pub const BUILDING: &str = "Building";
    /// A build is wanted.
    pub const BUILD_PENDING: &str = "BuildPending";
    /// A build succeeded.
    pub const BUILD_SUCCESS: &str = "BuildSuccess";
    /// A build failed.
    pub const BUILD_FAILED: &str = "BuildFailed";
    /// The pool no longer builds images.
    pub const NO_LAYERED_OBJECTS: &str = "NoLayeredObjects";
    /// Every release is there.
    pub const ALL_RELEASES_AVAILABLE: &str = "AllReleasesAvailable";
    /// The node's own registry does not answer.
    pub const REGISTRY_UNREACHABLE: &str = "RegistryUnreachable";
    /// A release is missing on the node.
    pub const RELEASE_IMAGE_NOT_FOUND: &str = "ReleaseImageNotFound";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printer columns of `kubectl get` filter on these words.
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
