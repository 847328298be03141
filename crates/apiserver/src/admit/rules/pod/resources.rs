//! Validation of the resources that a container requests, and of its limits.

use mco_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::{admit::name, failure::Fault, object};

/// Resources of containers.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Resources that are counted, but not those of containers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Other resources that are known, but not those of containers.
const OTHERS: [&str; 8] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

const HUGE_PAGES: &str = "hugepages-";

/// Validates the resources of a container.
pub(super) fn check(container: &Value, place: &str) -> Vec<Fault> {
    let nothing = Map::new();
    let of = |kind: &str| {
        object::at(container, &["resources", kind]).and_then(Value::as_object).unwrap_or(&nothing)
    };
    let (requests, limits) = (of("requests"), of("limits"));
    let place = format!("{place}.resources");
    let mut faults = Vec::new();
    for (name, limit) in limits {
        faults.extend(one(name, limit, &format!("{place}.limits[{name}]")));
    }
    for (name, request) in requests {
        faults.extend(one(name, request, &format!("{place}.requests[{name}]")));
        faults.extend(compared(name, request, limits.get(name), &place));
    }
    faults.extend(pages(requests, limits, &place));
    faults
}

/// Validates the name and the amount of a resource.
fn one(name: &str, amount: &Value, place: &str) -> Vec<Fault> {
    let mut faults: Vec<Fault> = name::qualified_faults(name)
        .iter()
        .map(|rule| Fault::invalid(place, &json!(name), rule))
        .collect();
    let mut wrong = |rule: &str| faults.push(Fault::invalid(place, &json!(name), rule));
    let is_huge = name.starts_with(HUGE_PAGES);
    if name.contains('/') {
        if !is_native(name) && !is_extended(name) {
            wrong("doesn't follow extended resource name standard");
        }
    } else if !OF_CONTAINERS.contains(&name) && !is_huge {
        let is_standard = COUNTED.contains(&name)
            || OTHERS.contains(&name)
            || name.starts_with("requests.hugepages-");
        if !is_standard && name::is_qualified(name) {
            wrong("must be a standard resource type or fully qualified");
        }
        wrong("must be a standard resource for containers");
    }
    let Some(quantity) = parsed(amount) else { return faults };
    if quantity.is_negative() {
        let rule = "must be greater than or equal to 0";
        faults.push(Fault::invalid(place, amount, rule));
    }
    let is_counted = COUNTED.contains(&name) || is_extended(name);
    if is_counted && quantity.nanos() % 1_000_000_000 != 0 {
        faults.push(Fault::invalid(place, amount, "must be an integer"));
    }
    faults
}

fn parsed(amount: &Value) -> Option<Quantity> {
    Quantity::parse(amount.as_str()?).ok()
}

/// Validates that a request fits its limit. A resource of which a node cannot promise more than it has
/// needs both, and they are equal.
fn compared(name: &str, request: &Value, limit: Option<&Value>, place: &str) -> Option<Fault> {
    let is_exact = !is_native(name) || name.starts_with(HUGE_PAGES);
    let Some(limit) = limit else {
        let why = "Limit must be set for non overcommitable resources";
        return is_exact.then(|| Fault::required(format!("{place}.limits"), why));
    };
    let (asked, most) = (parsed(request)?.nanos(), parsed(limit)?.nanos());
    let how = match asked.cmp(&most) {
        std::cmp::Ordering::Equal => return None,
        _ if is_exact => "equal to",
        std::cmp::Ordering::Greater => "less than or equal to",
        std::cmp::Ordering::Less => return None,
    };
    let rule = format!("must be {how} {name} limit of {}", limit.as_str().unwrap_or(""));
    Some(Fault::invalid(format!("{place}.requests"), request, &rule))
}

/// Validates that huge pages are used with memory or processors.
fn pages(requests: &Map<String, Value>, limits: &Map<String, Value>, place: &str) -> Option<Fault> {
    let has = |is: &dyn Fn(&str) -> bool| requests.keys().chain(limits.keys()).any(|it| is(it));
    let has_pages = has(&|name| name.starts_with(HUGE_PAGES));
    let has_base = has(&|name| matches!(name, "cpu" | "memory"));
    let rule = "HugePages require cpu or memory";
    (has_pages && !has_base).then(|| Fault::forbidden(place, rule))
}

/// Returns true if Kubernetes itself names the resource.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns true if the resource is one that a node advertises.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && name::is_qualified(&format!("requests.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_names_and_amounts_of_containers() {
        for (resources, expected) in [
            (json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}), vec![]),
            (
                json!({"requests": {"memroy": "1"}}),
                vec![
                    "requests[memroy]: Invalid value: \"memroy\": must be a standard resource type \
                     or fully qualified",
                    "requests[memroy]: Invalid value: \"memroy\": must be a standard resource for \
                     containers",
                ],
            ),
            (
                json!({"limits": {"pods": "1"}}),
                vec![
                    "limits[pods]: Invalid value: \"pods\": must be a standard resource for containers",
                ],
            ),
            (
                json!({"limits": {"cpu": "-1"}}),
                vec!["limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
            (
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
                vec![
                    "requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                ],
            ),
            (
                json!({"requests": {"a.b/gpu": "1"}}),
                vec!["limits: Required value: Limit must be set for non overcommitable resources"],
            ),
            (
                json!({"requests": {"a.b/gpu": "1"}, "limits": {"a.b/gpu": "2"}}),
                vec!["requests: Invalid value: \"1\": must be equal to a.b/gpu limit of 2"],
            ),
            (
                json!({"limits": {"a.b/gpu": "1500m"}}),
                vec!["limits[a.b/gpu]: Invalid value: \"1500m\": must be an integer"],
            ),
        ] {
            let found: Vec<String> =
                check(&json!({"resources": resources}), "c").iter().map(Fault::to_string).collect();
            let expected: Vec<String> =
                expected.into_iter().map(|text| format!("c.resources.{text}")).collect();
            assert_eq!(found, expected, "{resources}");
        }
    }
}
