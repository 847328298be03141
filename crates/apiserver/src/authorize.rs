//! Authorization by roles: decides if the roles of a caller allow a request.

pub(crate) mod cover;
pub(crate) mod node;

use http::Method;
use serde_json::{Value, json};

use crate::{
    object::{self, at, text},
    path::{Located, Target},
    resource::builtin::RBAC,
    review::Identity,
};

/// Members of this group may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// Group of all callers that are authenticated.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The question to an authorizer: a verb on a resource or on a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The node whose pods a field selector asks for.
    pub(crate) node: String,
    /// The path of a request that is not about a resource.
    pub(crate) path: Option<String>,
}

impl Access {
    /// Returns the question that a request asks. `query` is the query of its URL.
    pub(crate) fn of(method: &Method, path: &str, target: &Target, query: &str) -> Self {
        match target {
            Target::Object(located) => Self::of_resource(method, located, query),
            Target::Plain(_)
            | Target::CoreVersions
            | Target::Groups
            | Target::Group(_)
            | Target::Resources { .. } => Self {
                verb: method.as_str().to_ascii_lowercase(),
                path: Some(path.to_owned()),
                ..Self::default()
            },
        }
    }

    fn of_resource(method: &Method, located: &Located, query: &str) -> Self {
        let is_set = |name: &str| {
            let value = query.split('&').find_map(|part| part.strip_prefix(name));
            value.is_some_and(|value| matches!(value, "=1" | "=true" | ""))
        };
        let verb = match (method.as_str(), &located.name) {
            ("GET" | "HEAD", Some(_)) => "get",
            ("GET" | "HEAD", None) if is_set("watch") => "watch",
            ("GET" | "HEAD", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => "",
        };
        let name = located.name.clone().unwrap_or_default();
        // Compat: a namespace is in itself.
        let is_namespace = located.group.is_empty() && located.resource == "namespaces";
        let namespace = located.namespace.clone();
        let namespace = if is_namespace { Some(name.clone()) } else { namespace };
        let selected = selected(query, "metadata.name").filter(|_| name.is_empty());
        Self {
            verb: verb.to_owned(),
            group: located.group.clone(),
            resource: located.resource.clone(),
            subresource: located.subresource.clone().unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            name: selected.unwrap_or(name),
            node: self::selected(query, "spec.nodeName").unwrap_or_default(),
            path: None,
        }
    }

    /// Returns the question of an access review.
    pub(crate) fn asked(spec: &Value) -> Self {
        if let Some(path) = at(spec, &["nonResourceAttributes"]).filter(|it| !it.is_null()) {
            let of = |field| text(path, &[field]).to_owned();
            return Self { verb: of("verb"), path: Some(of("path")), ..Self::default() };
        }
        let of = |field| text(spec, &["resourceAttributes", field]).to_owned();
        Self {
            verb: of("verb"),
            group: of("group"),
            resource: of("resource"),
            subresource: of("subresource"),
            namespace: of("namespace"),
            name: of("name"),
            node: String::new(),
            path: None,
        }
    }

    /// Returns the refusal of a request, as kube-apiserver words it.
    pub(crate) fn refusal(&self, user: &str) -> String {
        let Self { verb, group, resource, subresource, namespace, .. } = self;
        if let Some(path) = &self.path {
            return escaped(&format!("User {user:?} cannot {verb} path {path:?}"));
        }
        let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        escaped(&format!(
            "User {user:?} cannot {verb} resource \"{resource}{part}\" in API group {group:?} {place}"
        ))
    }
}

/// Escapes what browsers take for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the value of a field that the field selector of a list asks for.
fn selected(query: &str, field: &str) -> Option<String> {
    let selector = query.split('&').find_map(|part| part.strip_prefix("fieldSelector="))?;
    let selector = percent_encoding::percent_decode_str(selector).decode_utf8().ok()?;
    let parts = selector.split(',');
    let mut values = parts.filter_map(|part| part.strip_prefix(field)?.strip_prefix('='));
    values.next().map(|value| value.trim_start_matches('=').to_owned())
}

/// A role that a binding gives to a caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grant {
    /// Kind of the role: `Role` or `ClusterRole`.
    pub(crate) kind: String,
    pub(crate) role: String,
    /// Namespace of the binding, empty for a binding of the whole cluster.
    pub(crate) namespace: String,
    /// The binding and its subject, as the reason of a decision names them.
    pub(crate) reason: String,
}

