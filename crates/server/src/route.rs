//! Routes a request by its method and path alone.
//!
//! Compat: the paths and their oddities are those of the reference's router (pkg/server/api.go and
//! Go's `net/http` mux): the pool is the last part of the path, `/config/` requests a pool called
//! `config`, and a path that is not clean is redirected to the clean one.

mod path;

use http::{Method, StatusCode};

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The config of a pool.
    Config {
        /// Last part of the path.
        pool: String,
    },
    /// The health check of load balancers: the server has current configs.
    Health,
    /// The liveness check: the server responds.
    Live,
    /// The readiness check.
    Ready,
    /// A redirect to the clean path.
    Redirect {
        /// Path and query, encoded for a `Location` header.
        location: String,
    },
    /// A rejected request.
    Reject(StatusCode),
}

/// Routes a request. The caller checks that the pool exists.
#[must_use]
pub fn route(method: &Method, target: &http::Uri) -> Route {
    let Some(decoded) = path::decode(target.path()) else {
        return Route::Reject(StatusCode::BAD_REQUEST);
    };
    let clean = path::clean(&decoded);
    if clean != decoded && decoded.starts_with('/') && method != Method::CONNECT {
        return Route::Redirect { location: path::location(&clean, target.query()) };
    }
    let readable = method == Method::GET || method == Method::HEAD;
    let is_config = decoded.starts_with("/config/");
    match (readable, decoded.as_str()) {
        (false, _) => Route::Reject(StatusCode::METHOD_NOT_ALLOWED),
        (true, "/healthz") => Route::Health,
        (true, "/livez") => Route::Live,
        (true, "/readyz") => Route::Ready,
        (true, _) if is_config => Route::Config { pool: path::last(&decoded).to_owned() },
        (true, _) => Route::Reject(StatusCode::NOT_FOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the route in a few characters.
    fn short(method: &str, target: &str) -> String {
        match route(&method.parse().unwrap(), &target.parse().unwrap()) {
            Route::Config { pool } => format!("pool {pool}"),
            Route::Health => "health".to_owned(),
            Route::Live => "live".to_owned(),
            Route::Ready => "ready".to_owned(),
            Route::Redirect { location } => format!("see {location}"),
            Route::Reject(status) => status.as_u16().to_string(),
        }
    }

    // covers: S08, S09, S10, S14
    #[test]
    fn method_and_path_determine_the_route() {
        let rows = [
            ("GET", "/config/worker", "pool worker"),
            ("HEAD", "/config/worker", "pool worker"),
            ("GET", "/config/worker?token=1", "pool worker"),
            ("GET", "/config/x/worker", "pool worker"),
            ("GET", "/config/worker/", "pool worker"),
            ("GET", "/config/", "pool config"),
            ("GET", "/config/x%2Fworker", "pool worker"),
            ("POST", "/config/worker", "405"),
            ("DELETE", "/config/worker", "405"),
            ("GET", "/healthz", "health"),
            ("HEAD", "/healthz", "health"),
            ("GET", "/livez", "live"),
            ("GET", "/readyz", "ready"),
            ("POST", "/healthz", "405"),
            ("GET", "/healthz/", "404"),
            ("GET", "/", "404"),
            ("HEAD", "/", "404"),
            ("POST", "/", "405"),
            ("GET", "/configs/worker", "404"),
            ("OPTIONS", "*", "405"),
            ("CONNECT", "host:1", "405"),
            ("GET", "/config", "see /config/"),
            ("POST", "/config", "see /config/"),
            ("GET", "//config/worker", "see /config/worker"),
            ("GET", "/config//worker?a=b", "see /config/worker?a=b"),
            ("GET", "/config/a/../worker/", "see /config/worker/"),
            ("GET", "/config/./worker", "see /config/worker"),
            ("GET", "/config/../../etc/passwd", "see /etc/passwd"),
            ("GET", "/a/..", "see /"),
            ("GET", "/config/%zz", "400"),
            ("GET", "/config/%ff", "400"),
            ("GET", "/config//a%0d%0ab", "see /config/a%0D%0Ab"),
        ];
        for (method, target, expected) in rows {
            assert_eq!(short(method, target), expected, "{method} {target}");
        }
    }
}
