//! Evaluation of `ValidatingAdmissionPolicy` objects.

use ::cel::{Context, Value as Cel};
use serde_json::{Value, json};

use crate::{
    object::{self, at, text},
    resource::Resource,
    schema::cel::{self, Programs},
    select::Selector,
};

/// A request, as policies see it.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) kind: Kind<'a>,
    pub(crate) name: &'a str,
    pub(crate) user: Value,
    pub(crate) object: &'a Value,
    pub(crate) old: &'a Value,
    pub(crate) is_dry_run: bool,
    /// The namespace of the object, null for objects of the cluster.
    pub(crate) namespace: &'a Value,
}

/// The kind of the object of a request, which a subresource may have of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Kind<'a> {
    /// Returns the kind of the objects of a resource.
    pub(crate) fn of(resource: &'a Resource) -> Self {
        Self { group: &resource.group, version: &resource.version, name: &resource.kind }
    }
}

/// The refusal of a request by a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) message: String,
    pub(crate) reason: &'static str,
}

/// Returns true if the constraints of a policy, or of a binding, select the request.
pub(crate) fn selects(constraints: &Value, request: &Request<'_>) -> bool {
    let any = |list: &str| {
        let rules = at(constraints, &[list]).and_then(Value::as_array);
        rules.is_some_and(|rules| rules.iter().any(|rule| is_about(rule, request)))
    };
    let is_limited = at(constraints, &["resourceRules"]).is_some();
    (any("resourceRules") || !is_limited)
        && !any("excludeResourceRules")
        && has_labels(constraints, "objectSelector", &[request.object, request.old])
        && is_in_namespace(constraints, request)
}

/// Returns true if the selector of namespaces selects the namespace of the object, or the namespace that the object is.
fn is_in_namespace(constraints: &Value, request: &Request<'_>) -> bool {
    let namespace = match (request.resource.qualified().as_str(), request.object) {
        ("namespaces", Value::Null) => request.old,
        ("namespaces", object) => object,
        _ => request.namespace,
    };
    namespace.is_null() || has_labels(constraints, "namespaceSelector", &[namespace])
}

fn has_labels(constraints: &Value, field: &str, objects: &[&Value]) -> bool {
    let selector = constraints.get(field).filter(|it| !it.is_null());
    selector.is_none_or(|selector| {
        let selector = Selector::from_object(selector);
        objects.iter().any(|object| !object.is_null() && selector.matches(object))
    })
}

fn is_about(rule: &Value, request: &Request<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = rule.get(field).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).any(|one| one == "*" || one == wanted)
    };
    let Resource { group, version, plural, namespaced, .. } = request.resource;
    let is_one = |given: &str, wanted: &str| given == "*" || given == wanted;
    let resources = rule.get("resources").and_then(Value::as_array).into_iter().flatten();
    let is_resource = resources.filter_map(Value::as_str).any(|one| {
        let (resource, part) = one.split_once('/').unwrap_or((one, ""));
        is_one(resource, plural) && is_one(part, request.subresource)
    });
    let is_scope = match text(rule, &["scope"]) {
        "Cluster" => !namespaced,
        "Namespaced" => *namespaced,
        _ => true,
    };
    let names = rule.get("resourceNames").and_then(Value::as_array);
    let is_named =
        names.is_none_or(|names| names.is_empty() || names.contains(&json!(request.name)));
    // Equivalent versions match too, and all versions of a kind here are equivalent.
    let is_version = has("apiVersions", version) || text(rule, &["matchPolicy"]) != "Exact";
    has("operations", request.operation)
        && has("apiGroups", group)
        && is_version
        && is_resource
        && is_scope
        && is_named
}

/// Returns the value of the variable `request`.
fn described(request: &Request<'_>) -> Value {
    let Resource { group, version, plural, .. } = request.resource;
    let Kind { group: of, version: in_version, name } = request.kind;
    let kind = json!({"group": of, "version": in_version, "kind": name});
    let resource = json!({"group": group, "version": version, "resource": plural});
    let mut about = json!({"kind": kind, "resource": resource, "requestKind": kind,
        "requestResource": resource, "operation": request.operation, "userInfo": request.user,
        "dryRun": request.is_dry_run});
    for (field, text) in [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name),
        ("namespace", object::name(request.namespace)),
    ] {
        if !text.is_empty() {
            object::map_of(&mut about).insert(field.to_owned(), text.into());
        }
    }
    about
}

/// Evaluates a policy with one parameter, or with none. Returns the first refusal.
pub(crate) fn evaluate(
    policy: &Value,
    request: &Request<'_>,
    parameter: &Value,
    programs: &Programs,
) -> Option<Denial> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let is_strict = text(spec, &["failurePolicy"]) != "Ignore";
    let failed = |message: String| is_strict.then_some(Denial { message, reason: "Invalid" });
    let about = described(request);
    let variables = [
        ("object", request.object),
        ("oldObject", request.old),
        ("request", &about),
        ("params", parameter),
        ("namespaceObject", request.namespace),
    ];
    let mut context = cel::context(&variables);
    match meets_conditions(spec, &context, programs) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => return failed(why),
    }
    if let Err(why) = add_variables(spec, &mut context, programs) {
        return failed(why);
    }
    let validations = at(spec, &["validations"]).and_then(Value::as_array);
    validations.into_iter().flatten().find_map(|validation| {
        let expression = text(validation, &["expression"]);
        match run(expression, &context, programs) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => Some(Denial {
                message: explanation(validation, &context, programs),
                reason: reason(text(validation, &["reason"])),
            }),
            Err(why) => {
                failed(format!("expression '{}' resulted in error: {why}", expression.trim()))
            }
        }
    })
}

