//! Responses to requests that are not served: the status, and the reason for people.
//!
//! Ignition retries a request after 5xx, after at most five seconds, and gives up on 4xx: the machine
//! then does not boot. So 4xx is only for requests that can never be served. 503 is for everything that
//! is not there yet, 500 for a config that cannot be served until it is changed.

use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, HeaderName, RETRY_AFTER},
};
use mco_api::name::NameFault;
use mco_cluster::report;
use mco_ignition::{ConvertError, TargetVersion};

use crate::{
    document::BuildError, document_cache::Stopping, service::HttpResponse, source::LookupError,
};

/// Header with the reason in one sentence. Compat: the body of an error is empty.
pub(crate) const REASON: HeaderName = HeaderName::from_static("mco-reason");

/// Maximum number of characters in the header.
const MAX_REASON: usize = 400;

/// Seconds after which a machine may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Methods of all paths.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// Reason for the client, without contents of the config.
    pub(crate) reason: String,
    /// Cause for the log.
    pub(crate) cause: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        Self { status, reason: sentence(reason), cause: report::chain(cause) }
    }

    /// Refuses a path or a method.
    pub(crate) fn of_route(status: StatusCode) -> Self {
        let reason = match status {
            StatusCode::METHOD_NOT_ALLOWED => "only GET and HEAD are allowed",
            StatusCode::NOT_FOUND => "nothing is served at this path",
            _ => "the path is not valid",
        };
        Self { status, reason: sentence(reason), cause: reason.to_owned() }
    }

    /// Refuses a pool whose name no object can have. No later request can be served either.
    pub(crate) fn of_pool_name(fault: NameFault) -> Self {
        let reason = format!("the name of the pool is not valid: {fault}");
        Self::new(StatusCode::NOT_FOUND, &reason, &fault)
    }

    /// Refuses the Ignition version that the client asked for.
    pub(crate) fn of_version() -> Self {
        let reason = "the Accept header asks for an Ignition version that is not supported; \
                      supported are 2.2 and 3.1 to 3.5";
        // The log has the header itself in a field.
        let cause = "unsupported Ignition version in Accept header".to_owned();
        Self { status: StatusCode::BAD_REQUEST, reason: sentence(reason), cause }
    }

    /// Refuses a pool that has no config to serve.
    pub(crate) fn of_lookup(error: &LookupError) -> Self {
        let status = if error.is_pending() {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Self::new(status, &report::chain(error), error)
    }

    /// Refuses a config that cannot be served in the version that the client asked for.
    pub(crate) fn of_build(pool: &str, to: TargetVersion, error: &BuildError) -> Self {
        let reason = match error {
            BuildError::Convert { source: ConvertError::Unsupported { feature, path }, .. } => {
                format!(
                    "the config of pool {pool:?} cannot be served as Ignition {to}: {path}: \
                     {feature}{}",
                    hint(to)
                )
            }
            BuildError::Convert { source: ConvertError::UnsupportedTarget(_), .. } => {
                format!("no config can be served as Ignition {to}; ask for 3.1 or later")
            }
            BuildError::RemovesKernelArguments(_) => {
                format!("{error}{}", hint(to))
            }
            // The cause may quote the config.
            BuildError::Read(_)
            | BuildError::Upgrade(_)
            | BuildError::Convert { .. }
            | BuildError::Write(_) => format!(
                "the config of pool {pool:?} cannot be served as Ignition {to}; the log of the \
                 server has the cause"
            ),
        };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, &reason, error)
    }

    /// Refuses a request that came after the shutdown.
    pub(crate) fn of_shutdown(error: Stopping) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, &error.to_string(), &error)
    }

    /// Returns the response, with an empty body.
    pub(crate) fn response(&self) -> HttpResponse {
        let mut response = crate::service::empty(self.status);
        let headers = response.headers_mut();
        if let Ok(reason) = HeaderValue::from_str(&self.reason) {
            headers.insert(REASON, reason);
        }
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => drop(headers.insert(ALLOW, METHODS)),
            StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(RETRY_AFTER, RETRY_SECONDS)),
            _ => {}
        }
        response
    }
}

/// Returns advice for a client that gets 2.2 because it asked for no version, as curl does.
fn hint(to: TargetVersion) -> &'static str {
    match to {
        TargetVersion::V2_2 => {
            "; clients that send no version get 2.2, for another one send the header Accept: \
             application/vnd.coreos.ignition+json;version=3.5.0"
        }
        TargetVersion::V3(_) => "",
    }
}

/// Returns a text as a sentence that fits in a header.
pub(crate) fn sentence(text: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { ' ' };
    let text: String = text.chars().map(printable).take(MAX_REASON).collect();
    let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    let end = if text.ends_with('.') { "" } else { "." };
    first.into_iter().chain(letters).chain(end.chars()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{api_url::UnknownApiUrl, source::FileError};

    // covers: S15, S42, S43
    #[test]
    fn what_may_be_there_in_a_minute_is_unavailable() {
        let missing = |kind: std::io::ErrorKind| {
            LookupError::File(FileError::Read { path: PathBuf::from("/a"), source: kind.into() })
        };
        let rows = [
            (LookupError::Pool("a".to_owned()), 503, "Pool \"a\" does not exist."),
            (
                LookupError::NotInBootstrap("worker".to_owned()),
                503,
                "Refusing to serve bootstrap configuration to pool \"worker\".",
            ),
            (LookupError::NoConfig("a".to_owned()), 503, "Pool \"a\" has no config yet."),
            (
                LookupError::Config { pool: "a".to_owned(), config: "b".to_owned() },
                503,
                "Config \"b\" of pool \"a\" does not exist.",
            ),
            (
                LookupError::ControllerConfig,
                503,
                "ControllerConfig \"machine-config-controller\" does not exist.",
            ),
            (
                LookupError::ApiUrl(UnknownApiUrl),
                503,
                "Failed to build the kubelet's kubeconfig: the cluster does not name a URL of the API \
                 server for machines; start the server with --apiserver-url URL, or set \
                 apiServerInternalURI in spec.infra.status of the ControllerConfig.",
            ),
            (missing(std::io::ErrorKind::NotFound), 503, "Failed to read /a: entity not found."),
            (
                missing(std::io::ErrorKind::PermissionDenied),
                500,
                "Failed to read /a: permission denied.",
            ),
            (
                LookupError::File(FileError::NoClusters("/k".into())),
                500,
                "The kubeconfig /k has no clusters.",
            ),
        ];
        for (error, status, reason) in rows {
            let refusal = Refusal::of_lookup(&error);
            assert_eq!((refusal.status.as_u16(), &*refusal.reason), (status, reason));
        }
    }

    #[test]
    fn a_reason_is_one_printable_sentence() {
        let rows = [
            ("failed", "Failed."),
            ("failed.", "Failed."),
            ("a\r\nSet-Cookie: b", "A Set-Cookie: b."),
            ("caf\u{e9} \u{1f600}", "Caf."),
            ("", "."),
        ];
        for (text, expected) in rows {
            assert_eq!(sentence(text), expected, "{text:?}");
        }
        assert!(sentence(&"x".repeat(10_000)).len() <= MAX_REASON + 1);
    }
}
