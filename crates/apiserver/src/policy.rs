//! Evaluation of `ValidatingAdmissionPolicy` objects.

use std::collections::{HashMap, HashSet};

use ::cel::{Context, Value as Cel};
use serde_json::{Value, json};

use crate::{
    object::{self, at, text},
    resource::Resource,
    schema::cel::{self, Budget, Failed, OUT_OF_BUDGET, Programs},
    select::Selector,
};

/// A request, as policies see it.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    pub(crate) resource: &'a Resource,
    /// All served versions of the resource.
    pub(crate) versions: Vec<String>,
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

/// Maximum length of a message that an expression returns.
const MAX_MESSAGE: usize = 5 * 1024;

/// Returns true if the constraints of a policy, or of a binding, select the request.
pub(crate) fn selects(constraints: &Value, request: &Request<'_>) -> bool {
    let is_exact = text(constraints, &["matchPolicy"]) == "Exact";
    let any = |list: &str| {
        let rules = at(constraints, &[list]).and_then(Value::as_array);
        rules.is_some_and(|rules| rules.iter().any(|rule| is_about(rule, is_exact, request)))
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

fn is_about(rule: &Value, is_exact: bool, request: &Request<'_>) -> bool {
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
    // All served versions of a resource are equivalent.
    let is_version = has("apiVersions", version)
        || (!is_exact && request.versions.iter().any(|version| has("apiVersions", version)));
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
    let context = cel::context(&variables);
    match meets_conditions(spec, &context, programs) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => return failed(why),
    }
    let mut evaluation = Evaluation::new(spec, context, programs);
    let validations = at(spec, &["validations"]).and_then(Value::as_array);
    let validations: Vec<&Value> = validations.into_iter().flatten().collect();
    let mut results = Vec::new();
    for validation in &validations {
        // All are evaluated before the first refusal is explained, because they share a budget.
        match evaluation.run(text(validation, &["expression"])) {
            Err(Failed::OutOfBudget) => return failed(OUT_OF_BUDGET.to_owned()),
            result => results.push(result),
        }
    }
    validations.iter().zip(results).find_map(|(validation, result)| match result {
        Ok(Cel::Bool(true)) => None,
        Ok(_) => match explanation(validation, &mut evaluation) {
            Ok(message) => Some(Denial { message, reason: reason(text(validation, &["reason"])) }),
            Err(why) => failed(format!("failed messageExpression: {why}")),
        },
        Err(why) => {
            let expression = text(validation, &["expression"]).trim();
            failed(format!("expression '{expression}' resulted in error: {}", why.why()))
        }
    })
}

/// The evaluation of a policy's expressions, which share a budget and the policy's variables. A variable
/// is evaluated once, before the first expression that names it.
struct Evaluation<'a> {
    /// Names and expressions of the variables. Each may use those before it.
    written: Vec<(&'a str, &'a str)>,
    context: Context<'static, 'static>,
    programs: &'a Programs,
    budget: Budget,
    values: HashMap<String, Cel>,
    failures: HashMap<&'a str, String>,
}

impl<'a> Evaluation<'a> {
    fn new(spec: &'a Value, context: Context<'static, 'static>, programs: &'a Programs) -> Self {
        let variables = at(spec, &["variables"]).and_then(Value::as_array).into_iter().flatten();
        let written = variables.map(|one| (text(one, &["name"]), text(one, &["expression"])));
        Self {
            written: written.collect(),
            context,
            programs,
            budget: Budget::of_object(),
            values: HashMap::new(),
            failures: HashMap::new(),
        }
    }

    /// Evaluates an expression.
    fn run(&mut self, expression: &str) -> Result<Cel, Failed> {
        let needed = self.needed(expression);
        for (name, expression) in &needed {
            if self.values.contains_key(*name) || self.failures.contains_key(name) {
                continue;
            }
            match run(expression, &self.context, self.programs, &mut self.budget) {
                Ok(value) => {
                    self.values.insert((*name).to_owned(), value);
                    self.context.add_variable_from_value("variables", self.values.clone());
                }
                Err(Failed::OutOfBudget) => return Err(Failed::OutOfBudget),
                Err(why) => {
                    let why = why.why();
                    let why = format!("composited variable \"{name}\" fails to evaluate: {why}");
                    self.failures.insert(name, why);
                }
            }
        }
        let result = run(expression, &self.context, self.programs, &mut self.budget);
        let failure = needed.iter().find_map(|(name, _)| self.failures.get(name));
        match (result, failure) {
            (Err(Failed::Expression(_)), Some(why)) => Err(Failed::Expression(why.clone())),
            (result, _) => result,
        }
    }

