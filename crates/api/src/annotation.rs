//! Annotation keys that the operator, its controllers and the daemon read or write, each with the
//! type of its value.

mod drain_record;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use crate::duration::DurationText;
use crate::name::RenderedName;
use crate::wire_enum::wire_enum;

pub use self::drain_record::{DrainBlocker, DrainRecord};

/// An annotation key whose value parses as `T`.
pub struct Key<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

/// An annotation value that does not parse as the type of its key.
#[derive(Debug, thiserror::Error)]
#[error("annotation {key} has an invalid value {text:?}")]
pub struct AnnotationError {
    /// Key of the annotation.
    pub key: &'static str,
    /// Value of the annotation.
    pub text: String,
    /// Parse error of the value's type.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Declares annotation keys under the prefix `machineconfiguration.openshift.io/`.
macro_rules! keys {
    ($( $(#[$doc:meta])* $name:ident: $value:ty = $suffix:literal; )*) => {
        $(
            $(#[$doc])*
            pub const $name: Key<$value> =
                Key::named(concat!("machineconfiguration.openshift.io/", $suffix));
        )*

        /// All annotation keys, for tests and documentation.
        pub const ALL: &[&str] = &[$($name.name),*];
    };
}

keys! {
    /// Node: the config that the node runs. Written by the daemon.
    CURRENT_CONFIG: RenderedName = "currentConfig";
    /// Node: the config that the node is to run. Written by the node controller.
    DESIRED_CONFIG: RenderedName = "desiredConfig";
    /// Node: the image-mode image that the node runs. Written by the daemon.
    CURRENT_IMAGE: String = "currentImage";
    /// Node: the image-mode image that the node is to run. Written by the node controller.
    DESIRED_IMAGE: String = "desiredImage";
    /// Node: state of the daemon.
    STATE: DaemonState = "state";
    /// Node: reason why the daemon is degraded; empty if the daemon is not degraded.
    REASON: String = "reason";
    /// Node: drain or uncordon request of the daemon.
    DESIRED_DRAIN: DrainRequest = "desiredDrain";
    /// Node: the last drain or uncordon request that was carried out. Written by the drain
    /// controller.
    LAST_APPLIED_DRAIN: DrainRequest = "lastAppliedDrain";
    /// Node: state of the drain in progress. Written by the drain controller; not in the reference.
    DRAIN_RECORD: DrainRecord = "drainRecord";
    /// Pool: duration after which the drain of a node counts as overdue. Set by the administrator;
    /// not in the reference.
    DRAIN_TIMEOUT: DurationText = "drain-timeout";
    /// Pool: timeout of a single drain attempt. Set by the administrator; not in the reference.
    DRAIN_ATTEMPT_TIMEOUT: DurationText = "drain-attempt-timeout";
    /// Pool: reaction of the daemons to config drift on the pool's nodes. Set by the administrator;
    /// not in the reference.
    DRIFT_POLICY: DriftPolicy = "drift-policy";
    /// Pool: time that a node has after a reboot to prove healthy before the daemon rolls back to
    /// the old config, in minutes or as `90s`; 0 keeps the new config in any case. Set by the
    /// administrator; not in the reference.
    CONFIRM_MINUTES: String = "confirm-minutes";
    /// Node: copy of the cluster's control plane topology.
    CONTROL_PLANE_TOPOLOGY: Topology = "controlPlaneTopology";
    /// Node: the config that the node pivoted to on first boot.
    FIRST_PIVOT_CONFIG: RenderedName = "firstPivotConfig";
    /// Node: marker without a value; the labels of the node's pool were applied once.
    CUSTOM_POOL_LABELS_APPLIED: String = "customPoolLabelsApplied";
    /// Node: way out of an update that cannot be completed. Set by the administrator, removed by the
    /// daemon; not in the reference.
    RECOVER: Recovery = "recover";
    /// Node: action that follows the config change; cleared by the first sync afterwards.
    POST_CONFIG_ACTION: PostConfigAction = "post-config-action";
    /// Node: reason why the previous boot failed to finalize a staged OS update.
    FINALIZE_FAILURE: String = "ostree-finalize-staged-failure";
    /// Node: resourceVersion of the ControllerConfig whose certificates are on disk.
    SYNCED_CONTROLLER_CONFIG: String = "lastSyncedControllerConfigResourceVersion";
    /// Node: `accessed` after an SSH login on the node. Written by the daemon.
    SSH: String = "ssh";
    /// Node: last observed value of the ControllerConfig's annotation `service-ca-rotate`.
    OBSERVED_SERVER_CA: bool = "lastObservedServerCAAnnotation";

    /// ControllerConfig: true if the kubelet CA changed in the sync that wrote this object.
    SERVICE_CA_ROTATE: bool = "service-ca-rotate";
    /// ControllerConfig: version of the operator that wrote the object.
    GENERATED_BY_VERSION: String = "generated-by-version";
    /// ControllerConfig: the value of `generated-by-version` that the operator of `mco` wrote. Another
    /// value of `generated-by-version` is that of another operator; not in the reference.
    GENERATED_BY_MCO: String = "generated-by-mco";
    /// ControllerConfig: host names of the config server in addition to those derived from the
    /// cluster, separated by commas. Set by the administrator; not in the reference.
    SERVER_NAMES: String = "server-names";
    /// ControllerConfig, MachineConfiguration: fetching of remote contents that configs refer to.
    /// Set by the administrator; not in the reference.
    REMOTE_CONTENT: RemoteContent = "remote-content";
    /// ControllerConfig: the contents of base configs. Set by the operator; not in the reference.
    PROFILE: Profile = "profile";
    /// ControllerConfig: authentication of new machines. Set by the operator or the administrator; not
    /// in the reference.
    JOIN_TOKENS: JoinTokens = "join-tokens";
    /// ControllerConfig: true if the controller approves certificate requests of new nodes. Set by the
    /// operator or the administrator; not in the reference.
    APPROVE_JOINS: bool = "approve-joins";
    /// Base config, MachineConfig with SSH keys: the owner of its contents. Set by the controller; not
    /// in the reference.
    BASE_CONFIG: BaseConfig = "base-config";
    /// MachineConfig: source hash of the controller that generated the config.
    GENERATED_BY_CONTROLLER_VERSION: String = "generated-by-controller-version";
    /// Rendered config: true if `mco` rendered the config on a cluster of another operator, and may
    /// prune it; not in the reference.
    RENDERED_BY_MCO: bool = "rendered-by-mco";
    /// Rendered config: duration of its last completed roll-out in seconds. Written by the node
    /// controller; not in the reference.
    ROLLOUT_SECONDS: u64 = "rollout-seconds";
    /// Release version that a generated object belongs to.
    RELEASE_IMAGE_VERSION: String = "release-image-version";
    /// Release payload image that a generated object was read from.
    RELEASE_PAYLOAD_IMAGE: String = "release-payload-image";
    /// MachineConfig: true if the OS image was set by the user, not by the release.
    OS_IMAGE_URL_OVERRIDDEN: bool = "os-image-url-overridden";
    /// MachineConfig copy on a node: the OS image before the image-mode image replaced it.
    ORIGINAL_OS_IMAGE_URL: String = "original-osimageurl";
    /// MachineConfig copy on a node: the image-mode image that replaced the OS image.
    LAYERED_OS_IMAGE_URL: String = "ocl-osimageurl";
    /// MachineConfig: the image-mode image that was built before the cluster was installed.
    PRE_BUILT_IMAGE: String = "pre-built-image";
    /// KubeletConfig, ContainerRuntimeConfig: number in the generated config's name.
    CONFIG_NAME_SUFFIX: String = "mc-name-suffix";
    /// Pool: number of unused rendered configs to keep, or `all`; not in the reference.
    RENDERED_HISTORY: String = "rendered-history";
    /// Pool: newest config that the pool's layered image is equivalent to.
    NEWEST_IMAGE_EQUIVALENT_CONFIG: RenderedName = "newestImageEquivalentConfig";
    /// MachineConfiguration: time at which boot image updates were enabled by default.
    BOOT_IMAGE_OPTED_IN_AT: String = "boot-image-updates-opted-in-at";
    /// Secret: Ignition version that the first-boot stub was upgraded to.
    STUB_IGNITION_VERSION: String = "stub-ignition-upgraded-to";
    /// Secret: time at which the first-boot stub was upgraded.
    STUB_IGNITION_TIME: String = "stub-ignition-upgraded-at";
    /// ConfigMap: name of the ConfigMap whose CA bundle this one was derived from.
    CA_FROM_CONFIG_MAP: String = "managed-ca-bundle-derived-from-configmap";
}

impl<T> Key<T> {
    const fn named(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// Returns the full key, prefix included.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true if the annotation exists, even with an empty value, as markers have.
    #[must_use]
    pub fn is_present(&self, annotations: &BTreeMap<String, String>) -> bool {
        annotations.contains_key(self.name)
    }

    /// Removes the annotation.
    pub fn remove(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.remove(self.name);
    }
}

impl<T: Display> Key<T> {
    /// Sets the annotation.
    pub fn set(&self, annotations: &mut BTreeMap<String, String>, value: &T) {
        annotations.insert(self.name.to_owned(), value.to_string());
    }
}

impl<T> Key<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    /// Parses the annotation's value; an empty value counts as absent.
    pub fn get(
        &self,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<T>, AnnotationError> {
        match annotations.get(self.name).map(String::as_str) {
            // Compat: an empty value means absent (pkg/controller/node/status.go).
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|source| AnnotationError {
                key: self.name,
                text: text.to_owned(),
                source: Box::new(source),
            }),
        }
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.name).finish()
    }
}

impl<T> Display for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

wire_enum! {
    /// State of a node's daemon.
    pub enum DaemonState {
        /// The node runs its desired config.
        Done = "Done",
        /// An update is in progress.
        Working = "Working",
        /// The last update failed and will be retried.
        Degraded = "Degraded",
        /// The daemon cannot move the node from its current config to the desired one.
        Unreconcilable = "Unreconcilable",
        /// The node is about to reboot.
        Rebooting = "Rebooting",
    }
}

wire_enum! {
    /// Way out of an update that cannot be completed.
    pub enum Recovery {
        /// Forget the update and apply the desired config again in full.
        Abandon = "abandon",
        /// Create the force file: a node that is not Done applies its desired config again in full,
        /// whatever its files are.
        Force = "force",
        /// Remove the daemon's own files from the machine, and leave the machine alone from then on.
        Forget = "forget",
        /// Answer of the daemon to [`Recovery::Forget`].
        Forgotten = "forgotten",
    }
}

wire_enum! {
    /// Reaction of a daemon to config drift: files on disk that differ from the config.
    pub enum DriftPolicy {
        /// Leave the files and mark the node degraded.
        Degrade = "degrade",
        /// Write the files again as the config has them.
        Heal = "heal",
    }
}

wire_enum! {
    /// Contents of the base configs.
    pub enum Profile {
        /// Only what `mco` itself needs on a machine; kubelet and container runtime stay as they are.
        Adopt = "adopt",
        /// Everything that makes a machine a node: kubelet, container runtime, first boot.
        Full = "full",
    }
}

wire_enum! {
    /// Authentication of new machines.
    pub enum JoinTokens {
        /// Every machine on the network gets the config of its pool.
        Off = "off",
        /// Only machines with a join token get the config of their pool.
        Required = "required",
    }
}

impl JoinTokens {
    /// Returns true if machines need a token. A word that this version does not know requires one, so
    /// that a typing error opens nothing.
    #[must_use]
    pub fn are_required(&self) -> bool {
        *self != Self::Off
    }
}

wire_enum! {
    /// Owner of the contents of a base config.
    pub enum BaseConfig {
        /// The controller generates the contents and reverts edits.
        Generated = "generated",
        /// The contents stay as they are.
        Kept = "kept",
    }
}

wire_enum! {
    /// Handling of remote contents, which a config refers to by URL.
    pub enum RemoteContent {
        /// The controller fetches remote contents while it renders, and inlines them in the
        /// rendered config.
        Enabled = "enabled",
        /// As `Enabled`, and also from private networks, such as the cluster's own.
        Private = "private",
        /// As `Private`, and also from loopback addresses of the controller.
        Local = "local",
        /// Remote contents stay references, as in the reference; no node will fetch them.
        Disabled = "disabled",
    }
}

wire_enum! {
    /// Topology of the control plane.
    pub enum Topology {
        /// Three or more control plane nodes.
        HighlyAvailable = "HighlyAvailable",
        /// Two control plane nodes and an arbiter.
        HighlyAvailableArbiter = "HighlyAvailableArbiter",
        /// One control plane node.
        SingleReplica = "SingleReplica",
        /// Two control plane nodes.
        DualReplica = "DualReplica",
        /// The control plane runs outside the cluster.
        External = "External",
    }
}

wire_enum! {
    /// Action of the daemon after a config change.
    pub enum PostConfigAction {
        /// Reboot the node.
        Rebooting = "Rebooting",
    }
}

/// Kind of a drain request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainVerb {
    /// Cordon the node and evict its pods.
    Drain,
    /// Allow pods to be scheduled on the node again.
    Uncordon,
}

/// A request of the daemon to drain or uncordon its node, tied to the config that it is for.
///
/// The config makes each request distinct, so that the drain controller's answer to an old request
/// cannot be mistaken for the answer to a new one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DrainRequest {
    /// Drain or uncordon.
    pub verb: DrainVerb,
    /// Name of the config that the request is for.
    pub config: String,
}

/// A text that is not a drain request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainRequestError {
    /// The text has no `-`.
    #[error("expected <verb>-<config>")]
    Shape,
    /// The verb is neither `drain` nor `uncordon`.
    #[error("unknown drain verb {0:?}")]
    Verb(String),
}

