//! The kinds of generated sequences.

/// A kind, with its apiVersion, and contents of its objects.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) short: &'static str,
    pub(super) scope: Scope,
    pub(super) version: &'static str,
    pub(super) name: &'static str,
    pub(super) contents: &'static [&'static str],
    /// Merge patches.
    pub(super) patches: &'static [&'static str],
}

/// The scope of a kind, and how its objects are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Namespaced,
    /// Objects without a namespace are shared with other sequences.
    Cluster,
    /// A built-in kind with generated fields that do not change: messages about them quote whole
    /// objects, which is the difference `quoted-values`.
    Unreplaced,
    Custom,
    NamespacedCustom,
}

impl Scope {
    pub(super) fn is_custom(self) -> bool {
        matches!(self, Self::Custom | Self::NamespacedCustom)
    }

    pub(super) fn is_namespaced(self) -> bool {
        !matches!(self, Self::Custom | Self::Cluster)
    }
}

pub(super) const DEPLOYMENT: &str = r#""selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": "#;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        short: "cm",
        scope: Scope::Namespaced,
        version: "v1",
        name: "ConfigMap",
        contents: &[
            r#""data": {}"#,
            r#""data": {"k": "1"}"#,
            r#""data": {"k": "2", "l": "3"}"#,
            r#""data": {"l": "3"}, "binaryData": {"b": "YQ=="}"#,
            r#""immutable": true, "data": {"k": "1"}"#,
        ],
        patches: &[
            r#"{"data": {"k": "9"}}"#,
            r#"{"data": {"k": null, "m": "4"}}"#,
            r#"{"data": null}"#,
            r#"{"binaryData": {"b": "Yg=="}}"#,
        ],
    },
    Kind {
        short: "secret",
        scope: Scope::Namespaced,
        version: "v1",
        name: "Secret",
        contents: &[
            r#""data": {"k": "YQ=="}"#,
            r#""stringData": {"k": "x", "l": "y"}"#,
            r#""type": "a.b/c", "data": {"k": "Yg=="}"#,
        ],
        patches: &[
            r#"{"data": {"k": "Yw=="}}"#,
            r#"{"stringData": {"n": "z"}}"#,
            r#"{"data": null}"#,
            r#"{"type": "other"}"#,
        ],
    },
    Kind {
        short: "deploy",
        scope: Scope::Namespaced,
        version: "apps/v1",
        name: "Deployment",
        contents: &[
            r#""spec": {D[{"name": "c", "image": "i"}]}}}"#,
            r#""spec": {"replicas": 3, D[{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}, {"name": "d", "image": "j"}]}}}"#,
            r#""spec": {"paused": true, D[{"name": "c", "image": "j", "env": [{"name": "E", "value": "1"}]}], "nodeSelector": {"x": "y"}}}}"#,
        ],
        patches: &[
            r#"{"spec": {"replicas": 2}}"#,
            r#"{"spec": {"paused": null, "minReadySeconds": 5}}"#,
            r#"{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "k"}]}}}}"#,
            r#"{"spec": {"template": {"metadata": {"labels": {"c": "d"}}}}}"#,
        ],
    },
    Kind {
        short: "mcp",
        scope: Scope::Custom,
        version: "machineconfiguration.openshift.io/v1",
        name: "MachineConfigPool",
        contents: &[
            r#""spec": {"paused": true}"#,
            r#""spec": {"paused": false, "maxUnavailable": 1}"#,
            r#""spec": {"maxUnavailable": "10%", "nodeSelector": {"matchLabels": {"a": "b"}}}"#,
        ],
        patches: &[
            r#"{"spec": {"paused": true}}"#,
            r#"{"spec": {"maxUnavailable": 2}}"#,
            r#"{"spec": {"nodeSelector": {"matchLabels": {"a": null, "c": "d"}}}}"#,
        ],
    },
    Kind {
        short: "svc",
        scope: Scope::Namespaced,
        version: "v1",
        name: "Service",
        contents: &[
            r#""spec": {"ports": [{"port": 80}]}"#,
            r#""spec": {"selector": {"a": "b"}, "ports": [{"name": "x", "port": 80, "targetPort": "web"}, {"name": "y", "port": 81, "protocol": "UDP"}]}"#,
            r#""spec": {"clusterIP": "None", "ports": [{"port": 80}]}"#,
            r#""spec": {"type": "ExternalName", "externalName": "x.y"}"#,
        ],
        patches: &[
            r#"{"spec": {"selector": {"c": "d"}}}"#,
            r#"{"spec": {"ports": [{"port": 90}]}}"#,
            r#"{"spec": {"sessionAffinity": "ClientIP"}}"#,
            r#"{"spec": {"publishNotReadyAddresses": true}}"#,
        ],
    },
    Kind {
        short: "pdb",
        scope: Scope::Namespaced,
        version: "policy/v1",
        name: "PodDisruptionBudget",
        contents: &[
            r#""spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}"#,
            r#""spec": {"maxUnavailable": "20%", "selector": {"matchLabels": {"a": "c"}}}"#,
            r#""spec": {"minAvailable": "50%", "selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}"#,
        ],
        patches: &[
            r#"{"spec": {"minAvailable": 2}}"#,
            r#"{"spec": {"minAvailable": null, "maxUnavailable": 1}}"#,
            r#"{"spec": {"selector": {"matchLabels": {"e": "f"}}}}"#,
            r#"{"spec": {"maxUnavailable": "x"}}"#,
        ],
    },
    Kind {
        short: "job",
        scope: Scope::Unreplaced,
        version: "batch/v1",
        name: "Job",
        contents: &[
            r#""spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}"#,
            r#""spec": {"parallelism": 2, "completions": 3, "backoffLimit": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}"#,
            r#""spec": {"suspend": true, "ttlSecondsAfterFinished": 9, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}"#,
        ],
        patches: &[
            r#"{"spec": {"parallelism": 4}}"#,
            r#"{"spec": {"suspend": true}}"#,
            r#"{"spec": {"ttlSecondsAfterFinished": 5, "activeDeadlineSeconds": 60}}"#,
            r#"{"spec": {"backoffLimit": -1}}"#,
        ],
    },
    Kind {
        short: "ds",
        scope: Scope::Namespaced,
        version: "apps/v1",
        name: "DaemonSet",
        contents: &[
            r#""spec": {D[{"name": "c", "image": "i"}]}}}"#,
            r#""spec": {"minReadySeconds": 3, "updateStrategy": {"type": "OnDelete"}, D[{"name": "c", "image": "j", "env": [{"name": "E", "value": "1"}]}]}}}"#,
        ],
        patches: &[
            r#"{"spec": {"minReadySeconds": 5}}"#,
            r#"{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "k"}]}}}}"#,
            r#"{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}"#,
            r#"{"spec": {"template": {"metadata": {"labels": {"c": "d"}}}}}"#,
        ],
    },
    Kind {
        short: "rs",
        scope: Scope::Namespaced,
        version: "apps/v1",
        name: "ReplicaSet",
        contents: &[
            r#""spec": {D[{"name": "c", "image": "i"}]}}}"#,
            r#""spec": {"replicas": 3, D[{"name": "c", "image": "j"}]}}}"#,
        ],
        patches: &[
            r#"{"spec": {"replicas": 2}}"#,
            r#"{"spec": {"replicas": -1}}"#,
            r#"{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "k"}]}}}}"#,
        ],
    },
    Kind {
        short: "role",
        scope: Scope::Namespaced,
        version: "rbac.authorization.k8s.io/v1",
        name: "Role",
        contents: &[
            r#""rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]"#,
            r#""rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]"#,
        ],
        patches: &[
            r#"{"rules": null}"#,
            r#"{"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}"#,
            r#"{"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}"#,
        ],
    },
    Kind {
        short: "clusterrole",
        scope: Scope::Cluster,
        version: "rbac.authorization.k8s.io/v1",
        name: "ClusterRole",
        contents: &[
            r#""rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]"#,
            r#""rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]"#,
        ],
        patches: &[
            r#"{"rules": null}"#,
            r#"{"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}"#,
            r#"{"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}"#,
        ],
    },
    Kind {
        short: "rolebinding",
        scope: Scope::Namespaced,
        version: "rbac.authorization.k8s.io/v1",
        name: "RoleBinding",
        contents: &[
            r#""roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}"#,
            r#""roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}]"#,
            r#""roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}]"#,
        ],
        patches: &[
            r#"{"subjects": null}"#,
            r#"{"subjects": [{"kind": "Group", "name": "g"}]}"#,
            r#"{"subjects": [{"kind": "Cheese", "name": "g"}]}"#,
        ],
    },
    Kind {
        short: "lease",
        scope: Scope::Namespaced,
        version: "coordination.k8s.io/v1",
        name: "Lease",
        contents: &[
            r#""spec": {}"#,
            r#""spec": {"holderIdentity": "h", "leaseDurationSeconds": 10}"#,
            r#""spec": {"holderIdentity": "i", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 3}"#,
        ],
        patches: &[
            r#"{"spec": {"holderIdentity": "j"}}"#,
            r#"{"spec": {"leaseDurationSeconds": 0}}"#,
            r#"{"spec": {"acquireTime": "2026-01-01T00:00:00.000001Z"}}"#,
            r#"{"spec": null}"#,
        ],
    },
    Kind {
        short: "sa",
        scope: Scope::Namespaced,
        version: "v1",
        name: "ServiceAccount",
        contents: &[
            r#""automountServiceAccountToken": false"#,
            r#""secrets": [{"name": "s"}]"#,
            r#""imagePullSecrets": [{"name": "p"}], "secrets": [{"name": "t"}, {"name": "s"}]"#,
        ],
        patches: &[
            r#"{"automountServiceAccountToken": true}"#,
            r#"{"secrets": [{"name": "u"}]}"#,
            r#"{"imagePullSecrets": null}"#,
        ],
    },
    Kind {
        short: "slice",
        scope: Scope::Namespaced,
        version: "discovery.k8s.io/v1",
        name: "EndpointSlice",
        contents: &[
            r#""addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"name": "p", "port": 80}]"#,
            r#""addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.4"], "conditions": {"ready": false}, "nodeName": "n"}]"#,
        ],
        patches: &[
            r#"{"ports": [{"name": "q", "port": 81}]}"#,
            r#"{"endpoints": []}"#,
            r#"{"addressType": "IPv6"}"#,
        ],
    },
    Kind {
        short: "pc",
        scope: Scope::Cluster,
        version: "scheduling.k8s.io/v1",
        name: "PriorityClass",
        contents: &[
            r#""value": 7"#,
            r#""value": 7, "description": "d""#,
            r#""value": 7, "preemptionPolicy": "PreemptLowerPriority""#,
        ],
        patches: &[r#"{"description": "e"}"#, r#"{"value": 8}"#, r#"{"description": null}"#],
    },
    Kind {
        short: "mc",
        scope: Scope::Custom,
        version: "machineconfiguration.openshift.io/v1",
        name: "MachineConfig",
        contents: &[
            r#""spec": {"kernelArguments": ["a"]}"#,
            r#""spec": {"kernelArguments": ["a", "b"], "fips": false}"#,
            r#""spec": {"osImageURL": "x", "extensions": ["e"]}"#,
        ],
        patches: &[
            r#"{"spec": {"kernelArguments": ["c"]}}"#,
            r#"{"spec": {"kernelArguments": null}}"#,
            r#"{"spec": {"osImageURL": "y"}}"#,
        ],
    },
    Kind {
        short: "thing",
        scope: Scope::NamespacedCustom,
        version: "equal.example.com/v1",
        name: "Thing",
        contents: &[
            r#""spec": {"size": 1}"#,
            r#""spec": {"size": 2, "names": ["a", "b"]}"#,
            r#""spec": {"parts": [{"name": "p", "value": "1"}, {"name": "q"}]}"#,
        ],
        patches: &[
            r#"{"spec": {"size": 5}}"#,
            r#"{"spec": {"parts": [{"name": "r"}]}}"#,
            r#"{"spec": {"names": null}}"#,
            r#"{"status": {"phase": "x"}}"#,
        ],
    },
];
