//! Service accounts, roles and their bindings.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::join_token;
use serde_json::{Value, json};

use super::{
    NAMESPACE, ObjectName,
    rules::{
        CONTROLLER, CONTROLLER_ELSEWHERE, CONTROLLER_NAME, CONTROLLER_OWN, DAEMON, DAEMON_NAME,
        DAEMON_OWN, EVENTS, JOIN_TOKENS, OPERATOR, OPERATOR_ELSEWHERE, OPERATOR_NAME, OPERATOR_OWN,
        RIGHTS, Rule, SERVER, SERVER_ELSEWHERE, SERVER_NAME, SERVER_OWN,
    },
};

/// Verbs with which the operator keeps an object of a known name. A server-side apply names its
/// object, so that even the creation can be limited to that name; a plain create cannot.
const KEEP_NAMED: [&str; 3] = ["get", "create", "patch"];

/// Returns the service account of an operand with its roles and their bindings.
pub(super) fn process(name: &str) -> Vec<Value> {
    let (cluster, own, elsewhere): (_, _, &[_]) = match name {
        CONTROLLER_NAME => (CONTROLLER, CONTROLLER_OWN, CONTROLLER_ELSEWHERE),
        DAEMON_NAME => (DAEMON, DAEMON_OWN, &[]),
        SERVER_NAME => (SERVER, SERVER_OWN, SERVER_ELSEWHERE),
        _ => (&[][..], &[][..], &[]),
    };
    let mut objects = vec![account(name)];
    objects.extend(cluster_role(name, &rules(cluster)));
    objects.extend(role(name, name, NAMESPACE, &rules(own)));
    for (namespace, found) in elsewhere {
        objects.extend(role(name, name, namespace, &rules(found)));
    }
    // The daemon publishes events with the kubelet's credentials.
    if name != DAEMON_NAME {
        objects.extend(events(name));
    }
    objects
}

/// Returns the service account of the operator with its roles and their bindings: the rights to its
/// own objects, and the rights to keep `kept` and, while their condition holds, `conditional`.
pub(super) fn operator(kept: &[Value], conditional: &[Value]) -> Vec<Value> {
    let name = OPERATOR_NAME;
    let mut derived = rights_to_keep(&[kept, conditional].concat());
    for (namespace, rules) in rights_to_delete(conditional) {
        derived.entry(namespace).or_default().extend(rules);
    }
    let mut add = |namespace: Option<&str>, own: &[Rule]| {
        let found = derived.entry(namespace.map(str::to_owned)).or_default();
        found.splice(..0, rules(own));
    };
    add(None, OPERATOR);
    add(Some(NAMESPACE), OPERATOR_OWN);
    for (namespace, found) in OPERATOR_ELSEWHERE {
        add(Some(namespace), found);
    }
    let mut objects = vec![account(name)];
    for (namespace, rules) in derived {
        objects.extend(match namespace {
            Some(namespace) => role(name, name, &namespace, &rules),
            None => cluster_role(name, &rules),
        });
    }
    objects.extend(events(name));
    objects
}

/// Returns the ClusterRole for join tokens and its binding, which is in their namespace only.
pub(super) fn join_tokens() -> Vec<Value> {
    let name = join_token::NAMESPACE;
    let readers = [CONTROLLER_NAME, SERVER_NAME];
    vec![
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules(JOIN_TOKENS),
        }),
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": name},
            "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": name},
            "subjects": readers.map(subject),
        }),
    ]
}

