//! Routes a request to its handler.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{
    Body, Call, Server,
    answer::{self, Shape},
};
use crate::{
    admit::Part,
    authorize::Access,
    body::{self, Decoded},
    discovery,
    failure::Failure,
    object,
    path::{self, Located, Target},
    query::{self, MAX_MANAGER, Query},
    resource::{Resource, builtin},
    review::{self, Claims, Identity, Review},
};

/// The warning of every request for Endpoints.
const ENDPOINTS_WARNING: &str =
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// The Kubernetes version whose API this server implements.
pub(crate) const VERSION: (&str, &str) = ("1", "36");

impl Server {
    /// Routes a request and returns the response of its handler.
    pub(super) async fn route(
        self: &Arc<Self>,
        parts: &Parts,
        body: Bytes,
        caller: Identity,
    ) -> Result<Response<Body>, Failure> {
        let target = path::parse(parts.uri.path()).ok_or_else(Failure::unknown_path)?;
        let (caller, claims) = self.acting(parts, caller)?;
        let query = parts.uri.query().unwrap_or("");
        let access = Access::of(&parts.method, parts.uri.path(), &target, query);
        self.authorize(&caller, &access)?;
        match target {
            Target::Object(located) => {
                let asked = review::find(&located.group, &located.version, &located.resource);
                match asked {
                    Some(review) => {
                        let by = (&caller, &claims);
                        self.answer_review(review, &located, parts, &body, by)
                    }
                    None if located.group.is_empty() && located.resource == "endpoints" => {
                        let answered = self.resource(located, parts, body, (caller, claims)).await;
                        let mut response = answered.unwrap_or_else(|it| answer::refuse(&it));
                        answer::warn(&mut response, &[ENDPOINTS_WARNING]);
                        Ok(response)
                    }
                    None => self.resource(located, parts, body, (caller, claims)).await,
                }
            }
            Target::Plain(path) => self.plain(&path, parts),
            target @ (Target::CoreVersions
            | Target::Groups
            | Target::Group(_)
            | Target::Resources { .. }) => self.discover(&target, &parts.headers),
        }
    }

    /// Fails if the path names nothing that is served, before the body of the request is read.
    pub(super) fn check_path(&self, parts: &Parts) -> Result<(), Failure> {
        let target = path::parse(parts.uri.path()).ok_or_else(Failure::unknown_path)?;
        let Target::Object(Located { group, version, resource, .. }) = &target else {
            return Ok(());
        };
        let is_served = review::find(group, version, resource).is_some()
            || self.catalog.find(group, version, resource).is_some();
        if is_served { Ok(()) } else { Err(unknown(group)) }
    }

    fn answer_review(
        &self,
        review: Review,
        located: &Located,
        parts: &Parts,
        body: &Bytes,
        (caller, claims): (&Identity, &Claims),
    ) -> Result<Response<Body>, Failure> {
        let is_placed = located.namespace.is_some() == review.namespaced;
        if located.name.is_some() || !is_placed {
            return Err(Failure::unknown_path());
        }
        if parts.method != Method::POST {
            return Err(Failure::method());
        }
        let question = decode(&parts.headers, body, review.kind)?.value;
        let namespace = located.namespace.as_deref().unwrap_or("");
        self.review(review, &question, namespace, caller, claims)
    }

    fn discover(&self, target: &Target, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
        let served = self.catalog.served();
        let aggregated = answer::accepted(headers)
            .find(|media| media.contains("as=APIGroupDiscoveryList") && media.contains("v=v2"))
            .filter(|media| !media.contains("v=v2beta1"));
        let core = match (target, aggregated) {
            (Target::CoreVersions, Some(_)) => true,
            (Target::Groups, Some(_)) => false,
            _ => {
                let found = discovery::legacy(&served, target).ok_or_else(|| match target {
                    Target::Group(group) | Target::Resources { group, .. } => unknown(group),
                    Target::CoreVersions
                    | Target::Groups
                    | Target::Plain(_)
                    | Target::Object(_) => Failure::unknown_path(),
                })?;
                return Ok(answer::json(StatusCode::OK, &found));
            }
        };
        let mut response = answer::json(StatusCode::OK, &discovery::aggregated(&served, core));
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
        Ok(response)
    }

