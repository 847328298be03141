//! Validation of Jobs.

use serde_json::{Value, json};

use super::{not_negative, pod, selector, unchanged};
use crate::{admit::name, failure::Fault, object, select::Selector};

/// Fields of a Job's spec that are counts.
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];

/// Validates a Job, and its change from `old`.
pub(super) fn job(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = generated(new);
    faults.extend(spec(new));
    let indexed = object::text(new, &["spec", "completionMode"]) == "Indexed";
    let completions = object::at(new, &["spec", "completions"]).and_then(Value::as_i64);
    if let (true, Some(count)) = (indexed, completions.filter(|count| *count > 0)) {
        let host = format!("{}-{}", object::name(new), count - 1);
        if !name::label_faults(&host).is_empty() {
            let rule = format!("will not able to create pod with invalid DNS label: {host}");
            faults.push(Fault::invalid("metadata.name", &json!(object::name(new)), &rule));
        }
    }
    if let Some(old) = old {
        faults.extend(changed(new, old, indexed));
    }
    faults
}

/// Validates the labels by which a Job finds its pods.
fn generated(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    if object::at(new, &["spec", "manualSelector"]) == Some(&json!(true)) {
        return faults;
    }
    let (name, uid) = (object::name(new), object::meta(new, "uid"));
    let labels = object::at(new, &["spec", "template", "metadata", "labels"]);
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let place = format!("spec.template.metadata.labels[{key}]");
        let rule = format!("must be '{value}'");
        match labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) {
            None => faults.push(Fault::required(place, &rule)),
            Some(found) if found != value => {
                faults.push(Fault::invalid(place, labels.unwrap_or(&Value::Null), &rule));
            }
            Some(_) => {}
        }
    }
    let labels: serde_json::Map<String, Value> =
        expected.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let labelled = json!({"metadata": {"labels": labels}});
    if let Some(selector) = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null())
        && !Selector::from_object(selector).matches(&labelled)
    {
        faults.push(Fault::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
    faults
}

fn spec(new: &Value) -> Vec<Fault> {
    const MODES: [&str; 2] = ["NonIndexed", "Indexed"];
    let mut faults = Vec::new();
    let of = |field: &'static str| object::at(new, &["spec", field]).filter(|it| !it.is_null());
    for field in COUNTS {
        faults.extend(not_negative(new, &["spec", field]));
        if field == "maxFailedIndexes"
            && of(field).is_some()
            && of("backoffLimitPerIndex").is_none()
        {
            let why = "when maxFailedIndexes is specified";
            faults.push(Fault::required("spec.backoffLimitPerIndex", why));
        }
    }
    let mode = object::text(new, &["spec", "completionMode"]);
    if !MODES.contains(&mode) {
        faults.push(Fault::not_supported("spec.completionMode", mode, &MODES));
    }
    if mode == "Indexed" && of("completions").is_none() {
        faults.push(Fault::required("spec.completions", "when completion mode is Indexed"));
    }
    if mode == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = of(field) {
                let rule = "requires indexed completion mode";
                faults.push(Fault::invalid(format!("spec.{field}"), value, rule));
            }
        }
    }
    faults.extend(replacement(new));
    let template = object::at(new, &["spec", "template"]).unwrap_or(&Value::Null);
    faults.extend(pod::template(template, "spec.template"));
    let place = "spec.template.spec.restartPolicy";
    match object::text(template, &["spec", "restartPolicy"]) {
        "OnFailure" | "Never" => {}
        "Always" | "" => {
            faults.push(Fault::required(place, "valid values: \"OnFailure\", \"Never\""));
        }
        other => faults.push(Fault::not_supported(place, other, &["OnFailure", "Never"])),
    }
    faults.extend(selected(new));
    faults
}

/// Validates when a Job replaces its pods.
fn replacement(new: &Value) -> Option<Fault> {
    let policy = object::text(new, &["spec", "podReplacementPolicy"]);
    let has_rules = object::at(new, &["spec", "podFailurePolicy"]).is_some_and(|it| !it.is_null());
    let known: &[&str] = if has_rules { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    let is_known = policy.is_empty() || known.contains(&policy);
    (!is_known).then(|| Fault::not_supported("spec.podReplacementPolicy", policy, known))
}

/// Validates that a Job selects its own pods.
fn selected(new: &Value) -> Vec<Fault> {
    let selector = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null());
    let mut faults = match selector {
        None => vec![Fault::required("spec.selector", "")],
        Some(selector) => selector::check(selector, "spec.selector"),
    };
    let labels = object::at(new, &["spec", "template", "metadata", "labels"]);
    let labelled = json!({"metadata": {"labels": labels}});
    if !selector.is_some_and(|it| Selector::from_object(it).matches(&labelled)) {
        let rule = "`selector` does not match template `labels`";
        let place = "spec.template.metadata.labels";
        faults.push(Fault::invalid(place, labels.unwrap_or(&Value::Null), rule));
    }
    faults
}

fn changed(new: &Value, old: &Value, indexed: bool) -> Vec<Fault> {
    let mut faults = spec(new);
    let count = |job: &Value, field: &str| object::at(job, &["spec", field]).cloned();
    if !indexed {
        faults.extend(unchanged(&["spec", "completions"], new, old));
    } else if count(new, "completions") != count(old, "completions")
        && count(new, "completions") != count(new, "parallelism")
    {
        let rule = "can only be modified in tandem with spec.parallelism";
        let value = count(new, "completions").unwrap_or_default();
        faults.push(Fault::invalid("spec.completions", &value, rule));
    }
    for field in [
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        faults.extend(unchanged(&["spec", field], new, old));
    }
    faults
}