/// Returns the rules with which the operator keeps the objects, by namespace.
///
/// It may give the rights in the roles among them without having these itself (`escalate`, `bind`),
/// but only through roles of these names.
fn rights_to_keep(objects: &[Value]) -> BTreeMap<Option<String>, Vec<Value>> {
    /// Group, resource and verbs of a rule.
    type Kind = (String, String, Vec<&'static str>);
    let mut named: BTreeMap<(Option<String>, Kind), BTreeSet<String>> = BTreeMap::new();
    let mut seen: BTreeSet<(Option<String>, String, String)> = BTreeSet::new();
    let mut add = |namespace: &Option<String>, group: &str, resource: &str, verbs, name: &str| {
        let kind = (group.to_owned(), resource.to_owned(), verbs);
        named.entry((namespace.clone(), kind)).or_default().insert(name.to_owned());
    };
    for object in objects {
        let id = ObjectName::of(object);
        let (group, resource) = (id.group().to_owned(), id.resource());
        add(&id.namespace, &group, &resource, KEEP_NAMED.to_vec(), &id.name);
        if id.kind.ends_with("Role") {
            add(&id.namespace, &group, &resource, vec!["escalate"], &id.name);
        }
        if let Some(bound) = object.get("roleRef") {
            let text = |member: &str| bound.get(member).and_then(Value::as_str).unwrap_or_default();
            let bound = format!("{}s", text("kind").to_lowercase());
            add(&id.namespace, RIGHTS, &bound, vec!["bind"], text("name"));
        }
        // Roles are in several namespaces, and one watch covers all of them.
        let is_elsewhere = matches!(id.kind.as_str(), "Role" | "RoleBinding");
        seen.insert((id.namespace.filter(|_| !is_elsewhere), group, resource));
    }
    let mut rules: BTreeMap<Option<String>, Vec<Value>> = BTreeMap::new();
    for (namespace, group, resource) in seen {
        let rule =
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]});
        rules.entry(namespace).or_default().push(rule);
    }
    for ((namespace, (group, resource, verbs)), names) in named {
        let rule = json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs,
        });
        rules.entry(namespace).or_default().push(rule);
    }
    rules
}

/// Returns the rules with which the operator deletes the objects, by namespace.
fn rights_to_delete(objects: &[Value]) -> BTreeMap<Option<String>, Vec<Value>> {
    let mut rules: BTreeMap<Option<String>, Vec<Value>> = BTreeMap::new();
    for object in objects {
        let id = ObjectName::of(object);
        rules.entry(id.namespace.clone()).or_default().push(json!({
            "apiGroups": [id.group()], "resources": [id.resource()], "resourceNames": [id.name],
            "verbs": ["delete"],
        }));
    }
    rules
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": NAMESPACE},
    })
}

/// Returns a ClusterRole and its binding to the service account of the same name.
fn cluster_role(name: &str, rules: &[Value]) -> Vec<Value> {
    let meta = json!({"name": name});
    vec![
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "ClusterRole",
            "metadata": meta,
            "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": name},
            "subjects": [subject(name)],
        }),
    ]
}

/// Returns the Role that allows writing events, with its binding. Events about objects of the cluster are
/// in the operator's namespace too.
fn events(name: &str) -> Vec<Value> {
    role(&format!("{name}-events"), name, NAMESPACE, &rules(EVENTS))
}

/// Returns a Role and its binding to a service account.
fn role(name: &str, account: &str, namespace: &str, rules: &[Value]) -> Vec<Value> {
    let meta = json!({"name": name, "namespace": namespace});
    vec![
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "Role",
            "metadata": meta,
            "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RIGHTS}/v1"),
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RIGHTS, "kind": "Role", "name": name},
            "subjects": [subject(account)],
        }),
    ]
}

fn subject(account: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE})
}

fn rules(rules: &[Rule]) -> Vec<Value> {
    rules.iter().map(rule).collect()
}

fn rule(Rule(group, resources, verbs): &Rule) -> Value {
    let mut names: Vec<&str> =
        resources.iter().filter_map(|one| Some(one.split_once(':')?.1)).collect();
    names.dedup();
    let mut resources: Vec<&str> =
        resources.iter().map(|one| one.split_once(':').map_or(*one, |(kind, _)| kind)).collect();
    resources.dedup();
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if let Some(rule) = rule.as_object_mut().filter(|_| !names.is_empty()) {
        rule.insert("resourceNames".to_owned(), json!(names));
    }
    rule
}
