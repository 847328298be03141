//! The rights in the manifests, one verb on one resource at a time, and the requests that need them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use mco_api::label;
use mco_operator::manifests::{self, IMAGE, ObjectName, Parameters};
use mco_testkit::api::AuditedRequest;
use serde_json::Value;

/// A verb on a resource that a service account has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    /// Name of the service account.
    pub(super) account: String,
    /// Namespace, or none for the whole cluster.
    namespace: Option<String>,
    group: String,
    resource: String,
    /// Name of the only object.
    name: Option<String>,
    pub(super) verb: String,
}

impl Grant {
    /// Returns true if a request was allowed by this right.
    fn allows(&self, request: &AuditedRequest) -> bool {
        let of_account = request.user.rsplit(':').next() == Some(&*self.account);
        let is_verb = request.verb == self.verb
            // A server-side apply that creates an object needs both verbs.
            || (self.verb == "create" && request.verb == "patch" && request.code == 201);
        of_account
            && is_verb
            && (&request.group, &request.resource) == (&self.group, &self.resource)
            && self.namespace.as_ref().is_none_or(|it| *it == request.namespace)
            && self.name.as_ref().is_none_or(|it| *it == request.name)
    }

    /// Returns true if the requests need this right, and could not be made with a narrower one: of one
    /// namespace, or of one object.
    pub(super) fn is_needed_by(&self, requests: &BTreeSet<AuditedRequest>) -> bool {
        let uses: Vec<_> = requests.iter().filter(|it| self.allows(it)).collect();
        let namespaces: BTreeSet<&str> = uses.iter().map(|it| &*it.namespace).collect();
        // A Namespace is in itself for the audit log.
        let is_everywhere = self.resource == "namespaces";
        let is_everywhere = is_everywhere || namespaces.contains("") || namespaces.len() > 1;
        let is_of_all = match self.verb.as_str() {
            "list" | "watch" => uses.iter().any(|it| it.name.is_empty()),
            _ => !self.is_of_any_object(),
        };
        !uses.is_empty()
            && (self.namespace.is_some() || is_everywhere)
            && (self.name.is_some() || is_of_all)
    }

    /// Returns true if the right holds for each object of a kind although its requests name theirs. The
    /// plain creation of an object is not limited to names.
    pub(super) fn is_of_any_object(&self) -> bool {
        self.name.is_none() && !matches!(self.verb.as_str(), "list" | "watch" | "create")
    }

    /// Returns group, resource, name and namespace as in the table of reasons.
    pub(super) fn target(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        let name = self.name.iter().map(|name| format!(" {name}"));
        let place = self.namespace.iter().map(|namespace| match namespace.as_str() {
            label::NAMESPACE => " in its namespace".to_owned(),
            namespace => format!(" in {namespace}"),
        });
        let kind = format!("{group}/{}", self.resource);
        [kind].into_iter().chain(name).chain(place).collect()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.account, self.verb, self.target())
    }
}

/// Returns the rights of all processes.
pub(super) fn all() -> Vec<Grant> {
    let parameters = Parameters::new(IMAGE);
    let mut objects = manifests::operator(&parameters);
    objects.extend(manifests::all_operands(&parameters));
    let roles: BTreeMap<_, _> = objects
        .iter()
        .filter(|it| it.get("rules").is_some())
        .map(|it| {
            let ObjectName { kind, namespace, name, .. } = ObjectName::of(it);
            ((kind, namespace, name), it)
        })
        .collect();
    let mut grants = Vec::new();
    for binding in objects.iter().filter(|it| it.get("roleRef").is_some()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = ObjectName::of(binding).namespace;
        let (kind, name) = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
        let scope = if kind == "Role" { namespace.clone() } else { None };
        let role = roles.get(&(kind, scope, name)).expect("the role is one of the manifests");
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            grants.extend(of_role(role, &text(&subject["name"]), namespace.as_ref()));
        }
    }
    grants.sort();
    grants
}

fn of_role(role: &Value, account: &str, namespace: Option<&String>) -> Vec<Grant> {
    let words = |rule: &Value, member: &str| -> Vec<String> {
        let words = rule[member].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut grants = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = words(rule, "resourceNames");
        let names: Vec<Option<String>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                for (name, verb) in names.iter().flat_map(|name| {
                    words(rule, "verbs").into_iter().map(move |verb| (name.clone(), verb))
                }) {
                    let (account, namespace) = (account.to_owned(), namespace.cloned());
                    let (group, resource) = (group.clone(), resource.clone());
                    grants.push(Grant { account, namespace, group, resource, name, verb });
                }
            }
        }
    }
    grants
}
