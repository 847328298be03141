//! Every annotation we read or write, each with the type of its value.

mod drain_record;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use crate::duration::Span;
use crate::name::RenderedName;
use crate::wire_enum::wire_enum;

pub use self::drain_record::{DrainBlocker, DrainRecord};

/// An annotation key whose value parses as `T`.
pub struct Key<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

/// An annotation whose text does not fit its key.
#[derive(Debug, thiserror::Error)]
#[error("annotation {key} has an unusable value {text:?}")]
pub struct BadAnnotation {
    /// The annotation's key.
    pub key: &'static str,
    /// Its value as found.
    pub text: String,
    /// Why it does not parse.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Declares the keys of one group of annotations, all under the operator's own prefix.
macro_rules! keys {
    ($( $(#[$doc:meta])* $name:ident: $value:ty = $suffix:literal; )*) => {
        $(
            $(#[$doc])*
            pub const $name: Key<$value> =
                Key::named(concat!("machineconfiguration.openshift.io/", $suffix));
        )*

        /// All keys above, for tests and documentation.
        pub const ALL: &[&str] = &[$($name.name),*];
    };
}

keys! {
    /// Node: the config it runs. Written by the daemon.
    CURRENT_CONFIG: RenderedName = "currentConfig";
    /// Node: the config it is to run. Written by the node controller.
    DESIRED_CONFIG: RenderedName = "desiredConfig";
    /// Node: the image-mode image it runs. Written by the daemon.
    CURRENT_IMAGE: String = "currentImage";
    /// Node: the image-mode image it is to run. Written by the node controller.
    DESIRED_IMAGE: String = "desiredImage";
    /// Node: what the daemon is doing.
    STATE: DaemonState = "state";
    /// Node: why the daemon is degraded; empty when it is not.
    REASON: String = "reason";
    /// Node: drain or uncordon, asked for by the daemon.
    DESIRED_DRAIN: DrainRequest = "desiredDrain";
    /// Node: the last such request that was carried out. Written by the drain controller.
    LAST_APPLIED_DRAIN: DrainRequest = "lastAppliedDrain";
    /// Node: the drain that is going on. Written by the drain controller; not in the reference.
    DRAIN_RECORD: DrainRecord = "drainRecord";
    /// Pool: after how long a drain of its nodes is overdue. Written by people; not in the reference.
    DRAIN_TIMEOUT: Span = "drain-timeout";
    /// Pool: how long one attempt at a drain goes on. Written by people; not in the reference.
    DRAIN_ATTEMPT_TIMEOUT: Span = "drain-attempt-timeout";
    /// Pool: what the daemons of its nodes do about drift. Written by people; the reference has none.
    DRIFT_POLICY: DriftPolicy = "drift-policy";
    /// Pool: how long its nodes have to prove healthy after a reboot before they take the new config back, in
    /// minutes or as `90s`; 0 keeps it whatever happens. Written by people; the reference has none.
    CONFIRM_MINUTES: String = "confirm-minutes";
    /// Node: copy of the cluster's control plane topology.
    CONTROL_PLANE_TOPOLOGY: Topology = "controlPlaneTopology";
    /// Node: the config it pivoted to on first boot.
    FIRST_PIVOT_CONFIG: RenderedName = "firstPivotConfig";
    /// Node: marker, with no value, that custom pool labels were put on once.
    CUSTOM_POOL_LABELS_APPLIED: String = "customPoolLabelsApplied";
    /// Node: what follows the config change; emptied by the first sync afterwards.
    POST_CONFIG_ACTION: PostConfigAction = "post-config-action";
    /// Node: why the previous boot could not finish a staged OS update.
    FINALIZE_FAILURE: String = "ostree-finalize-staged-failure";
    /// Node: resourceVersion of the ControllerConfig whose certificates are on disk.
    SYNCED_CONTROLLER_CONFIG: String = "lastSyncedControllerConfigResourceVersion";
    /// Node: `accessed` once somebody logged in over SSH. Written by the daemon.
    SSH: String = "ssh";
    /// Node: last seen value of the ControllerConfig's CA rotation mark.
    OBSERVED_SERVER_CA: bool = "lastObservedServerCAAnnotation";

    /// ControllerConfig: the kubelet CA changed in the sync that wrote this object.
    SERVICE_CA_ROTATE: bool = "service-ca-rotate";
    /// ControllerConfig: version of the operator that wrote it.
    GENERATED_BY_VERSION: String = "generated-by-version";
    /// ControllerConfig: names of the config server beyond those the cluster says, separated by
    /// commas. Written by people; not in the reference.
    SERVER_NAMES: String = "server-names";
    /// ControllerConfig, MachineConfiguration: whether contents that configs name elsewhere are
    /// fetched. Written by people; not in the reference.
    REMOTE_CONTENT: RemoteContent = "remote-content";
    /// MachineConfig: source hash of the controller that made it.
    GENERATED_BY_CONTROLLER_VERSION: String = "generated-by-controller-version";
    /// Release version that a generated object belongs to.
    RELEASE_IMAGE_VERSION: String = "release-image-version";
    /// Release payload image that a generated object was read from.
    RELEASE_PAYLOAD_IMAGE: String = "release-payload-image";
    /// MachineConfig: the OS image was set by the user, not by the release.
    OS_IMAGE_URL_OVERRIDDEN: bool = "os-image-url-overridden";
    /// MachineConfig copy on a node: the OS image before the image-mode image replaced it.
    ORIGINAL_OS_IMAGE_URL: String = "original-osimageurl";
    /// MachineConfig copy on a node: the image-mode image that replaced it.
    LAYERED_OS_IMAGE_URL: String = "ocl-osimageurl";
    /// MachineConfig: the image-mode image that was built before the cluster was.
    PRE_BUILT_IMAGE: String = "pre-built-image";
    /// KubeletConfig, ContainerRuntimeConfig: number in the generated config's name.
    CONFIG_NAME_SUFFIX: String = "mc-name-suffix";
    /// Pool: how many rendered configs that nobody uses are kept, or `all`; not in the reference.
    RENDERED_HISTORY: String = "rendered-history";
    /// Pool: newest config that its layered image is equal to.
    NEWEST_IMAGE_EQUIVALENT_CONFIG: RenderedName = "newestImageEquivalentConfig";
    /// MachineConfiguration: when boot image updates were switched on by default.
    BOOT_IMAGE_OPTED_IN_AT: String = "boot-image-updates-opted-in-at";
    /// Secret: Ignition version that the first-boot stub was raised to.
    STUB_IGNITION_VERSION: String = "stub-ignition-upgraded-to";
    /// Secret: when the first-boot stub was raised.
    STUB_IGNITION_TIME: String = "stub-ignition-upgraded-at";
    /// ConfigMap: the CA bundle it was made from.
    CA_FROM_CONFIG_MAP: String = "managed-ca-bundle-derived-from-configmap";
}

impl<T> Key<T> {
    const fn named(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// The full key, prefix included.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the annotation is there at all; markers carry an empty value.
    #[must_use]
    pub fn is_present(&self, annotations: &BTreeMap<String, String>) -> bool {
        annotations.contains_key(self.name)
    }

    /// Takes the annotation away.
    pub fn remove(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.remove(self.name);
    }
}

impl<T: Display> Key<T> {
    /// Writes the value.
    pub fn set(&self, annotations: &mut BTreeMap<String, String>, value: &T) {
        annotations.insert(self.name.to_owned(), value.to_string());
    }
}

impl<T> Key<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    /// Reads the value; an empty one counts as absent.
    pub fn get(&self, annotations: &BTreeMap<String, String>) -> Result<Option<T>, BadAnnotation> {
        match annotations.get(self.name).map(String::as_str) {
            // Compat: an empty value means absent (pkg/controller/node/status.go).
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|source| BadAnnotation {
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
    /// What a node's daemon is doing.
    pub enum DaemonState {
        /// The node runs the config it should run.
        Done = "Done",
        /// An update is under way.
        Working = "Working",
        /// The last attempt failed; it will be tried again.
        Degraded = "Degraded",
        /// The new config cannot be reached from the present one.
        Unreconcilable = "Unreconcilable",
        /// The node is about to restart.
        Rebooting = "Rebooting",
    }
}

wire_enum! {
    /// What a daemon does about a disk that is not as its config says.
    pub enum DriftPolicy {
        /// Leave it and mark the node degraded.
        Degrade = "degrade",
        /// Write again what the config has.
        Heal = "heal",
    }
}

wire_enum! {
    /// What is done about contents that a config names elsewhere.
    pub enum RemoteContent {
        /// They are fetched when the config is rendered, and put in.
        Enabled = "enabled",
        /// The same, also from the controller's own machine and its link.
        Local = "local",
        /// They stay where they are, as in the reference; no node will fetch them.
        Disabled = "disabled",
    }
}

wire_enum! {
    /// How the control plane is laid out.
    pub enum Topology {
        /// Three or more control plane nodes.
        HighlyAvailable = "HighlyAvailable",
        /// Two control plane nodes and an arbiter.
        HighlyAvailableArbiter = "HighlyAvailableArbiter",
        /// One node.
        SingleReplica = "SingleReplica",
        /// Two nodes.
        DualReplica = "DualReplica",
        /// The control plane runs outside the cluster.
        External = "External",
    }
}

wire_enum! {
    /// What the daemon does after changing the config.
    pub enum PostConfigAction {
        /// Restart the machine.
        Rebooting = "Rebooting",
    }
}

/// What the daemon asks the drain controller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainVerb {
    /// Cordon the node and evict its pods.
    Drain,
    /// Let pods be scheduled again.
    Uncordon,
}

/// A drain or uncordon request, tied to the config it is for.
///
/// The config makes each request distinct, so that the answer to an old one cannot be taken for
/// the answer to a new one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DrainRequest {
    /// What to do.
    pub verb: DrainVerb,
    /// The config the request belongs to.
    pub config: String,
}

/// Why a text is not a drain request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDrainRequest {
    /// No `-` in it.
    #[error("expected <verb>-<config>")]
    Shape,
    /// The verb is not one we know.
    #[error("unknown drain verb {0:?}")]
    Verb(String),
}

impl DrainVerb {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Uncordon => "uncordon",
        }
    }
}

impl FromStr for DrainRequest {
    type Err = BadDrainRequest;

    fn from_str(text: &str) -> Result<Self, BadDrainRequest> {
        let (verb, config) = text.split_once('-').ok_or(BadDrainRequest::Shape)?;
        let verb = match verb {
            "drain" => DrainVerb::Drain,
            "uncordon" => DrainVerb::Uncordon,
            other => return Err(BadDrainRequest::Verb(other.to_owned())),
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
    fn a_value_comes_back_as_it_was_set() {
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
        assert_eq!(STATE.get(&annotations).expect("absent is fine"), None);
    }

    #[test]
    fn an_empty_value_counts_as_absent_but_present_as_a_marker() {
        let annotations = one(CUSTOM_POOL_LABELS_APPLIED.name(), "");
        assert!(CUSTOM_POOL_LABELS_APPLIED.is_present(&annotations));
        assert_eq!(CUSTOM_POOL_LABELS_APPLIED.get(&annotations).expect("empty is fine"), None);
    }

    #[test]
    fn a_bad_value_names_the_key_and_keeps_the_cause_apart() {
        let annotations = one(CURRENT_CONFIG.name(), "Not A Name");
        let error = CURRENT_CONFIG.get(&annotations).expect_err("spaces");
        assert_eq!(
            error.to_string(),
            "annotation machineconfiguration.openshift.io/currentConfig \
             has an unusable value \"Not A Name\""
        );
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn drain_requests_parse_and_print() {
        let cases = [
            ("drain-rendered-worker-1", Ok((DrainVerb::Drain, "rendered-worker-1"))),
            ("uncordon-rendered-worker-1", Ok((DrainVerb::Uncordon, "rendered-worker-1"))),
            ("reboot-x", Err(BadDrainRequest::Verb("reboot".to_owned()))),
            ("drain", Err(BadDrainRequest::Shape)),
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
    fn keys_are_distinct_and_under_our_prefix() {
        let distinct: std::collections::BTreeSet<_> = ALL.iter().collect();
        assert_eq!(distinct.len(), ALL.len());
        assert!(ALL.iter().all(|key| key.starts_with("machineconfiguration.openshift.io/")));
    }
}
