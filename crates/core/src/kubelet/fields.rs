//! The fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`, Kubernetes 1.36): names,
//! types, the zero values that Kubernetes prints, and the values that a kubelet accepts.
//!
//! One table serves decoding, merging, printing and checking. A field that is missing here is
//! unknown: a KubeletConfig that sets it is refused, and a base file keeps it as it is.

use super::rule::Rule;

/// Type of a field's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Float,
    Text,
    /// A duration such as `1m30s`.
    Duration,
    /// A duration as text or as a number of nanoseconds.
    LooseDuration,
    Quantity,
    TextList,
    IntList,
    TextMap,
    BoolMap,
    QuantityMap,
    TextListMap,
    Struct(&'static [Field]),
    StructList(&'static [Field]),
}

/// Rule by which Kubernetes prints a field that has the zero value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Zero means unset, and is not printed.
    Omitted,
    /// Unset differs from zero: a zero that was set is printed.
    Optional,
    /// Printed in any case.
    Always,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
    pub(super) rule: Rule,
}

impl Field {
    const fn allows(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    const fn from(self, least: i64) -> Self {
        self.allows(Rule::Range(least, i64::MAX))
    }

    const fn within(self, least: i64, most: i64) -> Self {
        self.allows(Rule::Range(least, most))
    }

    const fn words(self, words: &'static [&'static str]) -> Self {
        self.allows(Rule::Words(words))
    }
}

