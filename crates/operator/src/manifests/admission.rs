//! Admission policies.
//!
//! Those in `conditional` are removed when their condition ends. "A node is in one custom pool" is not among them: an expression sees one object, and
//! that rule is about nodes and all pools. The controller reports such nodes instead.

mod conditional;
mod machine_config;

use mco_api::label;
use serde_json::{Value, json};

use super::{
    NAMESPACE, network,
    rules::{DAEMON_NAME, OPERATOR_NAME, OURS},
};

pub(super) use self::conditional::objects as conditional;

const API: &str = "admissionregistration.k8s.io/v1";

/// Returns the policies of the controller's stage.
pub(super) fn of_controller() -> Vec<Value> {
    [
        single_configuration(),
        machine_config::objects(),
        pool_selector(),
        pool_stream(),
        kept_networks(),
        unchanged_networks(),
    ]
    .concat()
}

/// Returns the policies of the daemon's stage.
pub(super) fn of_daemon() -> Vec<Value> {
    node_guard()
}

/// The members of a policy that differ.
struct Policy<'a> {
    name: &'a str,
    rule: Value,
    /// Names and expressions of conditions; requests that do not meet all of them are not checked.
    conditions: Vec<(&'a str, String)>,
    validations: Vec<Value>,
    /// Kind and name of the object that the expressions may read.
    parameter: Option<(Value, &'static str)>,
    evaluation: Evaluation,
}

/// Treatment of a request for which an expression fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evaluation {
    /// The request is denied.
    DenyFailures,
    /// The request is admitted, as if there were no policy.
    IgnoreFailures,
}

impl Evaluation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::DenyFailures => "Fail",
            Self::IgnoreFailures => "Ignore",
        }
    }
}

impl Policy<'_> {
    /// Returns the policy and its binding.
    fn objects(self) -> Vec<Value> {
        let conditions = self.conditions.iter();
        let conditions = conditions.map(|(name, it)| json!({"name": name, "expression": it}));
        let conditions: Vec<_> = conditions.collect();
        let mut spec = json!({
            "failurePolicy": self.evaluation.as_str(),
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [self.rule]},
            "validations": self.validations,
        });
        if !conditions.is_empty() {
            spec = super::with(spec, json!({"matchConditions": conditions}));
        }
        let mut binding = json!({"policyName": self.name, "validationActions": ["Deny"]});
        if let Some((kind, name)) = self.parameter {
            spec = super::with(spec, json!({"paramKind": kind}));
            // Without the object there is nothing to check against.
            let parameter = json!({"name": name, "parameterNotFoundAction": "Allow"});
            binding = super::with(binding, json!({"paramRef": parameter}));
        }
        vec![
            json!({
                "apiVersion": API,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": self.name},
                "spec": spec,
            }),
            json!({
                "apiVersion": API,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": format!("{}-binding", self.name)},
                "spec": binding,
            }),
        ]
    }
}

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources,
    })
}