    /// Returns the variables that an expression names, and those that they name, in order.
    fn needed(&self, expression: &str) -> Vec<(&'a str, &'a str)> {
        let mut names: HashSet<&str> = variables_of(expression).collect();
        let mut out = Vec::new();
        for (name, expression) in self.written.iter().rev() {
            if names.contains(name) {
                names.extend(variables_of(expression));
                out.push((*name, *expression));
            }
        }
        out.reverse();
        out
    }
}

/// Returns the names of the variables in an expression, perhaps with some that are only in its strings.
fn variables_of(expression: &str) -> impl Iterator<Item = &str> {
    expression.split("variables").skip(1).filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix('.')?.trim_start();
        let rest = rest.strip_prefix('?').unwrap_or(rest).trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest.get(..end.unwrap_or(rest.len()))
    })
}

fn run(
    expression: &str,
    context: &Context<'_, '_>,
    programs: &Programs,
    budget: &mut Budget,
) -> Result<Cel, Failed> {
    let program = programs.get(expression).map_err(Failed::Expression)?;
    budget.run(&program, context)
}

/// Returns true if all conditions hold. A condition that does not hold outweighs one that fails.
fn meets_conditions(
    spec: &Value,
    context: &Context<'_, '_>,
    programs: &Programs,
) -> Result<bool, String> {
    let conditions = at(spec, &["matchConditions"]).and_then(Value::as_array);
    let mut budget = Budget::of_conditions();
    let mut failures = Vec::new();
    let mut has_other = false;
    for condition in conditions.into_iter().flatten() {
        let expression = text(condition, &["expression"]);
        match run(expression, context, programs, &mut budget) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => has_other = true,
            Err(Failed::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            Err(why) => {
                failures
                    .push(format!("expression '{expression}' resulted in error: {}", why.why()));
            }
        }
    }
    if has_other {
        return Ok(false);
    }
    match failures.as_slice() {
        [] => Ok(true),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// Returns the message of a refusal. Fails if the expressions are out of budget.
fn explanation(
    validation: &Value,
    evaluation: &mut Evaluation<'_>,
) -> Result<String, &'static str> {
    let written = text(validation, &["messageExpression"]);
    if !written.trim().is_empty() {
        match evaluation.run(written) {
            Ok(Cel::String(message)) => {
                let message = message.trim();
                if !message.is_empty() && message.len() <= MAX_MESSAGE && !message.contains('\n') {
                    return Ok(message.to_owned());
                }
            }
            Err(Failed::OutOfBudget) => return Err(OUT_OF_BUDGET),
            Ok(_) | Err(Failed::Expression(_) | Failed::Exceeded) => {}
        }
    }
    Ok(match text(validation, &["message"]).trim() {
        "" => format!("failed expression: {}", text(validation, &["expression"]).trim()),
        message => message.to_owned(),
    })
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
            versions: vec!["v1".to_owned()],
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
                json!({"matchConstraints": {"matchPolicy": "Exact", "resourceRules": [
                    {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["v2"],
                     "resources": ["*"]}]}, "validations": [{"expression": "false"}]}),
                None,
            ),
            (
                json!({"validations": [{"expression": "['a', 'b'].join('-') != 'a-b'",
                    "messageExpression": "['a', 'b'].join()"}]}),
                Some("ab"),
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

    #[test]
    fn a_variable_is_evaluated_when_an_expression_names_it() {
        let fine = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let rows = [
            (
                json!({"variables": [{"name": "bad", "expression": "object.spec.x"},
                    {"name": "n", "expression": "size(object.data)"},
                    {"name": "m", "expression": "variables.n + 1"}],
                    "validations": [{"expression": "variables.m > 2", "message": "few"}]}),
                Some("few"),
            ),
            (
                json!({"variables": [{"name": "bad", "expression": "object.spec.x"}],
                    "validations": [{"expression": "variables.bad == 1"}]}),
                Some(
                    "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" \
                     fails to evaluate: No such key: spec",
                ),
            ),
            (
                json!({"variables": [{"name": "bad", "expression": "object.spec.x"}],
                    "validations": [{"expression": "true || variables.bad == 1"}]}),
                None,
            ),
        ];
        for (spec, expected) in rows {
            assert_eq!(verdict(&policy(&spec), &fine).as_deref(), expected, "{spec}");
        }
    }
}