/// Returns the roles that a binding gives to a caller.
pub(crate) fn grant(binding: &Value, caller: &Identity) -> Option<Grant> {
    let namespace = object::namespace(binding);
    let subjects = at(binding, &["subjects"]).and_then(Value::as_array);
    let subject = subjects.into_iter().flatten().find(|it| is_about(it, namespace, caller))?;
    let of = |field| text(binding, &["roleRef", field]).to_owned();
    let (kind, role, name) = (of("kind"), of("name"), object::name(binding));
    let (subject_kind, subject_name) = (text(subject, &["kind"]), text(subject, &["name"]));
    let own = text(subject, &["namespace"]);
    let subject = match subject_kind {
        "ServiceAccount" => format!("{subject_kind} \"{subject_name}/{own}\""),
        _ => format!("{subject_kind} {subject_name:?}"),
    };
    let bound = if namespace.is_empty() {
        format!("ClusterRoleBinding {name:?}")
    } else {
        format!("RoleBinding \"{name}/{namespace}\"")
    };
    let reason = format!("RBAC: allowed by {bound} of {kind} {role:?} to {subject}");
    Some(Grant { kind, role, namespace: namespace.to_owned(), reason })
}

fn is_about(subject: &Value, namespace: &str, caller: &Identity) -> bool {
    let of = |field| text(subject, &[field]);
    match of("kind") {
        "User" => of("name") == caller.user,
        "Group" => caller.groups.iter().any(|group| group == of("name")),
        "ServiceAccount" => {
            let namespace = if of("namespace").is_empty() { namespace } else { of("namespace") };
            caller.user == format!("system:serviceaccount:{namespace}:{}", of("name"))
        }
        _ => false,
    }
}

/// Returns the rules of a role.
pub(crate) fn rules(role: &Value) -> &[Value] {
    at(role, &["rules"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns true if a rule allows the access.
pub(crate) fn allows(rule: &Value, access: &Access) -> bool {
    let has = |field: &str, wanted: &str| words(rule, field).any(|it| it == "*" || it == wanted);
    if let Some(path) = &access.path {
        let fits = |url: &str| match url.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => url == path,
        };
        return has("verbs", &access.verb) && words(rule, "nonResourceURLs").any(fits);
    }
    let resource = if access.subresource.is_empty() {
        access.resource.clone()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let is_part = |it: &str| {
        !access.subresource.is_empty() && it.strip_prefix("*/") == Some(&access.subresource)
    };
    let is_named = words(rule, "resourceNames").next().is_none()
        || words(rule, "resourceNames").any(|it| it == access.name);
    has("verbs", &access.verb)
        && has("apiGroups", &access.group)
        && (has("resources", &resource) || words(rule, "resources").any(is_part))
        && is_named
}

fn words<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    let list = rule.get(field).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str)
}

/// Returns the roles and bindings that every cluster has.
pub(crate) fn defaults() -> Vec<Value> {
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let own = json!([
        {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
        {"apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectreviews"]}]);
    let paths = |paths: &[&str]| json!([{"nonResourceURLs": paths, "verbs": ["get"]}]);
    let roles = [
        ("cluster-admin", everything, vec![MASTERS]),
        ("system:basic-user", own, vec![AUTHENTICATED]),
        ("system:discovery", paths(&discovery), vec![AUTHENTICATED]),
        (
            "system:public-info-viewer",
            paths(&public),
            vec![AUTHENTICATED, "system:unauthenticated"],
        ),
    ];
    let roles = roles.into_iter().chain([(
        "system:service-account-issuer-discovery",
        paths(&[
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        ]),
        vec!["system:serviceaccounts"],
    )]);
    roles.flat_map(|(name, rules, groups)| default_role(name, &rules, &groups)).collect()
}

fn default_role(name: &str, rules: &Value, groups: &[&str]) -> [Value; 2] {
    let meta = json!({"name": name,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}});
    let version = format!("{RBAC}/v1");
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"kind": "Group", "apiGroup": RBAC, "name": group}))
        .collect();
    [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": meta, "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": subjects}),
    ]
}

#[cfg(test)]
mod tests;
