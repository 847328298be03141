//! Label and field selectors.

mod fields;
mod labels;

use serde_json::Value;

use self::fields::Field;
use crate::{failure::Failure, object, resource::Resource, store::Object};

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

impl Selector {
    /// Parses both selectors of a request on `resource`.
    pub(crate) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, Failure> {
        let labels = labels::parse(labels).map_err(Failure::bad_request)?;
        Ok(Self { labels, fields: fields::parse(fields, resource)? })
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
        self.fields.push(Field::named(name));
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
            match field.holds_for_head(&object.head) {
                Some(holds) => known &= holds,
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
    fn fields_are_read_as_kubernetes_does() {
        let of = |plural: &str, group: &str| {
            builtin::all().find(|one| one.plural == plural && one.group == group).unwrap()
        };
        let (pods, nodes, jobs) = (of("pods", ""), of("nodes", ""), of("jobs", "batch"));
        let (old, new) = (of("events", ""), of("events", "events.k8s.io"));
        let event = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal",
            "source": {"component": "kubelet"}, "reportingComponent": "scheduler"});
        let unsourced = json!({"source": {}, "reportingComponent": "scheduler"});
        let pod = json!({"metadata": {"name": "a,b"}, "spec": {"nodeName": "n"}});
        for (resource, selector, object, expected) in [
            (&old, "source=kubelet", &event, true),
            (&old, "source=", &event, false),
            (&old, "source=scheduler", &unsourced, true),
            (&old, "involvedObject.kind=Pod,type!=Warning", &event, true),
            (&new, "regarding.name=p,reportingController=scheduler", &event, true),
            (&new, "regarding.name=q", &event, false),
            (&pods, "spec.host=n", &pod, true),
            (&pods, "metadata.name=a\\,b", &pod, true),
            (&pods, "status.podIP=", &pod, true),
            (&pods, "status.podIP=false", &pod, false),
            (&pods, "spec.hostNetwork=false", &pod, true),
            (&nodes, "spec.unschedulable=", &json!({}), false),
            (&nodes, "spec.unschedulable!=true", &json!({}), true),
            (&jobs, "status.successful=0", &json!({}), true),
            (&jobs, "status.successful=2", &json!({"status": {"succeeded": 2}}), true),
        ] {
            let parsed = Selector::parse("", selector, resource).unwrap();
            assert_eq!(parsed.matches(object), expected, "{selector}");
        }
        for (resource, selector, expected) in [
            (&new, "involvedObject.name=p", "field label not supported: involvedObject.name"),
            (&new, "source=a", "field label not supported: source"),
            (&pods, " metadata.name=a", "field label not supported:  metadata.name"),
            (
                &pods,
                "metadata.name=a=b",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                &pods,
                "spec.x=a,metadata.name=a\\b",
                "invalid field selector: invalid escape sequence: \\b",
            ),
            (&pods, "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
            (&pods, "z,a=b,y", "invalid selector: 'z,a=b,y'; can't understand 'y'"),
        ] {
            let refused = Selector::parse("", selector, resource).unwrap_err();
            assert_eq!(refused.message, expected, "{selector}");
        }
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