impl DrainVerb {
    /// Returns the verb as written in the annotation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Uncordon => "uncordon",
        }
    }
}

impl FromStr for DrainRequest {
    type Err = DrainRequestError;

    fn from_str(text: &str) -> Result<Self, DrainRequestError> {
        let (verb, config) = text.split_once('-').ok_or(DrainRequestError::Shape)?;
        let verb = match verb {
            "drain" => DrainVerb::Drain,
            "uncordon" => DrainVerb::Uncordon,
            other => return Err(DrainRequestError::Verb(other.to_owned())),
        };
        Ok(Self { verb, config: config.to_owned() })
    }
}

impl Display for DrainRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.verb.as_str(), self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_value_that_was_set_is_read_back() {
        let mut annotations = BTreeMap::new();
        let config: RenderedName = "rendered-worker-1".parse().expect("valid");
        DESIRED_CONFIG.set(&mut annotations, &config);
        STATE.set(&mut annotations, &DaemonState::Working);
        OBSERVED_SERVER_CA.set(&mut annotations, &true);

        assert_eq!(
            annotations.get("machineconfiguration.openshift.io/desiredConfig"),
            Some(&"rendered-worker-1".to_owned())
        );
        assert_eq!(DESIRED_CONFIG.get(&annotations).expect("set above"), Some(config));
        assert_eq!(STATE.get(&annotations).expect("set above"), Some(DaemonState::Working));
        assert_eq!(OBSERVED_SERVER_CA.get(&annotations).expect("set above"), Some(true));

