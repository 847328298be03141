//! Routes a request to its handler.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{Body, Call, Server, answer};
use crate::{
    admit::Part,
    body::{self, Decoded},
    discovery,
    failure::Failure,
    openapi,
    path::{self, Located, Target},
    query::{self, Query},
    resource::builtin,
    review::{self, Identity},
};

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
        match target {
            Target::Object(located) => {
                let asked = review::find(&located.group, &located.version, &located.resource);
                match asked {
                    Some(review) if parts.method == Method::POST && located.name.is_none() => {
                        let answer = review::answer(review, &body, &caller);
                        Ok(answer::json(StatusCode::CREATED, &answer))
                    }
                    Some(_) => Err(Failure::unknown_path()),
                    None => self.resource(located, parts, body).await,
                }
            }
            Target::Plain(path) => self.plain(&path, &parts.method, &parts.headers),
            target @ (Target::CoreVersions
            | Target::Groups
            | Target::Group(_)
            | Target::Resources { .. }) => self.discover(&target, &parts.headers),
        }
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
                let found = discovery::legacy(&served, target).ok_or_else(Failure::unknown_path)?;
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

    fn plain(
        &self,
        path: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        if method != Method::GET {
            return Err(Failure::unknown_path());
        }
        let top = path.split('/').nth(1).unwrap_or("");
        match (top, path) {
            ("healthz" | "livez" | "readyz", _) => {
                Ok(typed("text/plain; charset=utf-8", Bytes::from_static(b"ok")))
            }
            ("version", "/version") => Ok(answer::json(StatusCode::OK, &version())),
            ("openapi", "/openapi/v2") => Ok(old_document(headers)),
            ("openapi", _) => {
                let served = self.catalog.served();
                let found = openapi::document(&served, path).ok_or_else(Failure::unknown_path)?;
                Ok(answer::json(StatusCode::OK, &found))
            }
            ("", _) => {
                let paths = json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3",
                    "/readyz", "/version"]});
                Ok(answer::json(StatusCode::OK, &paths))
            }
            _ => Err(Failure::unknown_path()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        located: Located,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        let resource = self
            .catalog
            .find(&located.group, &located.version, &located.resource)
            .ok_or_else(Failure::unknown_path)?;
        if !resource.namespaced && located.namespace.is_some() {
            return Err(Failure::unknown_path());
        }
        if resource.namespaced && located.namespace.is_none() && located.name.is_some() {
            return Err(Failure::unknown_path());
        }
        let query = query::parse(parts.uri.query().unwrap_or(""))?;
        check_options(&parts.method, &query)?;
        // Compat: an object is created in its namespace only.
        let is_homeless = resource.namespaced && located.namespace.is_none();
        if is_homeless && parts.method == Method::POST {
            return Err(Failure::method());
        }
        let manager = query.field_manager.clone().unwrap_or_else(|| agent(&parts.headers));
        let call = Call {
            resource,
            namespace: located.namespace,
            name: located.name,
            query,
            shape: answer::shape(&parts.headers),
            manager,
        };
        match located.subresource.as_deref() {
            None => self.main(call, parts, body).await,
            Some("status") if call.resource.status => self.status(&call, parts, body).await,
            Some("scale") if call.resource.kind == "Deployment" && !call.resource.custom => {
                let read = || decode(&parts.headers, &body, "Scale").map(|read| read.value);
                let media = media_type(&parts.headers);
                self.scale(&call, &parts.method, media, read, &body).await
            }
            Some("eviction") if call.resource.qualified() == "pods" => {
                if parts.method != Method::POST {
                    return Err(Failure::method());
                }
                self.evict(&call, &decode(&parts.headers, &body, "Eviction")?.value).await
            }
            Some(_) => Err(Failure::unknown_path()),
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
            (&Method::POST, None) => {
                let kind = &call.resource.kind;
                self.create(&call, decode(&parts.headers, &body, kind)?).await
            }
            (&Method::PUT, Some(_)) => {
                let new = decode(&parts.headers, &body, &call.resource.kind)?;
                self.update(&call, new, Part::Main).await
            }
            (&Method::PATCH, Some(_)) => {
                self.patch(&call, media_type(&parts.headers), &body, Part::Main).await
            }
            (&Method::DELETE, Some(_)) => {
                self.delete(&call, &options(&parts.headers, &body)?).await
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

    async fn status(
        &self,
        call: &Call,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        match parts.method {
            Method::GET => self.get(call),
            Method::PUT => {
                let new = decode(&parts.headers, &body, &call.resource.kind)?;
                self.update(call, new, Part::Status).await
            }
            Method::PATCH => {
                self.patch(call, media_type(&parts.headers), &body, Part::Status).await
            }
            _ => Err(Failure::method()),
        }
    }
}

/// Validates the options that all requests of a method share.
fn check_options(method: &Method, query: &Query) -> Result<(), Failure> {
    let kind = match *method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        Method::DELETE => "DeleteOptions",
        _ => return Ok(()),
    };
    query.check_write().map_err(|fault| Failure::invalid_options(kind, &fault))
}

fn typed(media: &'static str, body: Bytes) -> Response<Body> {
    let mut response = answer::bytes(StatusCode::OK, body);
    let media = header::HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// Returns an empty `OpenAPI` v2 document. kubectl requests it for lists of objects in protobuf,
/// where zero bytes are an empty document.
fn old_document(headers: &HeaderMap) -> Response<Body> {
    if answer::accepted(headers).any(|media| media.contains("protobuf")) {
        return typed("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Bytes::new());
    }
    let empty = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": {}, "definitions": {}});
    answer::json(StatusCode::OK, &empty)
}

/// Returns the default field manager of a client: the first word of its `User-Agent`.
fn agent(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let name = agent.unwrap_or("unknown").split('/').next().unwrap_or("unknown");
    name.to_owned()
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("").split(';').next().unwrap_or("").trim()
}

fn decode(headers: &HeaderMap, bytes: &Bytes, kind: &str) -> Result<Decoded, Failure> {
    body::decode(media_type(headers), bytes, kind)
}

/// Parses the options of a delete request. An empty body has none.
fn options(headers: &HeaderMap, body: &Bytes) -> Result<Value, Failure> {
    if body.is_empty() {
        Ok(json!({}))
    } else {
        decode(headers, body, "DeleteOptions").map(|read| read.value)
    }
}

fn version() -> Value {
    let (major, minor) = VERSION;
    json!({"major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0+mco"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, "amd64")})
}
