//! The differences between the two servers that are accepted, with their reasons.

/// An accepted difference.
pub(crate) struct Difference {
    /// Name, as sequences mark a request with it.
    pub(crate) name: &'static str,
    /// Reason, as `docs/apiserver.md` prints it.
    pub(crate) reason: &'static str,
    /// True if the difference is masked in every answer, false if sequences mark each request.
    pub(crate) is_masked: bool,
}

/// All accepted differences.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "managed-fields",
        reason: "`managedFields` are recorded from the first apply of an object on, not from \
            its first write. Fields set before belong to `before-first-apply`.",
        is_masked: true,
    },
    Difference {
        name: "column-descriptions",
        reason: "The columns of tables have no descriptions, which kubectl does not print.",
        is_masked: true,
    },
    Difference {
        name: "node-taint",
        reason: "A new node does not get the taint `node.kubernetes.io/not-ready`, because \
            nothing here would remove it.",
        is_masked: true,
    },
    Difference {
        name: "controllers",
        reason: "The comparison runs kube-apiserver without controllers. The embedded server \
            does their work itself: it empties and removes namespaces, collects dependents \
            and counts disruption budgets.",
        is_masked: false,
    },
    Difference {
        name: "definitions",
        reason: "CustomResourceDefinitions are validated by fewer rules, and served as soon as \
            they are stored.",
        is_masked: false,
    },
    Difference {
        name: "custom-messages",
        reason: "Errors of custom objects have other lists of causes and names of types, and in a few \
                 cases another code.",
        is_masked: false,
    },
    Difference {
        name: "quoted-values",
        reason: "Messages do not quote whole objects in the notation of Go, and show no \
            differences of specs.",
        is_masked: false,
    },
    Difference {
        name: "syntax-messages",
        reason: "Errors about malformed bodies, patches and tokens are worded differently.",
        is_masked: false,
    },
    Difference {
        name: "warnings",
        reason: "Warnings are sorted by field, and not sent with refused objects; duplicate \
                 owners, Secrets without PEM data and finalizers of custom objects without a prefix cause \
                 none.",
        is_masked: false,
    },
    Difference {
        name: "one-error",
        reason: "An error is reported once, where kube-apiserver reports it for each validation \
            that finds it.",
        is_masked: false,
    },
    Difference {
        name: "server-fields",
        reason: "A patch of a field that only the server writes is ignored, not refused.",
        is_masked: false,
    },
    Difference {
        name: "patched-kind",
        reason: "A patch of kind or version is ignored, not refused.",
        is_masked: false,
    },
    Difference {
        name: "strategic-patches",
        reason: "A strategic merge patch with an unknown directive, or an item without its \
            merge key, is not refused as a patch.",
        is_masked: false,
    },
    Difference {
        name: "delete-options",
        reason: "The kind of delete options is not checked.",
        is_masked: false,
    },
    Difference {
        name: "watch-options",
        reason: "Combinations of watch options that kube-apiserver refuses are served; initial \
            events do not require a newer etcd.",
        is_masked: false,
    },
    Difference {
        name: "wide-columns",
        reason: "`-o wide` shows fewer columns of Deployments, DaemonSets and Nodes.",
        is_masked: false,
    },
    Difference {
        name: "unknown-groups",
        reason: "A path outside the served groups is answered with a `Status`, not with plain text.",
        is_masked: false,
    },
];