/// Allows one MachineConfiguration only.
fn single_configuration() -> Vec<Value> {
    let policy = Policy {
        name: "machine-configuration-guards",
        rule: rule("operator.openshift.io", &["machineconfigurations"], &["CREATE", "UPDATE"]),
        conditions: Vec::new(),
        validations: vec![json!({
            "expression": format!("object.metadata.name == \"{}\"", label::CLUSTER),
            "message": "the only MachineConfiguration must be named cluster",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}

/// Requires that a custom pool has the MachineConfigs of the pool worker, and a built-in pool its own.
fn pool_selector() -> Vec<Value> {
    let role = label::ROLE;
    let selector = "object.spec.machineConfigSelector";
    // The controller writes pools that were stored before this policy, too.
    let changed = format!(
        "request.operation == \"CREATE\" || !has(oldObject.spec.machineConfigSelector) || \
         !has({selector}) || oldObject.spec.machineConfigSelector != {selector}"
    );
    let wanted = "(object.metadata.name in [\"master\", \"worker\", \"arbiter\"] ? \
                  object.metadata.name : \"worker\")";
    let labels = format!(
        "has({selector}.matchLabels) && \"{role}\" in {selector}.matchLabels && \
         {selector}.matchLabels[\"{role}\"] == {wanted}"
    );
    let expressions = format!(
        "has({selector}.matchExpressions) && {selector}.matchExpressions.exists(it, \
         it.key == \"{role}\" && it.operator == \"In\" && has(it.values) && {wanted} in it.values)"
    );
    let message = format!(
        "\"pool \" + object.metadata.name + \" must inherit from the \" + {wanted} + \" pool: set the \
         label {role} to \" + {wanted} + \" in spec.machineConfigSelector.matchLabels, or add a \
         matchExpression {role} In a list with \" + {wanted}"
    );
    let policy = Policy {
        name: "custom-machine-config-pool-selector",
        rule: rule(OURS, &["machineconfigpools"], &["CREATE", "UPDATE"]),
        conditions: vec![("selector-changed", changed)],
        validations: vec![json!({
            "expression": format!("has({selector}) && (({labels}) || ({expressions}))"),
            "messageExpression": message,
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}

/// Requires that the stream which a pool names exists. Pools without one are never checked.
fn pool_stream() -> Vec<Value> {
    let name = "object.spec.osImageStream.name";
    let policy = Policy {
        name: "machineconfigpool-osimagestream-reference-validation",
        rule: rule(OURS, &["machineconfigpools"], &["CREATE", "UPDATE"]),
        conditions: vec![("has-stream", "has(object.spec.osImageStream)".to_owned())],
        validations: vec![json!({
            "expression": format!(
                "has(params.status) && has(params.status.availableStreams) && \
                 params.status.availableStreams.exists(it, it.name == {name})"
            ),
            "messageExpression": format!(
                "\"spec.osImageStream.name must reference a valid stream: OSImageStream {} has no \" + {name}",
                label::CLUSTER
            ),
        })],
        parameter: Some((
            json!({"apiVersion": format!("{OURS}/v1"), "kind": "OSImageStream"}),
            label::CLUSTER,
        )),
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}

/// Returns the condition that a request is about one of the operator's network policies. The API server
/// itself may delete them with their namespace.
fn about_networks() -> (&'static str, String) {
    let expression = format!(
        "request.namespace == \"{NAMESPACE}\" && request.name in {} && !(request.userInfo.username in \
         [\"system:serviceaccount:kube-system:namespace-controller\", \
         \"system:kube-controller-manager\"])",
        json!(network::names())
    );
    ("about-own-policies", expression)
}

/// Keeps the network policies from being deleted.
fn kept_networks() -> Vec<Value> {
    let policy = Policy {
        name: "networkpolicy-prevent-deletion",
        rule: rule("networking.k8s.io", &["networkpolicies"], &["DELETE"]),
        conditions: vec![about_networks()],
        validations: vec![json!({
            "expression": "false",
            "message": "an MCO-managed NetworkPolicy cannot be deleted; `mco uninstall` removes it \
                        with the operator",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}

/// Keeps the network policies from being edited by any other user than the operator.
fn unchanged_networks() -> Vec<Value> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{OPERATOR_NAME}");
    let by_others = format!("request.userInfo.username != \"{account}\"");
    let policy = Policy {
        name: "networkpolicy-prevent-update",
        rule: rule("networking.k8s.io", &["networkpolicies"], &["UPDATE"]),
        conditions: vec![about_networks(), ("by-others", by_others)],
        validations: vec![json!({
            "expression": "false",
            "message": "an MCO-managed NetworkPolicy cannot be changed; add a NetworkPolicy of your \
                        own to allow more",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}

/// Lets each daemon write only the MachineConfigNode of its own node. All daemons share one service
/// account, but a pod's token names its node.
fn node_guard() -> Vec<Value> {
    let claim = "authentication.kubernetes.io/node-name";
    let account = format!("system:serviceaccount:{NAMESPACE}:{DAEMON_NAME}");
    let extra = format!("request.userInfo.extra[\"{claim}\"]");
    let has = format!("has(request.userInfo.extra) && \"{claim}\" in request.userInfo.extra");
    let by_daemon = format!("request.userInfo.username == \"{account}\"");
    let policy = Policy {
        name: "mcn-guards",
        rule: rule(
            OURS,
            &["machineconfignodes", "machineconfignodes/status"],
            &["CREATE", "UPDATE"],
        ),
        conditions: vec![("only-daemons", by_daemon)],
        validations: vec![
            json!({
                "expression": has,
                "message": format!("this user must have a \"{claim}\" claim"),
            }),
            json!({
                "expression": format!("!({has}) || object.metadata.name == {extra}[0]"),
                "messageExpression": "\"updates to MCN \" + string(object.metadata.name) + \" can only be done from the MCN's owner node\"",
            }),
        ],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    };
    policy.objects()
}
