//! The pull secret of the cluster, as templates embed it.

use mco_api::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Type of a Secret with registry credentials.
const TYPE: &str = "kubernetes.io/dockerconfigjson";

/// A pull secret that cannot be used. The texts never contain its data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// The Secret has another type. Compat: the reference's text.
    #[error("expected secret type {TYPE} found {0}")]
    Type(String),
    /// The Secret has no data.
    #[error("pull secret has no key .dockerconfigjson")]
    NoData,
    /// The data are no JSON object.
    #[error(
        "key .dockerconfigjson of the pull secret is not a JSON object with registry credentials"
    )]
    Json,
}

/// Credentials of the registry that runs on the control plane machines. They are not printable.
#[derive(Clone, Copy)]
pub struct RegistryLogin<'l> {
    /// Base domain of the cluster.
    pub base_domain: &'l str,
    /// Password of the user `openshift`.
    pub password: &'l str,
}

/// Returns the credentials of a Secret as JSON without white space.
pub fn compact(kind: &str, data: Option<&[u8]>) -> Result<String, PullSecretError> {
    if kind != TYPE {
        return Err(PullSecretError::Type(kind.to_owned()));
    }
    let data = data.ok_or(PullSecretError::NoData)?;
    let text = std::str::from_utf8(data).map_err(|_| PullSecretError::Json)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|_| PullSecretError::Json)?;
    if !text.trim_start().starts_with('{') {
        return Err(PullSecretError::Json);
    }
    let (mut in_string, mut escaped) = (false, false);
    let kept = text.chars().filter(|c| {
        let keep = in_string || !c.is_ascii_whitespace();
        in_string ^= *c == '"' && !escaped;
        escaped = in_string && *c == '\\' && !escaped;
        keep
    });
    Ok(kept.collect())
}

/// Adds the credentials of the registry on the control plane machines to a compact pull secret.
///
/// Compat: user, hosts and port are the reference's.
pub fn with_login(secret: &str, login: RegistryLogin<'_>) -> Result<String, PullSecretError> {
    let mut secret: Value = serde_json::from_str(secret).map_err(|_| PullSecretError::Json)?;
    let members = secret.as_object_mut().ok_or(PullSecretError::Json)?;
    let auths = members.entry("auths").or_insert_with(|| json!({}));
    let auths = auths.as_object_mut().ok_or(PullSecretError::Json)?;
    let auth = Bytes::from(format!("openshift:{}", login.password).into_bytes());
    for host in [format!("api-int.{}:22625", login.base_domain), "localhost:22625".to_owned()] {
        auths.insert(host, json!({"auth": auth}));
    }
    Ok(secret.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: TPL-6
    #[test]
    fn a_pull_secret_is_checked_compacted_and_completed() {
        let text =
            b"{ \"auths\": {\n\"a.test\": {\"auth\": \"YTpi\", \"note\": \"two  words \\\" \"}}}\n";
        let secret = compact(TYPE, Some(text)).unwrap();
        let plain = r#"{"auths":{"a.test":{"auth":"YTpi","note":"two  words \" "}}}"#;
        assert_eq!(secret, plain);
        let wrong = compact("Opaque", Some(text)).unwrap_err();
        let expected = "expected secret type kubernetes.io/dockerconfigjson found Opaque";
        assert_eq!(wrong.to_string(), expected);
        assert_eq!(compact(TYPE, None), Err(PullSecretError::NoData));
        for data in [&b"[]"[..], b"{", b"\xff", b""] {
            assert_eq!(compact(TYPE, Some(data)), Err(PullSecretError::Json));
        }
        let login = RegistryLogin { base_domain: "c.test", password: "word" };
        let all: Value = serde_json::from_str(&with_login(&secret, login).unwrap()).unwrap();
        let auth = json!({"auth": "b3BlbnNoaWZ0OndvcmQ="});
        assert_eq!(all["auths"]["api-int.c.test:22625"], auth);
        assert_eq!(all["auths"]["localhost:22625"], auth);
        assert_eq!(all["auths"]["a.test"]["auth"], "YTpi");
    }
}
