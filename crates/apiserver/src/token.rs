//! Tokens of service accounts: JSON Web Tokens, signed by a key of the process.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use crate::{clock, object};

/// Issuer and audience of the tokens.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// Signs tokens and verifies them.
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    /// Creates a key from random bits.
    pub(crate) fn new(bits: [u128; 2]) -> Self {
        let [first, second] = bits.map(u128::to_be_bytes);
        Self(hmac::Key::new(hmac::HMAC_SHA256, &[first, second].concat()))
    }

    /// Returns a signed token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(claims));
        let signature = hmac::sign(&self.0, text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// Returns the claims of a token that this key signed and that is valid now.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, text.as_bytes(), &signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(text.split_once('.')?.1).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let expires = claims.get("exp")?.as_i64()?;
        (now.as_second() < expires).then_some(claims)
    }
}

/// Objects that a token is bound to, besides its account: a pod and its node, or another object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    /// Kind in lower case and the object.
    pub(crate) objects: Vec<(&'static str, Value)>,
}

/// Returns the claims of a new token of an account.
pub(crate) fn claims(
    account: &Value,
    bound: &Bound,
    audiences: &Value,
    seconds: i64,
    now: Timestamp,
    bits: u128,
) -> Value {
    let (namespace, name) = (object::namespace(account), object::name(account));
    let reference =
        |object: &Value| json!({"name": object::name(object), "uid": object::meta(object, "uid")});
    let mut private = json!({"namespace": namespace, "serviceaccount": reference(account)});
    for (kind, one) in &bound.objects {
        object::map_of(&mut private).insert((*kind).to_owned(), reference(one));
    }
    let issued = now.as_second();
    json!({"aud": audiences, "exp": issued + seconds, "iat": issued, "iss": ISSUER,
        "jti": clock::uuid(bits), "kubernetes.io": private, "nbf": issued,
        "sub": format!("system:serviceaccount:{namespace}:{name}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let account = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let now = at("2026-01-01T00:00:00Z");
        let claims = claims(&account, &Bound::default(), &json!([ISSUER]), 600, now, 7);
        let key = TokenKey::new([1, 2]);
        let token = key.sign(&claims);
        assert_eq!(key.verify(&token, now), Some(claims.clone()));
        assert_eq!(claims["sub"], "system:serviceaccount:n:a");
        assert_eq!(key.verify(&token, at("2026-01-01T00:10:00Z")), None);
        assert_eq!(TokenKey::new([1, 3]).verify(&token, now), None);
        let mut changed = token.clone();
        changed.replace_range(30..31, if token.get(30..31) == Some("A") { "B" } else { "A" });
        assert_eq!(key.verify(&changed, now), None);
        assert_eq!(key.verify("", now), None);
    }
}