/// Returns the field of this name.
pub(super) fn find(fields: &'static [Field], name: &str) -> Option<&'static Field> {
    fields.iter().find(|field| field.name == name)
}

const fn new(name: &'static str, kind: Kind, presence: Presence) -> Field {
    Field { name, kind, presence, rule: Rule::Any }
}

const fn omitted(name: &'static str, kind: Kind) -> Field {
    new(name, kind, Presence::Omitted)
}

const fn optional(name: &'static str, kind: Kind) -> Field {
    new(name, kind, Presence::Optional)
}

const fn always(name: &'static str, kind: Kind) -> Field {
    new(name, kind, Presence::Always)
}

const fn text(name: &'static str) -> Field {
    omitted(name, Kind::Text)
}

const fn flag(name: &'static str) -> Field {
    optional(name, Kind::Bool)
}

const fn number(name: &'static str) -> Field {
    optional(name, Kind::Int32)
}

const fn count(name: &'static str) -> Field {
    omitted(name, Kind::Int32)
}

const fn duration(name: &'static str) -> Field {
    always(name, Kind::Duration).allows(Rule::Period(0, i64::MAX))
}

const fn thresholds(name: &'static str) -> Field {
    omitted(name, Kind::TextMap).allows(Rule::Thresholds)
}

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// All fields beside `kind` and `apiVersion`.
pub(super) const ROOT: &[Field] = &[
    flag("enableServer"),
    text("staticPodPath"),
    text("podLogsDir").allows(Rule::AbsolutePath),
    duration("syncFrequency"),
    duration("fileCheckFrequency"),
    duration("httpCheckFrequency"),
    text("staticPodURL"),
    omitted("staticPodURLHeader", Kind::TextListMap),
    text("address"),
    count("port").within(1, 65535),
    count("readOnlyPort").within(0, 65535),
    text("tlsCertFile"),
    text("tlsPrivateKeyFile"),
    omitted("tlsCipherSuites", Kind::TextList).words(CIPHERS),
    // The numbers of P-256, P-384, P-521, X25519 and X25519MLKEM768.
    omitted("tlsCurvePreferences", Kind::IntList).allows(Rule::Numbers(&[23, 24, 25, 29, 4588])),
    text("tlsMinVersion").words(&["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
    omitted("rotateCertificates", Kind::Bool),
    omitted("serverTLSBootstrap", Kind::Bool),
    always("authentication", Kind::Struct(AUTHENTICATION)),
    always("authorization", Kind::Struct(AUTHORIZATION)),
    number("registryPullQPS").from(0),
    count("registryBurst").from(0),
    text("imagePullCredentialsVerificationPolicy").words(&[
        "NeverVerify",
        "NeverVerifyPreloadedImages",
        "NeverVerifyAllowlistedImages",
        "AlwaysVerify",
    ]),
    omitted("preloadedImagesVerificationAllowlist", Kind::TextList),
    number("eventRecordQPS").from(0),
    count("eventBurst").from(0),
    flag("enableDebuggingHandlers"),
    omitted("enableContentionProfiling", Kind::Bool),
    number("healthzPort").within(0, 65535),
    text("healthzBindAddress"),
    number("oomScoreAdj").within(-1000, 1000),
    text("clusterDomain"),
    omitted("clusterDNS", Kind::TextList),
    duration("streamingConnectionIdleTimeout"),
    duration("nodeStatusUpdateFrequency"),
    duration("nodeStatusReportFrequency"),
    count("nodeLeaseDurationSeconds").from(1),
    duration("imageMinimumGCAge"),
    duration("imageMaximumGCAge"),
    number("imageGCHighThresholdPercent").within(0, 100),
    number("imageGCLowThresholdPercent").within(0, 100),
    // A negative period switches the calculation off.
    always("volumeStatsAggPeriod", Kind::Duration),
    text("kubeletCgroups"),
    text("systemCgroups"),
    text("cgroupRoot"),
    flag("cgroupsPerQOS"),
    text("cgroupDriver").words(&["cgroupfs", "systemd"]),
    text("cpuManagerPolicy").words(&["none", "static"]),
    flag("singleProcessOOMKill"),
    omitted("cpuManagerPolicyOptions", Kind::TextMap),
    duration("cpuManagerReconcilePeriod"),
    text("memoryManagerPolicy").words(&["None", "Static"]),
    text("topologyManagerPolicy").words(&["none", "best-effort", "restricted", "single-numa-node"]),
    text("topologyManagerScope").words(&["container", "pod"]),
    omitted("topologyManagerPolicyOptions", Kind::TextMap),
    omitted("qosReserved", Kind::TextMap).allows(Rule::Percentages),
    duration("runtimeRequestTimeout"),
    text("hairpinMode").words(&["promiscuous-bridge", "hairpin-veth", "none"]),
    count("maxPods").from(1),
    text("podCIDR"),
    optional("podPidsLimit", Kind::Int64).from(-1),
    optional("resolvConf", Kind::Text),
    omitted("runOnce", Kind::Bool).allows(Rule::NotTrue),
    flag("cpuCFSQuota"),
    optional("cpuCFSQuotaPeriod", Kind::Duration).allows(Rule::Period(MILLISECOND, SECOND)),
    number("nodeStatusMaxImages").from(-1),
    omitted("maxOpenFiles", Kind::Int64).from(0),
    text("contentType"),
    number("kubeAPIQPS").from(0),
    count("kubeAPIBurst").from(0),
    flag("serializeImagePulls"),
    number("maxParallelImagePulls").from(1),
    thresholds("evictionHard"),
    thresholds("evictionSoft"),
    omitted("evictionSoftGracePeriod", Kind::TextMap).allows(Rule::GracePeriods),
    duration("evictionPressureTransitionPeriod"),
    count("evictionMaxPodGracePeriod"),
    thresholds("evictionMinimumReclaim"),
    flag("mergeDefaultEvictionSettings"),
    count("podsPerCore").from(0),
    flag("enableControllerAttachDetach"),
    omitted("protectKernelDefaults", Kind::Bool),
    flag("makeIPTablesUtilChains"),
    number("iptablesMasqueradeBit").within(0, 31),
    number("iptablesDropBit").within(0, 31),
    omitted("featureGates", Kind::BoolMap),
    flag("failSwapOn"),
    always("memorySwap", Kind::Struct(&[text("swapBehavior").words(&["NoSwap", "LimitedSwap"])])),
    text("containerLogMaxSize").allows(Rule::Quantity),
    number("containerLogMaxFiles").from(2),
    number("containerLogMaxWorkers").from(1),
    optional("containerLogMonitorInterval", Kind::Duration)
        .allows(Rule::Period(3 * SECOND, i64::MAX)),
    text("configMapAndSecretChangeDetectionStrategy").words(&["Get", "Cache", "Watch"]),
    omitted("systemReserved", Kind::TextMap).allows(Rule::Reservations),
    omitted("kubeReserved", Kind::TextMap).allows(Rule::Reservations),
    text("reservedSystemCPUs").allows(Rule::CpuSet),
    text("showHiddenMetricsForVersion"),
    text("systemReservedCgroup"),
    text("kubeReservedCgroup"),
    omitted("enforceNodeAllocatable", Kind::TextList).words(&[
        "pods",
        "system-reserved",
        "system-reserved-compressible",
        "kube-reserved",
        "kube-reserved-compressible",
        "none",
    ]),
    omitted("allowedUnsafeSysctls", Kind::TextList),
    text("volumePluginDir"),
    text("providerID"),
    omitted("kernelMemcgNotification", Kind::Bool),
    always("logging", Kind::Struct(LOGGING)),
    flag("enableSystemLogHandler"),
    flag("enableSystemLogQuery"),
    duration("shutdownGracePeriod").allows(Rule::PeriodOrZero(SECOND)),
    duration("shutdownGracePeriodCriticalPods").allows(Rule::PeriodOrZero(SECOND)),
    omitted("shutdownGracePeriodByPodPriority", Kind::StructList(GRACE_BY_PRIORITY)),
    always("crashLoopBackOff", Kind::Struct(CRASH_LOOP)),
    omitted("reservedMemory", Kind::StructList(RESERVED_MEMORY)),
    flag("enableProfilingHandler"),
    flag("enableDebugFlagsHandler"),
    flag("seccompDefault"),
    optional("memoryThrottlingFactor", Kind::Float).allows(Rule::Fraction),
    text("memoryReservationPolicy").words(&["None", "TieredReservation"]),
    omitted("registerWithTaints", Kind::StructList(TAINT)),
    flag("registerNode"),
    optional("tracing", Kind::Struct(TRACING)),
    flag("localStorageCapacityIsolation"),
    always("containerRuntimeEndpoint", Kind::Text),
    text("imageServiceEndpoint"),
    flag("failCgroupV1"),
    optional(
        "userNamespaces",
        Kind::Struct(&[optional("idsPerPod", Kind::Int64).allows(Rule::Multiple(65536))]),
    ),
];

/// Cipher suites that Go implements, by their IANA names.
const CIPHERS: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

const AUTHENTICATION: &[Field] = &[
    always("x509", Kind::Struct(&[text("clientCAFile")])),
    always("webhook", Kind::Struct(&[flag("enabled"), duration("cacheTTL")])),
    always("anonymous", Kind::Struct(&[flag("enabled")])),
];

const AUTHORIZATION: &[Field] = &[
    text("mode").words(&["AlwaysAllow", "Webhook"]),
    always(
        "webhook",
        Kind::Struct(&[duration("cacheAuthorizedTTL"), duration("cacheUnauthorizedTTL")]),
    ),
];

const LOGGING: &[Field] = &[
    text("format").words(&["text", "json"]),
    always("flushFrequency", Kind::LooseDuration).allows(Rule::Period(0, i64::MAX)),
    always("verbosity", Kind::Uint32),
    omitted(
        "vmodule",
        Kind::StructList(&[
            always("filePattern", Kind::Text).allows(Rule::NotEmpty),
            always("verbosity", Kind::Uint32),
        ]),
    ),
    always(
        "options",
        Kind::Struct(&[
            always("text", Kind::Struct(LOG_OUTPUT)),
            always("json", Kind::Struct(LOG_OUTPUT)),
        ]),
    ),
];

const LOG_OUTPUT: &[Field] =
    &[omitted("splitStream", Kind::Bool), always("infoBufferSize", Kind::Quantity)];

const GRACE_BY_PRIORITY: &[Field] =
    &[always("priority", Kind::Int32), always("shutdownGracePeriodSeconds", Kind::Int64).from(0)];

const CRASH_LOOP: &[Field] = &[optional("maxContainerRestartPeriod", Kind::Duration)
    .allows(Rule::Period(SECOND, 300 * SECOND))];

const RESERVED_MEMORY: &[Field] = &[
    always("numaNode", Kind::Int32).from(0),
    always("limits", Kind::QuantityMap).allows(Rule::MemoryLimits),
];

const TAINT: &[Field] = &[
    always("key", Kind::Text).allows(Rule::NotEmpty),
    text("value"),
    always("effect", Kind::Text).words(&["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    optional("timeAdded", Kind::Text).allows(Rule::Unset),
];

const TRACING: &[Field] =
    &[optional("endpoint", Kind::Text), number("samplingRatePerMillion").within(0, 1_000_000)];
