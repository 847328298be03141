//! Defaults of Jobs, and the labels by which a Job finds its pods.

use serde_json::{Map, Value, json};

use super::put;
use crate::object;

/// Labels of a Job's pods with the name of the Job: the old one and the new one.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// Labels of a Job's pods with the UID of the Job: the old one and the new one.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Number of failed pods after which a Job fails by default.
const BACKOFF_LIMIT: i64 = 6;

/// Fills in the defaults of a Job's spec.
pub(super) fn fill(spec: &mut Map<String, Value>) {
    let is_absent = |spec: &Map<String, Value>, field| spec.get(field).is_none_or(Value::is_null);
    if is_absent(spec, "completions") && is_absent(spec, "parallelism") {
        spec.insert("completions".into(), json!(1));
    }
    put(spec, "parallelism", json!(1));
    let per_index = !is_absent(spec, "backoffLimitPerIndex");
    put(spec, "backoffLimit", json!(if per_index { i64::from(i32::MAX) } else { BACKOFF_LIMIT }));
    put(spec, "completionMode", json!("NonIndexed"));
    put(spec, "suspend", json!(false));
    let has_policy = !is_absent(spec, "podFailurePolicy");
    let policy = if has_policy { "Failed" } else { "TerminatingOrFailed" };
    put(spec, "podReplacementPolicy", json!(policy));
    put(spec, "manualSelector", json!(false));
}

/// Labels the template of a new Job and selects its pods, unless the client selects them.
pub(super) fn select(job: &mut Value) {
    let (name, uid) = (object::name(job).to_owned(), object::meta(job, "uid").to_owned());
    let labels = object::at(job, &["metadata", "labels"]);
    if labels == object::at(job, &["spec", "template", "metadata", "labels"]) {
        // The labels of the template, to which the generated ones are added below.
        object::drop_meta(job, "labels");
    }
    let spec = object::map_mut(object::map_of(job), "spec");
    if spec.get("manualSelector") != Some(&json!(true)) {
        let template = object::map_mut(object::map_mut(spec, "template"), "metadata");
        let labels = object::map_mut(template, "labels");
        for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
            for key in keys {
                labels.entry(key).or_insert_with(|| value.clone().into());
            }
        }
        let [_, key] = UID_LABELS;
        let wanted = object::map_mut(object::map_mut(spec, "selector"), "matchLabels");
        wanted.entry(key).or_insert_with(|| uid.into());
    }
    inherit_labels(job);
}

/// Gives a Job without labels those of its template.
pub(super) fn inherit_labels(job: &mut Value) {
    let of = |place: &[&str]| {
        object::at(job, place).and_then(Value::as_object).filter(|map| !map.is_empty()).cloned()
    };
    let labels = of(&["spec", "template", "metadata", "labels"]);
    if let (None, Some(labels)) = (of(&["metadata", "labels"]), labels) {
        object::set_meta(job, "labels", labels);
    }
}
