//! Compares rules: finds the rights that one list of rules gives and another does not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::words;

/// One right: a verb on a resource or on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
    Path(&'a str),
}

/// Returns the rights of `given` that no rule of `owned` has, as kube-apiserver prints them.
pub(crate) fn missing(owned: &[Value], given: &[Value]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut of_resources: BTreeMap<Right<'_>, Vec<&str>> = BTreeMap::new();
    for (right, verb) in given.iter().flat_map(rights) {
        if owned.iter().any(|rule| covers(rule, &right, verb)) {
            continue;
        }
        match right {
            Right::Path(path) => {
                out.insert(format!("{{NonResourceURLs:[{path:?}], Verbs:[{verb:?}]}}"));
            }
            Right::Resource { .. } => of_resources.entry(right).or_default().push(verb),
        }
    }
    out.extend(of_resources.iter().map(|(right, verbs)| shown(right, verbs)));
    out
}

fn shown(right: &Right<'_>, verbs: &[&str]) -> String {
    let Right::Resource { group, resource, name } = right else { return String::new() };
    let names = name.map(|name| format!("ResourceNames:[{name:?}], ")).unwrap_or_default();
    let verbs = quoted(verbs.iter().copied());
    format!("{{APIGroups:[{group:?}], Resources:[{resource:?}], {names}Verbs:{verbs}}}")
}

/// Returns texts in the notation that Go has for a list of them.
pub(crate) fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// Returns the single rights of a rule.
fn rights(rule: &Value) -> Vec<(Right<'_>, &str)> {
    let mut out = Vec::new();
    let mut names: Vec<Option<&str>> = words(rule, "resourceNames").map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    for group in words(rule, "apiGroups") {
        for resource in words(rule, "resources") {
            for verb in words(rule, "verbs") {
                out.extend(
                    names.iter().map(|&name| (Right::Resource { group, resource, name }, verb)),
                );
            }
        }
    }
    for path in words(rule, "nonResourceURLs") {
        out.extend(words(rule, "verbs").map(|verb| (Right::Path(path), verb)));
    }
    out
}

fn covers(rule: &Value, right: &Right<'_>, verb: &str) -> bool {
    let has = |field: &str, wanted: &str| words(rule, field).any(|it| it == "*" || it == wanted);
    let is_plain = words(rule, "resourceNames").next().is_none();
    let fits = match right {
        Right::Path(path) => {
            let fits = |url: &str| match url.strip_suffix('*') {
                Some(start) => url == *path || path.starts_with(start),
                None => url == *path,
            };
            is_plain && words(rule, "nonResourceURLs").any(fits)
        }
        Right::Resource { group, resource, name } => {
            let part = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
            has("apiGroups", group)
                && (has("resources", resource) || part.is_some_and(|part| has("resources", &part)))
                && (is_plain
                    || name.is_some_and(|name| words(rule, "resourceNames").any(|it| it == name)))
        }
    };
    fits && has("verbs", verb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
        json!({"apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names})
    }

    #[test]
    fn every_right_that_is_not_owned_is_missing() {
        let owned = [rule(&["pods"], &["get", "list"], &[]), rule(&["*/status"], &["*"], &[])];
        for (given, expected) in [
            (rule(&["pods"], &["list"], &[]), None),
            (rule(&["pods"], &["get"], &["a"]), None),
            (rule(&["nodes/status"], &["patch"], &[]), None),
            (
                rule(&["pods"], &["get", "delete", "patch"], &[]),
                Some(r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "patch"]}"#),
            ),
            (
                rule(&["nodes"], &["get"], &["a"]),
                Some(
                    r#"{APIGroups:[""], Resources:["nodes"], ResourceNames:["a"], Verbs:["get"]}"#,
                ),
            ),
            (
                json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}),
                Some(r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#),
            ),
        ] {
            let found: Vec<String> = missing(&owned, &[given]).into_iter().collect();
            assert_eq!(found.first().map(String::as_str), expected);
        }
    }

    #[test]
    fn a_right_to_named_objects_does_not_cover_all_objects() {
        let owned = [rule(&["pods"], &["get"], &["a"])];
        assert!(!missing(&owned, &[rule(&["pods"], &["get"], &[])]).is_empty());
        assert!(!missing(&owned, &[rule(&["pods"], &["get"], &["b"])]).is_empty());
        assert!(missing(&owned, &[rule(&["pods"], &["get"], &["a"])]).is_empty());
    }

    #[test]
    fn a_star_of_paths_covers_what_begins_like_it() {
        let of = |path: &str| json!({"nonResourceURLs": [path], "verbs": ["get"]});
        assert!(missing(&[of("/a/*")], &[of("/a/b")]).is_empty());
        assert!(missing(&[of("*")], &[of("/a/*")]).is_empty());
        assert!(!missing(&[of("/a/*")], &[of("/b")]).is_empty());
    }
}
