//! The name under which a process sends requests.

use http::{
    HeaderValue, Method, Request, Uri,
    header::{Entry, USER_AGENT},
    uri::{InvalidUriParts, Parts, PathAndQuery},
};
use kube::client::Body;

/// The name of a process in audit logs (User-Agent) and in managed fields (field manager).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(&'static str);

impl Identity {
    /// Returns an identity; `name` consists of letters, digits and hyphens.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the User-Agent, with the parts that client-go sends.
    #[must_use]
    pub fn user_agent(self) -> String {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let (name, version, os) = (self.0, env!("CARGO_PKG_VERSION"), std::env::consts::OS);
        format!("{name}/{version} ({os}/{arch})")
    }

    /// Adds the User-Agent, and the field manager to a write that has none.
    pub(super) fn sign(self, request: &mut Request<Body>) {
        let agent = HeaderValue::try_from(self.user_agent());
        if let (Entry::Vacant(entry), Ok(agent)) = (request.headers_mut().entry(USER_AGENT), agent)
        {
            entry.insert(agent);
        }
        if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            return;
        }
        // A URI without a valid query is sent as it is, for the API server to reject.
        if let Ok(uri) = with_field_manager(request.uri(), self.0) {
            *request.uri_mut() = uri;
        }
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new("mco")
    }
}

fn with_field_manager(uri: &Uri, manager: &str) -> Result<Uri, InvalidUriParts> {
    let query = uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("fieldManager=")) {
        return Ok(uri.clone());
    }
    let separator = if query.is_empty() { "" } else { "&" };
    let text = format!("{}?{query}{separator}fieldManager={manager}", uri.path());
    let mut parts: Parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(text).ok().or(parts.path_and_query);
    Uri::from_parts(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_carry_the_name_of_the_process() {
        let rows = [
            (Method::GET, "/api/v1/nodes?limit=1", "/api/v1/nodes?limit=1"),
            (Method::DELETE, "/api/v1/nodes/a", "/api/v1/nodes/a"),
            (Method::POST, "/api/v1/nodes?", "/api/v1/nodes?fieldManager=machine-config-daemon"),
            (Method::PUT, "/api/v1/nodes/a", "/api/v1/nodes/a?fieldManager=machine-config-daemon"),
            (Method::PATCH, "/a?&force=true", "/a?&force=true&fieldManager=machine-config-daemon"),
            (Method::PATCH, "/a?force=true&fieldManager=x", "/a?force=true&fieldManager=x"),
        ];
        for (method, uri, expected) in rows {
            let mut request =
                Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            Identity::new("machine-config-daemon").sign(&mut request);
            assert_eq!(request.uri().to_string(), expected);
            let agent = request.headers()[USER_AGENT].to_str().unwrap();
            let expected = format!("machine-config-daemon/{} (", env!("CARGO_PKG_VERSION"));
            assert!(agent.starts_with(&expected) && agent.contains('/'), "{agent}");
        }
    }
}
