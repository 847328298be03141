//! Parses request paths into resource, object and subresource.

use percent_encoding::percent_decode_str;

/// The target of a request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path outside the API groups: `/version`, `/healthz`, `/openapi/v3` …
    Plain(String),
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/apis`: all named groups.
    Groups,
    /// `/apis/G`: one group.
    Group(String),
    /// `/api/v1` or `/apis/G/V`: the resources of one version.
    Resources { group: String, version: String },
    /// Anything below a version.
    Object(Located),
}

/// The coordinates of an object or a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Parses `path`. Returns `None` if no served path has this form.
pub(crate) fn parse(path: &str) -> Option<Target> {
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .map(|part| percent_decode_str(part).decode_utf8().map(std::borrow::Cow::into_owned))
        .collect::<Result<_, _>>()
        .ok()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["api"] => Some(Target::CoreVersions),
        ["apis"] => Some(Target::Groups),
        ["apis", group] => Some(Target::Group((*group).to_owned())),
        ["api", version] => Some(resources("", version)),
        ["apis", group, version] => Some(resources(group, version)),
        ["api", version, rest @ ..] => located("", version, rest).map(Target::Object),
        ["apis", group, version, rest @ ..] => located(group, version, rest).map(Target::Object),
        _ => Some(Target::Plain(format!("/{}", parts.join("/")))),
    }
}

fn resources(group: &str, version: &str) -> Target {
    Target::Resources { group: group.to_owned(), version: version.to_owned() }
}

fn located(group: &str, version: &str, rest: &[&str]) -> Option<Located> {
    let (namespace, resource, name, subresource) = match rest {
        // `status` and `finalize` are subresources of the namespace, not collections in it.
        ["namespaces", name, part @ ("status" | "finalize")] => {
            (None, "namespaces", Some(*name), Some((*part).to_owned()))
        }
        ["namespaces", namespace, resource] => (Some(*namespace), *resource, None, None),
        ["namespaces", namespace, resource, name] => {
            (Some(*namespace), *resource, Some(*name), None)
        }
        ["namespaces", namespace, resource, name, part @ ..] => {
            (Some(*namespace), *resource, Some(*name), Some(part.join("/")))
        }
        [resource] => (None, *resource, None, None),
        [resource, name] => (None, *resource, Some(*name), None),
        [resource, name, part @ ..] => (None, *resource, Some(*name), Some(part.join("/"))),
        [] => return None,
    };
    let given = [namespace, Some(resource), name, subresource.as_deref()];
    if given.into_iter().flatten().any(str::is_empty) {
        return None;
    }
    Some(Located {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        resource: resource.to_owned(),
        name: name.map(str::to_owned),
        subresource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> String {
        match parse(path) {
            Some(Target::Object(o)) => format!(
                "{}/{} {} {} {} {}",
                o.group,
                o.version,
                o.namespace.as_deref().unwrap_or("-"),
                o.resource,
                o.name.as_deref().unwrap_or("-"),
                o.subresource.as_deref().unwrap_or("-"),
            ),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn paths_name_objects_and_their_parts() {
        for (path, expected) in [
            ("/api/v1/nodes", "/v1 - nodes - -"),
            ("/api/v1/nodes/a/status", "/v1 - nodes a status"),
            ("/api/v1/namespaces", "/v1 - namespaces - -"),
            ("/api/v1/namespaces/x", "/v1 - namespaces x -"),
            ("/api/v1/namespaces/x/status", "/v1 - namespaces x status"),
            ("/api/v1/namespaces/x/pods", "/v1 x pods - -"),
            ("/api/v1/namespaces/x/pods/p/eviction", "/v1 x pods p eviction"),
            ("/apis/apps/v1/deployments", "apps/v1 - deployments - -"),
            ("/apis/g.io/v1/things/a%2Eb", "g.io/v1 - things a.b -"),
        ] {
            assert_eq!(at(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_outside_the_groups_are_recognized() {
        assert_eq!(parse("/api"), Some(Target::CoreVersions));
        assert_eq!(parse("/apis/"), Some(Target::Groups));
        assert_eq!(parse("/apis/apps"), Some(Target::Group("apps".into())));
        assert_eq!(parse("/api/v1"), Some(resources("", "v1")));
        assert_eq!(parse("/openapi/v3/api/v1"), Some(Target::Plain("/openapi/v3/api/v1".into())));
        assert_eq!(parse("/api/v1/namespaces//pods"), None);
    }
}
