//! Tests of structural schemas and their rules.

use super::*;
use crate::{admit::Part, failure::Fault};
use serde_json::json;

fn validated(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = Schema::root(schema).unwrap();
    let mut new = new.clone();
    prune::prune(&schema, &mut new);
    default::fill(&schema, &mut new);
    validate::object(&schema, &new, old, Part::Main).iter().map(Fault::to_string).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
fn spec(schema: Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

#[test]
fn values_are_validated_by_type_and_limit() {
    let schema = spec(json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z]*$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "many": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "unique": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        "either": {"x-kubernetes-int-or-string": true},
        "maybe": {"type": "string", "nullable": true}}}));
    for (found, expected) in [
        (json!({"name": "a"}), vec![]),
        (json!({}), vec!["spec.name: Required value"]),
        (
            json!({"name": "ABCD"}),
            vec![
                "spec.name: Invalid value: \"ABCD\": spec.name in body should match '^[a-z]*$'",
                "spec.name: Too long: may not be more than 3 bytes",
            ],
        ),
        (
            json!({"name": "a", "count": 0}),
            vec![
                "spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1",
            ],
        ),
        (
            json!({"name": "a", "count": "x"}),
            vec![
                "spec.count: Invalid value: \"string\": spec.count in body must be of type integer: \"string\"",
            ],
        ),
        (
            json!({"name": "a", "mode": "C"}),
            vec!["spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\""],
        ),
        (
            json!({"name": "a", "many": ["x", "y"]}),
            vec!["spec.many: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"name": "a", "unique": [{"k": "x"}, {"k": "x"}]}),
            vec!["spec.unique[1]: Duplicate value: {\"k\":\"x\"}"],
        ),
        (json!({"name": "a", "either": "10%"}), vec![]),
        (json!({"name": "a", "either": 3}), vec![]),
        (json!({"name": "a", "maybe": null}), vec![]),
    ] {
        assert_eq!(validated(&schema, &json!({"spec": found}), None), expected, "{found}");
    }
}

#[test]
fn unknown_fields_are_pruned_and_preserved_ones_stay() {
    let schema = spec(json!({"type": "object", "properties": {
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "map": {"type": "object", "additionalProperties": {"type": "object",
            "properties": {"a": {"type": "string"}}}}}}));
    let schema = Schema::root(&schema).unwrap();
    let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"},
        "extra": 1, "spec": {"free": {"any": {"thing": 1}}, "other": 2,
        "map": {"x": {"a": "1", "b": "2"}}}});
    let unknown = prune::prune(&schema, &mut object);
    assert_eq!(unknown, ["extra", "spec.map.x.b", "spec.other"]);
    assert_eq!(object["spec"], json!({"free": {"any": {"thing": 1}}, "map": {"x": {"a": "1"}}}));
}

#[test]
fn defaults_have_defaults() {
    let schema = Schema::root(&spec(json!({"type": "object", "default": {}, "properties": {
        "mode": {"type": "string", "default": "A"}, "gone": {"type": "string"}}})))
    .unwrap();
    let filled = |mut object: Value| {
        default::fill(&schema, &mut object);
        object
    };
    assert_eq!(filled(json!({})), json!({"spec": {"mode": "A"}}));
    let null = json!({"spec": {"mode": null, "gone": null}});
    assert_eq!(filled(null), json!({"spec": {"mode": "A"}}));
}

#[test]
fn rules_see_values_old_values_and_kubernetes_functions() {
    let rule = |text: &str| json!([{"rule": text, "message": "broken"}]);
    let schema = spec(json!({"type": "object",
    "x-kubernetes-validations": rule("!has(self.a) || self.a >= oldSelf.?a.orValue(0)"),
    "properties": {
        "a": {"type": "integer"},
        "fixed": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf")},
        "ip": {"type": "string", "x-kubernetes-validations": rule("isIP(self) && ip(self).family() == 4")},
        "host": {"type": "string",
            "x-kubernetes-validations": rule("!format.dns1123Subdomain().validate(self).hasValue()")},
        "image": {"type": "string",
            "x-kubernetes-validations": rule("self.split('@').size() == 2")},
        "when": {"type": "string", "format": "date-time",
            "x-kubernetes-validations": rule("self > timestamp('2020-01-01T00:00:00Z')")},
        "list": {"type": "array", "items": {"type": "string"},
            "x-kubernetes-validations": rule("self.exists(x, x == 'Reboot') ? self.size() == 1 : true")},
    }}));
    for (old, new, expected) in [
        (None, json!({"a": 1}), vec![]),
        (Some(json!({"a": 2})), json!({"a": 1}), vec!["spec: Invalid value: broken"]),
        (
            Some(json!({"fixed": "x"})),
            json!({"fixed": "y"}),
            vec!["spec.fixed: Invalid value: \"y\": broken"],
        ),
        (None, json!({"fixed": "y"}), vec![]),
        (None, json!({"ip": "10.0.0.1", "host": "a.b"}), vec![]),
        (None, json!({"ip": "fe80::1"}), vec!["spec.ip: Invalid value: \"fe80::1\": broken"]),
        (None, json!({"host": "A_b"}), vec!["spec.host: Invalid value: \"A_b\": broken"]),
        (None, json!({"image": "q/a@sha256:1"}), vec![]),
        (None, json!({"image": "q/a"}), vec!["spec.image: Invalid value: \"q/a\": broken"]),
        (None, json!({"when": "2026-01-01T00:00:00Z"}), vec![]),
        (
            None,
            json!({"when": "2016-01-01T00:00:00Z"}),
            vec!["spec.when: Invalid value: \"2016-01-01T00:00:00Z\": broken"],
        ),
        (None, json!({"list": ["Reboot", "x"]}), vec!["spec.list: Invalid value: broken"]),
    ] {
        let old = old.map(|old| json!({"spec": old}));
        let faults = validated(&schema, &json!({"spec": new}), old.as_ref());
        assert_eq!(faults, expected, "{new}");
    }
}

#[test]
fn a_rule_that_does_not_compile_is_an_error_with_its_place() {
    let schema = spec(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self +"}]}));
    let error = Schema::root(&schema).unwrap_err();
    assert_eq!(error.path, "openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule");
}

#[test]
fn a_rule_may_test_for_an_old_value() {
    let schema = json!({"type": "object",
        "x-kubernetes-validations": [{"message": "broken", "optionalOldSelf": true,
            "rule": "self.metadata.name == self.spec.pool.name || oldSelf.hasValue() && \
                     oldSelf.spec.pool.name.value() == self.spec.pool.name"}],
        "properties": {"spec": {"type": "object", "properties": {"pool": {"type": "object",
            "properties": {"name": {"type": "string"}}}}}}});
    let object = |name: &str, pool: &str| json!({"metadata": {"name": name}, "spec": {"pool": {"name": pool}}});
    let broken = vec!["<nil>: Invalid value: broken".to_owned()];
    assert_eq!(validated(&schema, &object("a", "a"), None), Vec::<String>::new());
    assert_eq!(validated(&schema, &object("a", "b"), None), broken);
    let old = object("a", "b");
    assert_eq!(validated(&schema, &object("a", "b"), Some(&old)), Vec::<String>::new());
    assert_eq!(validated(&schema, &object("a", "c"), Some(&old)), broken);
}
