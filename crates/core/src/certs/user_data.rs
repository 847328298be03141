//! The user data of a machine that the Machine API creates: a stub Ignition config with the URL of
//! the real config and the authorities to trust for that request.

use mco_ignition::data_url;
use serde_json::{Value, json};

/// The result of updating the authorities in user data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserData {
    /// The user data is no Ignition config.
    NotIgnition,
    /// The user data has the current authorities already.
    Current,
    /// The user data trusts several authorities, and none is marked as the config server's.
    ///
    /// Compat: such user data stays unchanged (pkg/controller/certrotation).
    SeveralAuthorities,
    /// The user data names no authority.
    NoAuthority,
    /// The new user data.
    Replaced(Vec<u8>),
}

/// Puts the authorities of `bundle` (PEM) into user data.
#[must_use]
pub fn set_authorities(user_data: &[u8], bundle: &str) -> UserData {
    let Ok(mut config) = serde_json::from_slice::<Value>(user_data) else {
        return UserData::NotIgnition;
    };
    if !config.pointer("/ignition/version").is_some_and(Value::is_string) {
        return UserData::NotIgnition;
    }
    let path = "/ignition/security/tls/certificateAuthorities";
    let Some(Value::Array(authorities)) = config.pointer_mut(path) else {
        return UserData::NoAuthority;
    };
    let [Value::Object(authority)] = authorities.as_mut_slice() else {
        return if authorities.is_empty() {
            UserData::NoAuthority
        } else {
            UserData::SeveralAuthorities
        };
    };
    let source = json!(data_url::encode_base64(bundle.as_bytes()));
    if authority.get("source") == Some(&source) {
        return UserData::Current;
    }
    authority.insert("source".to_owned(), source);
    serde_json::to_vec(&config).map_or(UserData::NotIgnition, UserData::Replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CERT-3
    #[test]
    fn only_a_single_authority_is_replaced() {
        let config = |authorities: Value| {
            let tls = json!({"tls": {"certificateAuthorities": authorities}});
            json!({"ignition": {"version": "3.2.0", "security": tls,
                "config": {"merge": [{"source": "https://a.test:22623/config/worker"}]}}})
        };
        let old = config(json!([{"source": "data:,old", "verification": {}}]));
        let UserData::Replaced(new) = set_authorities(old.to_string().as_bytes(), "new") else {
            panic!("the authority must be replaced")
        };
        let expected = data_url::encode_base64(b"new");
        let wanted = config(json!([{"source": expected, "verification": {}}]));
        assert_eq!(serde_json::from_slice::<Value>(&new).unwrap(), wanted);
        assert_eq!(set_authorities(&new, "new"), UserData::Current);
        let cases = [
            (
                config(json!([{"source": "a"}, {"source": "b"}])).to_string(),
                UserData::SeveralAuthorities,
            ),
            (config(json!([])).to_string(), UserData::NoAuthority),
            (json!({"ignition": {"version": "3.2.0"}}).to_string(), UserData::NoAuthority),
            ("#!/bin/sh".to_owned(), UserData::NotIgnition),
            ("[]".to_owned(), UserData::NotIgnition),
            ("{}".to_owned(), UserData::NotIgnition),
        ];
        for (text, expected) in cases {
            assert_eq!(set_authorities(text.as_bytes(), "new"), expected, "{text}");
        }
    }
}