fn run(expression: &str, context: &Context<'_, '_>, programs: &Programs) -> Result<Cel, String> {
    let program = programs.get(expression)?;
    program.execute(context).map_err(|error| error.to_string())
}

/// Returns true if all conditions hold. A condition that does not hold outweighs one that fails.
fn meets_conditions(
    spec: &Value,
    context: &Context<'_, '_>,
    programs: &Programs,
) -> Result<bool, String> {
    let conditions = at(spec, &["matchConditions"]).and_then(Value::as_array);
    let mut failures = Vec::new();
    for condition in conditions.into_iter().flatten() {
        match run(text(condition, &["expression"]), context, programs) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => return Ok(false),
            Err(why) => failures.push(why),
        }
    }
    if failures.is_empty() { Ok(true) } else { Err(failures.join(", ")) }
}

/// Adds the variables that a policy defines, each of which may use those before.
fn add_variables(
    spec: &Value,
    context: &mut Context<'_, '_>,
    programs: &Programs,
) -> Result<(), String> {
    let variables = at(spec, &["variables"]).and_then(Value::as_array);
    let mut values = std::collections::HashMap::new();
    for variable in variables.into_iter().flatten() {
        let value = run(text(variable, &["expression"]), context, programs)?;
        values.insert(text(variable, &["name"]).to_owned(), value);
        context.add_variable_from_value("variables", values.clone());
    }
    Ok(())
}

fn explanation(validation: &Value, context: &Context<'_, '_>, programs: &Programs) -> String {
    let written = text(validation, &["messageExpression"]);
    if !written.trim().is_empty()
        && let Ok(Cel::String(message)) = run(written, context, programs)
        && !message.trim().is_empty()
        && !message.contains('\n')
    {
        return message.trim().to_owned();
    }
    match text(validation, &["message"]).trim() {
        "" => format!("failed expression: {}", text(validation, &["expression"]).trim()),
        message => message.to_owned(),
    }
}

fn reason(word: &str) -> &'static str {
    match word {
        "Forbidden" => "Forbidden",
        "RequestEntityTooLarge" => "RequestEntityTooLarge",
        "Unauthorized" => "Unauthorized",
        _ => "Invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;

    fn policy(spec: &Value) -> Value {
        let mut whole = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"],
             "resources": ["configmaps"]}]}});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        json!({"spec": whole})
    }

    fn verdict(policy: &Value, object: &Value) -> Option<String> {
        let resource = builtin::by_plural("configmaps");
        let null = Value::Null;
        let request = Request {
            operation: "CREATE",
            resource: &resource,
            subresource: "",
            kind: Kind::of(&resource),
            name: "a",
            user: json!({"username": "me"}),
            object,
            old: &null,
            is_dry_run: false,
            namespace: &null,
        };
        let constraints = &policy["spec"]["matchConstraints"];
        let params = json!({"max": 2});
        selects(constraints, &request)
            .then(|| evaluate(policy, &request, &params, &Programs::default()))
            .flatten()
            .map(|denial| denial.message)
    }

    #[test]
    fn a_policy_denies_what_its_expressions_refuse() {
        let fine = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let rows = [
            (json!({"validations": [{"expression": "object.metadata.name == 'a'"}]}), None),
            (
                json!({"validations": [{"expression": "object.metadata.name == 'b'"}]}),
                Some("failed expression: object.metadata.name == 'b'"),
            ),
            (json!({"validations": [{"expression": "false", "message": "no"}]}), Some("no")),
            (
                json!({"validations": [{"expression": "false",
                    "messageExpression": "'not ' + object.metadata.name"}]}),
                Some("not a"),
            ),
            (
                json!({"matchConditions": [{"name": "c", "expression":
                    "request.userInfo.username == 'other'"}],
                    "validations": [{"expression": "false"}]}),
                None,
            ),
            (json!({"validations": [{"expression": "size(object.data) <= params.max"}]}), None),
            (
                json!({"variables": [{"name": "n", "expression": "size(object.data)"}],
                    "validations": [{"expression": "variables.n > 1", "message": "few"}]}),
                Some("few"),
            ),
            (
                json!({"failurePolicy": "Ignore",
                    "validations": [{"expression": "object.spec.x == 1"}]}),
                None,
            ),
            (
                json!({"matchConstraints": {"resourceRules": [{"operations": ["DELETE"],
                    "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
                    "validations": [{"expression": "false"}]}),
                None,
            ),
        ];
        for (spec, expected) in rows {
            assert_eq!(verdict(&policy(&spec), &fine).as_deref(), expected, "{spec}");
        }
    }
}
