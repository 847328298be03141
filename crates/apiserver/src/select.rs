//! Label and field selectors.

mod labels;

use serde_json::Value;

use crate::{
    failure::Failure,
    object,
    resource::Resource,
    store::{Head, Object},
};

/// A label selector and a field selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors of a request on `resource`.
    pub(crate) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, Failure> {
        let labels = labels::parse(labels).map_err(Failure::bad_request)?;
        Ok(Self { labels, fields: parse_fields(fields, resource)? })
    }

    /// Reads a `LabelSelector` object (`matchLabels`, `matchExpressions`).
    pub(crate) fn from_object(selector: &Value) -> Self {
        let mut labels = Vec::new();
        let pairs = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in pairs.into_iter().flatten() {
            let values = value.as_str().map(str::to_owned).into_iter().collect();
            labels.push(Requirement { key: key.clone(), test: Test::In(values) });
        }
        let list = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in list.into_iter().flatten() {
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match object::text(expression, &["operator"]) {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                _ => Test::Absent,
            };
            let key = object::text(expression, &["key"]).to_owned();
            labels.push(Requirement { key, test });
        }
        Self { labels, fields: Vec::new() }
    }

    /// Adds the requirement that the object has this name.
    pub(crate) fn named(mut self, name: &str) -> Self {
        let path = vec!["metadata".to_owned(), "name".to_owned()];
        self.fields.push(Field { path, value: name.to_owned(), equal: true });
        self
    }

    /// Returns true if the selector selects every object.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if the selector selects the object.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |one: &Requirement| one.holds(object::label(object, &one.key));
        self.labels.iter().all(label) && self.fields.iter().all(|field| field.holds(object))
    }

    /// Returns true if the selector selects the stored object, which is read as a whole only for
    /// rare fields.
    pub(crate) fn selects(&self, object: &Object) -> bool {
        let label = |one: &Requirement| one.holds(object.head.label(&one.key));
        if !self.labels.iter().all(label) {
            return false;
        }
        let (mut known, mut rare) = (true, Vec::new());
        for field in &self.fields {
            match field.of_head(&object.head) {
                Some(value) => known &= (value == field.value) == field.equal,
                None => rare.push(field),
            }
        }
        known
            && (rare.is_empty() || {
                let value = object.value();
                rare.iter().all(|field| field.holds(&value))
            })
    }
}

impl Requirement {
    /// Returns true if the requirement holds for this value of its label.
    fn holds(&self, value: Option<&str>) -> bool {
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|one| one == v)),
            Test::NotIn(values) => !value.is_some_and(|v| values.iter().any(|one| one == v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(least) => number(value).is_some_and(|it| it > *least),
            Test::Less(most) => number(value).is_some_and(|it| it < *most),
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl Field {
    /// Returns the value of the field, if the head of an object has it.
    fn of_head<'a>(&self, head: &'a Head) -> Option<&'a str> {
        let [group, name] = self.path.as_slice() else { return None };
        match (group.as_str(), name.as_str()) {
            ("metadata", "name") => Some(&head.name),
            ("metadata", "namespace") => Some(&head.namespace),
            ("spec", "nodeName") => Some(&head.node),
            ("status", "phase") => Some(&head.phase),
            _ => None,
        }
    }

    fn holds(&self, object: &Value) -> bool {
        let found = self.path.iter().try_fold(object, |value, key| value.get(key));
        let equal = match found {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Bool(truth)) => self.value == if *truth { "true" } else { "false" },
            Some(Value::Number(number)) => {
                self.value.parse::<serde_json::Number>().is_ok_and(|wanted| wanted == *number)
            }
            // An absent boolean is false, and an absent count is zero.
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {
                let is_count = self.path.last().is_some_and(|name| name == "succeeded");
                matches!(self.value.as_str(), "" | "false") || (is_count && self.value == "0")
            }
        };
        equal == self.equal
    }
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<Field>, Failure> {
    let mut fields = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (path, value, true)
        } else {
            return Err(Failure::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{part}'"
            )));
        };
        // Compat: a selector without a field selects everything.
        if path.is_empty() && value.is_empty() {
            continue;
        }
        if !resource.has_selectable_field(path) {
            return Err(Failure::bad_request(unsupported(path, resource)));
        }
        // Compat: Jobs call the number of their succeeded pods differently in selectors.
        let path = if path == "status.successful" { "status.succeeded" } else { path };
        let path = path.split('.').map(str::to_owned).collect();
        fields.push(Field { path, value: value.to_owned(), equal });
    }
    Ok(fields)
}

/// Returns the message about a field that cannot be selected by.
fn unsupported(path: &str, resource: &Resource) -> String {
    if resource.selectable.is_empty() && !resource.custom {
        let is_definition = resource.kind == "CustomResourceDefinition";
        let namespace = if is_definition { "" } else { ", \"metadata.namespace\"" };
        return format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\"{namespace}"
        );
    }
    if resource.kind == "Job" && !resource.custom {
        return format!("field label {path:?} not supported for Job");
    }
    format!("field label not supported: {path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    #[test]
    fn label_selectors_select_as_kubernetes_does() {
        let nodes = builtin::by_plural("nodes");
        let object = json!({"metadata": {"labels": {"role": "worker", "zone": "a", "e": ""}}});
        for (selector, expected) in [
            ("", true),
            ("role=worker", true),
            ("role==worker,zone=b", false),
            ("role!=master", true),
            ("missing!=x", true),
            ("zone in (a, b),role", true),
            ("zone notin (a)", false),
            ("missing notin (a)", true),
            ("!missing", true),
            ("!role", false),
            ("e=", true),
            ("a.b/c-d", false),
        ] {
            let parsed = Selector::parse(selector, "", &nodes).unwrap();
            assert_eq!(parsed.matches(&object), expected, "{selector}");
        }
        assert!(Selector::parse("a in (b", "", &nodes).is_err());
        assert!(Selector::parse("=b", "", &nodes).is_err());
    }

    #[test]
    fn field_selectors_accept_only_the_fields_of_the_kind() {
        let pods = builtin::by_plural("pods");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}});
        let holds = |text: &str| Selector::parse("", text, &pods).unwrap().matches(&pod);
        assert!(holds("spec.nodeName=n"));
        assert!(holds("metadata.name=p,spec.nodeName!=m"));
        assert!(!holds("metadata.name=q"));
        let refused = Selector::parse("", "spec.foo=a", &pods).unwrap_err();
        assert_eq!(refused.message, "field label not supported: spec.foo");
    }

    #[test]
    fn label_selector_objects_select_the_same() {
        let selector = json!({"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]});
        let selector = Selector::from_object(&selector);
        assert!(selector.matches(&json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"a": "b", "c": "d"}}})));
    }
}
