//! Rules between fields. A kubelet whose configuration breaks one of them does not start.
//!
//! They are checked after merging. A field without a value counts with the kubelet's default. A rule
//! counts only if the user sets one of its fields: the base is the business of its owner.

use serde_json::Value;

use super::{configuration::Configuration, duration};

/// Describes how a configuration breaks a rule.
type Check = fn(&Configuration) -> Option<String>;

/// Returns the rules that a configuration breaks because of the settings of the user.
pub(super) fn faults(merged: &Configuration, user: &Configuration) -> Vec<String> {
    let checks: [(&[&str], Check); 7] = [
        (&["imageGCLowThresholdPercent", "imageGCHighThresholdPercent"], thresholds),
        (&["maxParallelImagePulls", "serializeImagePulls"], image_pulls),
        (&["imageMaximumGCAge", "imageMinimumGCAge"], image_ages),
        (&["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"], shutdown),
        (&["systemCgroups", "cgroupRoot"], system_cgroups),
        (&["enforceNodeAllocatable", "cgroupsPerQOS"], enforcements),
        (&["evictionSoft", "evictionSoftGracePeriod"], soft_thresholds),
    ];
    let is_set = |fields: &[&str]| fields.iter().any(|field| user.get(field).is_some());
    let checks = checks.into_iter().filter(|(fields, _)| is_set(fields));
    checks.filter_map(|(_, check)| check(merged)).collect()
}

fn number(config: &Configuration, field: &str, default: i64) -> i64 {
    config.get(field).and_then(Value::as_i64).unwrap_or(default)
}

/// Returns a duration in nanoseconds; zero is the default.
fn period(config: &Configuration, field: &str, default: i64) -> i64 {
    match duration::parse(config.text(field)) {
        Ok(0) | Err(_) => default,
        Ok(period) => period,
    }
}

fn thresholds(config: &Configuration) -> Option<String> {
    let low = number(config, "imageGCLowThresholdPercent", 80);
    let high = number(config, "imageGCHighThresholdPercent", 85);
    (low >= high).then(|| {
        format!(
            "imageGCLowThresholdPercent is {low}, and must be less than \
             imageGCHighThresholdPercent, which is {high}"
        )
    })
}

fn image_pulls(config: &Configuration) -> Option<String> {
    let count = number(config, "maxParallelImagePulls", 1);
    let is_serial = config.get("serializeImagePulls") != Some(&Value::Bool(false));
    (is_serial && count > 1).then(|| {
        format!("maxParallelImagePulls is {count}, and serializeImagePulls must be false with it")
    })
}

fn image_ages(config: &Configuration) -> Option<String> {
    let most = period(config, "imageMaximumGCAge", 0);
    let least = period(config, "imageMinimumGCAge", 120_000_000_000);
    (most > 0 && most <= least).then(|| {
        format!(
            "imageMaximumGCAge is {:?}, and must be more than imageMinimumGCAge, which is {:?}",
            duration::format(most),
            duration::format(least)
        )
    })
}

fn shutdown(config: &Configuration) -> Option<String> {
    let whole = period(config, "shutdownGracePeriod", 0);
    let critical = period(config, "shutdownGracePeriodCriticalPods", 0);
    (critical > whole).then(|| {
        format!(
            "shutdownGracePeriodCriticalPods is {:?}, and must be at most shutdownGracePeriod, \
             which is {:?}",
            duration::format(critical),
            duration::format(whole)
        )
    })
}

fn system_cgroups(config: &Configuration) -> Option<String> {
    let is_incomplete =
        !config.text("systemCgroups").is_empty() && config.text("cgroupRoot").is_empty();
    is_incomplete.then(|| "systemCgroups is set, and cgroupRoot must be set with it".to_owned())
}

fn enforcements(config: &Configuration) -> Option<String> {
    let list = config.list("enforceNodeAllocatable");
    let fault = |text: String| Some(format!("enforceNodeAllocatable {text}"));
    let mut sorted = list.clone();
    sorted.sort_unstable();
    if let Some([twice, _]) = sorted.array_windows().find(|[left, right]| left == right) {
        return fault(format!("contains {twice} twice"));
    }
    if list.contains(&"none") && list.len() > 1 {
        return fault("contains none, and must contain nothing else".to_owned());
    }
    for word in ["system-reserved", "kube-reserved"] {
        if list.contains(&word) && list.contains(&format!("{word}-compressible").as_str()) {
            return fault(format!(
                "contains {word} and {word}-compressible, and must not have both"
            ));
        }
    }
    let is_flat = config.get("cgroupsPerQOS") == Some(&Value::Bool(false));
    (is_flat && list != ["none"]).then(|| {
        "cgroupsPerQOS is false, and enforceNodeAllocatable must be [none] with it".to_owned()
    })
}

fn soft_thresholds(config: &Configuration) -> Option<String> {
    let signals = config.get("evictionSoft").and_then(Value::as_object)?;
    let periods = config.get("evictionSoftGracePeriod").and_then(Value::as_object);
    let missing = signals
        .keys()
        .find(|signal| periods.is_none_or(|periods| !periods.contains_key(signal.as_str())))?;
    Some(format!(
        "evictionSoft has {missing}, and evictionSoftGracePeriod must have a duration for it"
    ))
}
