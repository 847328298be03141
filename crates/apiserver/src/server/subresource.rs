//! Routes a request for a subresource to its handler.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, request::Parts};

use super::{
    Body, Call, Server,
    route::{decode, media_type},
};
use crate::{admit::Part, failure::Failure, resource::builtin};

/// Name of the collection of CertificateSigningRequests.
const CERTIFICATE_REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

impl Server {
    /// Answers a request for a subresource.
    pub(super) async fn subresource(
        self: &Arc<Self>,
        call: &Call,
        part: &str,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        match part {
            "status" if call.resource.status => self.status(call, parts, body).await,
            "finalize" if &*call.resource.collection == builtin::NAMESPACES => {
                if parts.method != Method::PUT {
                    return Err(Failure::method());
                }
                let new = decode(&parts.headers, &body, &call.resource.kind)?;
                self.update(call, new, Part::Main).await
            }
            "approval" if &*call.resource.collection == CERTIFICATE_REQUESTS => {
                self.status(call, parts, body).await
            }
            "token" if call.resource.qualified() == "serviceaccounts" => {
                if parts.method != Method::POST {
                    return Err(Failure::method());
                }
                self.issue_token(call, &decode(&parts.headers, &body, "TokenRequest")?.value)
            }
            "scale" if call.resource.has_scale() => {
                let read = || decode(&parts.headers, &body, "Scale").map(|read| read.value);
                let media = media_type(&parts.headers);
                self.scale(call, &parts.method, media, read, &body).await
            }
            "eviction" if call.resource.qualified() == "pods" => {
                if parts.method != Method::POST {
                    return Err(Failure::method());
                }
                self.evict(call, &decode(&parts.headers, &body, "Eviction")?.value).await
            }
            "binding" if call.resource.qualified() == "pods" => {
                if parts.method != Method::POST {
                    return Err(Failure::method());
                }
                self.bind(call, &decode(&parts.headers, &body, "Binding")?.value).await
            }
            "log" if call.resource.qualified() == "pods" => {
                self.log(call, &parts.method, parts.uri.query().unwrap_or(""))
            }
            "exec" | "attach" | "portforward" | "ephemeralcontainers"
                if call.resource.qualified() == "pods" =>
            {
                self.refuse_command(call)
            }
            _ if call.resource.custom => {
                Err(Failure::not_found(&call.resource, call.name.as_deref().unwrap_or("")))
            }
            _ => Err(Failure::unknown_path()),
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
