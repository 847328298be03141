//! Alerts and the dashboard use metrics that the processes export.

use std::collections::BTreeSet;

use mco_cluster::{Health, NoteCount, admin::Registry, client::RequestMetrics};
use mco_operator::manifests::{self, IMAGE, Parameters};
use serde_json::Value;

/// Returns the names of all metrics of operator, controller and daemon. A family without a series is
/// not part of the text of `/metrics`, but of the registry.
fn exported() -> BTreeSet<String> {
    let mut registry = Registry::default();
    RequestMetrics::default().register(&mut registry);
    Health::default().register(&mut registry);
    let _notes = NoteCount::register(&mut registry);
    let _controller = mco_controller::Metrics::register(&mut registry);
    let _daemon = mco_daemon::metrics::Metrics::register(&mut registry);
    let text = format!("{registry:?}");
    let names = text.split("Descriptor { name: \"").skip(1);
    names.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()).collect()
}

/// Returns all expressions of an object.
fn expressions(object: &Value, found: &mut Vec<String>) {
    match object {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    Some(text) if key == "expr" => found.push(text.to_owned()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the names of metrics in an expression: the words of the reference's and our prefixes.
fn metrics(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| {
        ["mco_", "mcc_", "mcd_", "os_image_"].iter().any(|prefix| word.starts_with(prefix))
    };
    words.filter(is_metric).collect()
}

#[test]
fn alerts_and_dashboard_use_exported_metrics() {
    let exported = exported();
    assert!(exported.contains("mco_machine_count"), "{exported:?}");
    // The library appends a suffix to the names of counters.
    let is_exported = |name: &str| {
        exported.contains(name)
            || name.strip_suffix("_total").is_some_and(|name| exported.contains(name))
    };
    let (mut alerts, mut panels) = (Vec::new(), Vec::new());
    for object in manifests::all_operands(&Parameters::new(IMAGE)) {
        match object["kind"].as_str() {
            Some("PrometheusRule") => expressions(&object, &mut alerts),
            Some("ConfigMap") => {
                assert_eq!(object["metadata"]["labels"]["grafana_dashboard"], "1");
                for text in object["data"].as_object().unwrap().values() {
                    let dashboard = serde_json::from_str(text.as_str().unwrap()).unwrap();
                    expressions(&dashboard, &mut panels);
                }
            }
            _ => {}
        }
    }
    assert!(alerts.len() >= 7 && panels.len() >= 8, "{alerts:?} {panels:?}");
    for expression in alerts.iter().chain(&panels) {
        let names = metrics(expression);
        assert!(!names.is_empty(), "{expression} uses no metric");
        for name in names {
            assert!(is_exported(name), "{expression}: no process exports {name}");
        }
    }
}
