//! The table columns of the built-in kinds.

use serde_json::Value;

use super::column;

/// The columns of a kind after its name: name, type, priority.
type Columns = &'static [(&'static str, &'static str, i64)];

const NODE: Columns = &[
    ("Status", "string", 0),
    ("Roles", "string", 0),
    ("Age", "string", 0),
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
    ("External-IP", "string", 1),
    ("OS-Image", "string", 1),
    ("Kernel-Version", "string", 1),
    ("Container-Runtime", "string", 1),
];
const POD: Columns = &[
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    ("Age", "string", 0),
    ("IP", "string", 1),
    ("Node", "string", 1),
    ("Nominated Node", "string", 1),
    ("Readiness Gates", "string", 1),
];
const DEPLOYMENT: Columns = &[
    ("Ready", "string", 0),
    ("Up-to-date", "string", 0),
    ("Available", "string", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const REPLICA_SET: Columns = &[
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const JOB: Columns = &[
    ("Status", "string", 0),
    ("Completions", "string", 0),
    ("Duration", "string", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const SERVICE: Columns = &[
    ("Type", "string", 0),
    ("Cluster-IP", "string", 0),
    ("External-IP", "string", 0),
    ("Port(s)", "string", 0),
    ("Age", "string", 0),
    ("Selector", "string", 1),
];
const SLICE: Columns = &[
    ("AddressType", "string", 0),
    ("Ports", "string", 0),
    ("Endpoints", "string", 0),
    ("Age", "string", 0),
];
const BINDING: Columns = &[
    ("Role", "string", 0),
    ("Age", "string", 0),
    ("Users", "string", 1),
    ("Groups", "string", 1),
    ("ServiceAccounts", "string", 1),
];
const CERTIFICATE_REQUEST: Columns = &[
    ("Age", "string", 0),
    ("SignerName", "string", 0),
    ("Requestor", "string", 0),
    ("RequestedDuration", "string", 0),
    ("Condition", "string", 0),
];
const PRIORITY_CLASS: Columns = &[
    ("Value", "integer", 0),
    ("Global-Default", "boolean", 0),
    ("Age", "string", 0),
    ("PreemptionPolicy", "string", 0),
];
const POLICY: Columns =
    &[("Validations", "integer", 0), ("ParamKind", "string", 0), ("Age", "string", 0)];
const POLICY_BINDING: Columns =
    &[("PolicyName", "string", 0), ("ParamRef", "string", 0), ("Age", "string", 0)];
const DAEMON_SET: Columns = &[
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    ("Up-to-date", "integer", 0),
    ("Available", "integer", 0),
    ("Node Selector", "string", 0),
    ("Age", "string", 0),
    ("Containers", "string", 1),
    ("Images", "string", 1),
    ("Selector", "string", 1),
];
const BUDGET: Columns = &[
    ("Min Available", "string", 0),
    ("Max Unavailable", "string", 0),
    ("Allowed Disruptions", "integer", 0),
    ("Age", "string", 0),
];
const EVENT: Columns = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Subobject", "string", 1),
    ("Source", "string", 1),
    ("Message", "string", 0),
    ("First Seen", "string", 1),
    ("Count", "string", 1),
    ("Name", "string", 1),
];

fn after_name(kind: &str) -> Columns {
    match kind {
        "Node" => NODE,
        "Pod" => POD,
        "Namespace" => &[("Status", "string", 0), ("Age", "string", 0)],
        "ConfigMap" => &[("Data", "string", 0), ("Age", "string", 0)],
        "Secret" => &[("Type", "string", 0), ("Data", "string", 0), ("Age", "string", 0)],
        "Lease" => &[("Holder", "string", 0), ("Age", "string", 0)],
        "Deployment" => DEPLOYMENT,
        "DaemonSet" => DAEMON_SET,
        "PodDisruptionBudget" => BUDGET,
        "CustomResourceDefinition" | "Role" | "ClusterRole" => &[("Created At", "date", 0)],
        "ReplicaSet" => REPLICA_SET,
        "Job" => JOB,
        "Service" => SERVICE,
        "Endpoints" => &[("Endpoints", "string", 0), ("Age", "string", 0)],
        "EndpointSlice" => SLICE,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "CertificateSigningRequest" => CERTIFICATE_REQUEST,
        "PriorityClass" => PRIORITY_CLASS,
        "ValidatingAdmissionPolicy" => POLICY,
        "ValidatingAdmissionPolicyBinding" => POLICY_BINDING,
        _ => &[("Age", "string", 0)],
    }
}

/// Returns the columns of a kind.
pub(super) fn of_kind(kind: &str) -> Vec<Value> {
    let shown = |(name, kind, priority): &(&str, &str, i64)| {
        let format = if *name == "Name" { "name" } else { "" };
        column(name, kind, format, *priority)
    };
    if kind == "Event" {
        return EVENT.iter().map(shown).collect();
    }
    let mut out = vec![column("Name", "string", "name", 0)];
    out.extend(after_name(kind).iter().map(shown));
    out
}