        STATE.remove(&mut annotations);
        assert_eq!(STATE.get(&annotations).expect("an absent annotation is valid"), None);
    }

    #[test]
    fn an_empty_value_is_present_but_reads_as_none() {
        let annotations = one(CUSTOM_POOL_LABELS_APPLIED.name(), "");
        assert!(CUSTOM_POOL_LABELS_APPLIED.is_present(&annotations));
        assert_eq!(
            CUSTOM_POOL_LABELS_APPLIED.get(&annotations).expect("an empty annotation is valid"),
            None
        );
    }

    #[test]
    fn the_error_names_the_key_and_has_a_source() {
        let annotations = one(CURRENT_CONFIG.name(), "Not A Name");
        let error = CURRENT_CONFIG.get(&annotations).expect_err("spaces");
        assert_eq!(
            error.to_string(),
            "annotation machineconfiguration.openshift.io/currentConfig \
             has an invalid value \"Not A Name\""
        );
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn drain_requests_parse_and_print() {
        let cases = [
            ("drain-rendered-worker-1", Ok((DrainVerb::Drain, "rendered-worker-1"))),
            ("uncordon-rendered-worker-1", Ok((DrainVerb::Uncordon, "rendered-worker-1"))),
            ("reboot-x", Err(DrainRequestError::Verb("reboot".to_owned()))),
            ("drain", Err(DrainRequestError::Shape)),
        ];
        for (text, expected) in cases {
            let got = text.parse::<DrainRequest>();
            if let Ok(request) = &got {
                assert_eq!(request.to_string(), text);
            }
            let expected =
                expected.map(|(verb, config)| DrainRequest { verb, config: config.to_owned() });
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn keys_are_distinct_and_have_the_prefix() {
        let distinct: std::collections::BTreeSet<_> = ALL.iter().collect();
        assert_eq!(distinct.len(), ALL.len());
        assert!(ALL.iter().all(|key| key.starts_with("machineconfiguration.openshift.io/")));
    }
}
