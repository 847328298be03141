//! The first config of a machine that the cluster orders: where its real config is, and whom to trust
//! when asking for it.

use mco_ignition::data_url;
use serde_json::{Value, json};

/// What becomes of a machine's first config when the authorities change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserData {
    /// It is none.
    Foreign,
    /// It trusts the authorities already.
    Current,
    /// It trusts several, and nobody knows which of them is ours.
    ///
    /// Compat: such a config is left alone (pkg/controller/certrotation).
    Several,
    /// It trusts nobody in particular.
    Unnamed,
    /// It is this now.
    Replaced(Vec<u8>),
}

/// Puts the authorities, as PEM, into a machine's first config.
#[must_use]
pub fn trust(user_data: &[u8], bundle: &str) -> UserData {
    let Ok(mut config) = serde_json::from_slice::<Value>(user_data) else {
        return UserData::Foreign;
    };
    if !config.pointer("/ignition/version").is_some_and(Value::is_string) {
        return UserData::Foreign;
    }
    let path = "/ignition/security/tls/certificateAuthorities";
    let Some(Value::Array(authorities)) = config.pointer_mut(path) else {
        return UserData::Unnamed;
    };
    let [Value::Object(authority)] = authorities.as_mut_slice() else {
        return if authorities.is_empty() { UserData::Unnamed } else { UserData::Several };
    };
    let source = json!(data_url::encode_base64(bundle.as_bytes()));
    if authority.get("source") == Some(&source) {
        return UserData::Current;
    }
    authority.insert("source".to_owned(), source);
    serde_json::to_vec(&config).map_or(UserData::Foreign, UserData::Replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CERT-3
    #[test]
    fn only_the_one_authority_is_replaced() {
        let config = |authorities: Value| {
            let tls = json!({"tls": {"certificateAuthorities": authorities}});
            json!({"ignition": {"version": "3.2.0", "security": tls,
                "config": {"merge": [{"source": "https://a.test:22623/config/worker"}]}}})
        };
        let old = config(json!([{"source": "data:,old", "verification": {}}]));
        let UserData::Replaced(new) = trust(old.to_string().as_bytes(), "new") else {
            panic!("it is replaced")
        };
        let expected = data_url::encode_base64(b"new");
        let wanted = config(json!([{"source": expected, "verification": {}}]));
        assert_eq!(serde_json::from_slice::<Value>(&new).unwrap(), wanted);
        assert_eq!(trust(&new, "new"), UserData::Current);
        let cases = [
            (config(json!([{"source": "a"}, {"source": "b"}])).to_string(), UserData::Several),
            (config(json!([])).to_string(), UserData::Unnamed),
            (json!({"ignition": {"version": "3.2.0"}}).to_string(), UserData::Unnamed),
            ("#!/bin/sh".to_owned(), UserData::Foreign),
            ("[]".to_owned(), UserData::Foreign),
            ("{}".to_owned(), UserData::Foreign),
        ];
        for (text, expected) in cases {
            assert_eq!(trust(text.as_bytes(), "new"), expected, "{text}");
        }
    }
}
