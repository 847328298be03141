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
        name: "service-addresses",
        reason: "The addresses and node ports of Services follow from their UIDs; those that a \
            client chooses are not checked against a range or other Services, and no loop \
            repairs them or writes events about them.",
        is_masked: true,
    },
    Difference {
        name: "callers",
        reason: "The comparison is made by different users, and callers have no credential IDs.",
        is_masked: true,
    },
    Difference {
        name: "reviews",
        reason: "Reviews and requests for tokens, which are not stored, have no `managedFields`.",
        is_masked: true,
    },
    Difference {
        name: "schemas",
        reason: "OpenAPI documents describe fields by their types, without texts and unions; those of v2 \
                 are JSON only.",
        is_masked: true,
    },
    Difference {
        name: "server-version",
        reason: "`/version` names this server, with the version of the API that it implements.",
        is_masked: false,
    },
    Difference {
        name: "token-volumes",
        reason: "Pods get no volume with a token, and need no ServiceAccount.",
        is_masked: false,
    },
    Difference {
        name: "kinds",
        reason: "Kinds that the list above lacks are not served.",
        is_masked: false,
    },
    Difference {
        name: "expressions",
        reason: "Errors of CEL expressions are worded differently, types are not checked, and \
            copying lists and compiling patterns add to their cost.",
        is_masked: false,
    },
    Difference {
        name: "controllers",
        reason: "The comparison runs both servers without controllers. The embedded server does \
            their work itself: it empties and removes namespaces, collects dependents and \
            counts disruption budgets.",
        is_masked: true,
    },
    Difference {
        name: "definitions",
        reason: "CustomResourceDefinitions are validated by fewer rules, and served as soon as \
            they are stored; a deprecated version causes no warning.",
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
        name: "encodings",
        reason: "Answers are JSON, whatever other formats a client accepts.",
        is_masked: false,
    },
    Difference {
        name: "watch-options",
        reason: "Initial events of a watch do not require a newer etcd, and the options of watches are \
            validated less.",
        is_masked: false,
    },
    Difference {
        name: "generated-names",
        reason: "A refusal of a generated name shows another one.",
        is_masked: false,
    },
    Difference {
        name: "request-options",
        reason: "Options that kube-apiserver refuses or ignores in rare combinations are accepted: versions beside a continue token, options of a delete in both its query and its body, bodies of deletes that are none.",
        is_masked: false,
    },
    Difference {
        name: "subresources",
        reason: "Less is validated in the bodies of the subresources `status`, `scale` and `eviction`; an eviction leaves no condition.",
        is_masked: false,
    },
];