    fn plain(&self, path: &str, parts: &Parts) -> Result<Response<Body>, Failure> {
        if parts.method != Method::GET {
            return Err(Failure::no_page());
        }
        let top = path.split('/').nth(1).unwrap_or("");
        match (top, path) {
            ("healthz" | "livez" | "readyz", _) => {
                Ok(typed("text/plain; charset=utf-8", Bytes::from_static(b"ok")))
            }
            ("version", "/version") => Ok(answer::json(StatusCode::OK, &version())),
            ("openapi", _) => self.openapi(path, parts),
            ("", _) => {
                let paths = json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2",
                    "/openapi/v3", "/readyz", "/version"]});
                Ok(answer::json(StatusCode::OK, &paths))
            }
            _ => Err(Failure::no_page()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        located: Located,
        parts: &Parts,
        body: Bytes,
        (caller, claims): (Identity, Claims),
    ) -> Result<Response<Body>, Failure> {
        let resource = self
            .catalog
            .find(&located.group, &located.version, &located.resource)
            .ok_or_else(|| unknown(&located.group))?;
        check_scope(&resource, &located, &parts.method)?;
        let query = query::parse(parts.uri.query().unwrap_or(""))?;
        let is_read = parts.method == Method::GET && !query.watch;
        let streams = ["log", "exec", "attach", "portforward"];
        let shape = if located.subresource.as_deref().is_some_and(|part| streams.contains(&part)) {
            Shape::Plain
        } else {
            let is_list = is_read.then_some(located.name.is_none());
            answer::shape(&parts.headers, &resource, is_list)?
        };
        check_options(parts, &query)?;
        let manager = query.field_manager.clone().filter(|manager| !manager.is_empty());
        let manager = manager.unwrap_or_else(|| agent(&parts.headers));
        let call = Call {
            resource,
            namespace: located.namespace,
            name: located.name,
            query,
            shape,
            manager,
            subresource: located.subresource.clone().unwrap_or_default(),
            caller,
            claims,
        };
        match located.subresource.as_deref() {
            None => self.main(call, parts, body).await,
            Some(part) => self.subresource(&call, part, parts, body).await,
        }
    }

    async fn main(
        self: &Arc<Self>,
        call: Call,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        match (&parts.method, &call.name) {
            (&Method::GET, _) if call.query.watch => self.watch(call),
            (&Method::GET, Some(_)) => self.get(&call),
            (&Method::GET, None) => self.list(&call),
            // Compat: the name in the path of a new custom object is ignored.
            (&Method::POST, name) if name.is_none() || call.resource.custom => {
                let mut new = decode(&parts.headers, &body, &call.resource.kind)?;
                self.complete_new(&call, &mut new.value)?;
                self.create(&call, new).await
            }
            (&Method::PUT, None) if call.resource.custom => {
                Err(Failure::bad_request("name must be provided"))
            }
            (&Method::PUT, Some(_)) => {
                let new = decode(&parts.headers, &body, &call.resource.kind)?;
                self.update(&call, new, Part::Main).await
            }
            (&Method::PATCH, Some(_)) => {
                self.patch(&call, media_type(&parts.headers), &body, Part::Main).await
            }
            (&Method::DELETE, Some(_)) => {
                let options = options(&parts.headers, &body)?;
                let old = self.store.get(&call.resource.collection, &call.key());
                if let Some(old) = &old {
                    self.check_write(&call, "DELETE", None, Some(&old.value()))?;
                }
                let response = self.delete(&call, &options).await?;
                let is_gone = call.query.dry_run
                    || self.store.get(&call.resource.collection, &call.key()).is_none();
                match old.filter(|_| is_gone && call.resource.is_shown_when_deleted()) {
                    Some(old) => Ok(self.show(&call, StatusCode::OK, &old)),
                    None => Ok(response),
                }
            }
            // Compat: namespaces are deleted one by one.
            (&Method::DELETE, None) if &*call.resource.collection == builtin::NAMESPACES => {
                Err(Failure::method())
            }
            (&Method::DELETE, None) => {
                self.delete_collection(&call, &options(&parts.headers, &body)?).await
            }
            _ => Err(Failure::method()),
        }
    }
}

/// 404: nothing of the group is served at the path. Compat: only built-in groups say so in a `Status`.
fn unknown(group: &str) -> Failure {
    if builtin::has_group(group) { Failure::unknown_path() } else { Failure::no_page() }
}

/// Fails if the path has a namespace that the resource does not have, or lacks the one that a request
/// needs. Only lists and watches reach over all namespaces.
fn check_scope(resource: &Resource, located: &Located, method: &Method) -> Result<(), Failure> {
    match (resource.namespaced, &located.namespace) {
        (false, Some(_)) => Err(unknown(&resource.group)),
        (true, None) if located.name.is_some() => Err(unknown(&resource.group)),
        (true, None) if method != Method::GET && resource.custom => Err(unknown(&resource.group)),
        (true, None) if method != Method::GET => Err(Failure::method()),
        (true, None | Some(_)) | (false, None) => Ok(()),
    }
}

/// Validates the options that all requests of a method share.
fn check_options(parts: &Parts, query: &Query) -> Result<(), Failure> {
    let is_apply = media_type(&parts.headers) == "application/apply-patch+yaml";
    let kind = match parts.method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        Method::DELETE => "DeleteOptions",
        _ => return Ok(()),
    };
    let faults = query.check_write((parts.method == Method::PATCH).then_some(is_apply));
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid_kind("meta.k8s.io", kind, "", &faults))
}

fn typed(media: &'static str, body: Bytes) -> Response<Body> {
    let mut response = answer::bytes(StatusCode::OK, body);
    let media = header::HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// Returns the default field manager of a client: the first word of its `User-Agent`.
fn agent(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let name = agent.unwrap_or("").split('/').next().unwrap_or("");
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_MANAGER).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("").split(';').next().unwrap_or("").trim()
}

pub(super) fn decode(headers: &HeaderMap, bytes: &Bytes, kind: &str) -> Result<Decoded, Failure> {
    body::decode(&media_type(headers).to_ascii_lowercase(), bytes, kind)
}

/// Parses the options of a delete request. An empty body has none.
fn options(headers: &HeaderMap, body: &Bytes) -> Result<Value, Failure> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    let options = decode(headers, body, "DeleteOptions")?.value;
    let of = |field| object::text(&options, &[field]);
    if !matches!(of("kind"), "" | "DeleteOptions") {
        return Err(Failure::bad_request(format!(
            "no kind \"{}\" is registered for version \"{}\" in scheme \
             \"pkg/runtime/scheme.go:111\"",
            of("kind"),
            of("apiVersion")
        )));
    }
    Ok(options)
}

fn version() -> Value {
    let (major, minor) = VERSION;
    json!({"major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0+mco"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, "amd64")})
}
