//! The text of a join token, its hash, and the Secret that keeps it.

use std::{collections::BTreeMap, fmt, hint::black_box};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use mco_api::join_token::{
    JOINS_MEMBER, Join, JoinToken, NAMESPACE, SECRET_PREFIX, SECRET_TYPE, TOKEN_MEMBER,
};
use ring::digest;

/// Number of characters of an id.
pub const ID_LENGTH: usize = 8;
/// Number of characters of a secret: 165 bits.
pub const SECRET_LENGTH: usize = 32;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A token as a machine presents it. Its secret cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    id: String,
    secret: String,
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenText").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A text that is not a token. The text is not part of the error, because it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a join token: expected 8 characters, a dot and 32 characters, all of them a-z or 0-9, as \
     `mco token create` prints it"
)]
pub struct TokenTextError;

impl TokenText {
    /// Parses `<id>.<secret>`.
    pub fn parse(text: &str) -> Result<Self, TokenTextError> {
        let (id, secret) = text.split_once('.').ok_or(TokenTextError)?;
        let fits = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte))
        };
        if fits(id, ID_LENGTH) && fits(secret, SECRET_LENGTH) {
            Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
        } else {
            Err(TokenTextError)
        }
    }

    /// Makes a token. `random` fills a slice with bytes from the system's generator, and may fail.
    pub fn generate<E>(mut random: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut text = |length| {
            let mut made = String::with_capacity(length);
            while made.len() < length {
                let mut bytes = [0_u8; 64];
                random(&mut bytes)?;
                // Bytes from 252 on would make the first four characters more frequent.
                let fair = bytes.iter().filter(|byte| **byte < 252);
                let chars = fair.filter_map(|byte| ALPHABET.get(usize::from(byte % 36)));
                made.extend(chars.take(length - made.len()).map(|byte| char::from(*byte)));
            }
            Ok(made)
        };
        Ok(Self { id: text(ID_LENGTH)?, secret: text(SECRET_LENGTH)? })
    }

    /// Returns the id, which is not secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the whole token, secret included, for the one place that shows it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// Returns the hash that is kept.
    #[must_use]
    pub fn secret_sha256(&self) -> String {
        sha256(&self.secret)
    }

    /// Returns true if `stored` is the token of this text. Without a stored token the same work is
    /// done, so that the time of an answer does not tell which ids exist.
    #[must_use]
    pub fn matches(&self, stored: Option<&JoinToken>) -> bool {
        // The hash of no text: no token has it.
        let nothing = "0".repeat(64);
        let expected = stored.map_or(nothing.as_str(), |token| token.secret_sha256.as_str());
        let same = same_bytes(self.secret_sha256().as_bytes(), expected.as_bytes());
        same && stored.is_some()
    }
}

/// Returns the SHA-256 of a text, in hexadecimal.
#[must_use]
pub fn sha256(text: &str) -> String {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    hash.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Compares two texts in a time that depends only on their lengths.
fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    let different = left.iter().zip(right).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    left.len() == right.len() && different == 0
}

/// A token with the machines that used it, as its Secret has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// Id of the token.
    pub id: String,
    /// The part that does not change.
    pub token: JoinToken,
    /// Machines that used the token, in the order of their first requests.
    pub joins: Vec<Join>,
}

/// A Secret that is not a token.
#[derive(Debug, thiserror::Error)]
pub enum StoredTokenError {
    /// The type is another one.
    #[error("Secret {name} is of another type than {SECRET_TYPE}")]
    Type {
        /// Name of the Secret.
        name: String,
    },
    /// The name is not that of a token.
    #[error("Secret {name} is not named {SECRET_PREFIX}<id>")]
    Name {
        /// Name of the Secret.
        name: String,
    },
    /// A member cannot be read. Its contents are not part of the error.
    #[error(
        "member {member} of Secret {name} cannot be read; revoke the token with `mco token revoke`"
    )]
    Member {
        /// Name of the Secret.
        name: String,
        /// The member.
        member: &'static str,
    },
}

/// Returns the name of the Secret of a token.
#[must_use]
pub fn secret_name(id: &str) -> String {
    format!("{SECRET_PREFIX}{id}")
}

impl StoredToken {
    /// Reads a token from its Secret.
    pub fn read(secret: &Secret) -> Result<Self, StoredTokenError> {
        let name = secret.metadata.name.clone().unwrap_or_default();
        if secret.type_.as_deref() != Some(SECRET_TYPE) {
            return Err(StoredTokenError::Type { name });
        }
        let Some(id) = name.strip_prefix(SECRET_PREFIX).map(str::to_owned) else {
            return Err(StoredTokenError::Name { name });
        };
        let none = BTreeMap::new();
        let data = secret.data.as_ref().unwrap_or(&none);
        let unreadable = |member| StoredTokenError::Member { name: name.clone(), member };
        let token = data.get(TOKEN_MEMBER).and_then(|text| serde_json::from_slice(&text.0).ok());
        let token = token.ok_or_else(|| unreadable(TOKEN_MEMBER))?;
        let joins = match data.get(JOINS_MEMBER) {
            Some(text) => serde_json::from_slice(&text.0).map_err(|_| unreadable(JOINS_MEMBER))?,
            None => Vec::new(),
        };
        Ok(Self { id, token, joins })
    }

    /// Builds the Secret of a new token.
    #[must_use]
    pub fn secret(&self) -> Secret {
        let mut secret = Secret { type_: Some(SECRET_TYPE.to_owned()), ..Secret::default() };
        secret.metadata.name = Some(secret_name(&self.id));
        secret.metadata.namespace = Some(NAMESPACE.to_owned());
        let token = serde_json::to_vec(&self.token).expect("a token has only texts and numbers");
        secret.data = Some(BTreeMap::from([
            (TOKEN_MEMBER.to_owned(), ByteString(token)),
            (JOINS_MEMBER.to_owned(), ByteString(joins_member(&self.joins))),
        ]));
        secret
    }
}

/// Returns the member of the Secret that records the joins.
#[must_use]
pub fn joins_member(joins: &[Join]) -> Vec<u8> {
    serde_json::to_vec(joins).expect("a join has only texts")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::join::fixture::{stored, text};

    #[test]
    fn only_the_printed_form_is_a_token() {
        let secret = "0123456789abcdefghijklmnopqrstuv";
        let rows = [
            (format!("abcdefgh.{secret}"), true),
            (format!("abcdefg.{secret}"), false),
            (format!("abcdefghi.{secret}"), false),
            (format!("Abcdefgh.{secret}"), false),
            (format!("abcdefgh.{secret}0"), false),
            (format!("abcdefgh.{secret}\n"), false),
            (format!("abcdefgh-{secret}"), false),
            (format!("äbcdefg.{secret}"), false),
            (format!("../../gh.{secret}"), false),
            (String::new(), false),
            (".".to_owned(), false),
        ];
        for (text, expected) in rows {
            let parsed = TokenText::parse(&text);
            assert_eq!(parsed.is_ok(), expected, "{text:?}");
            if let Ok(token) = parsed {
                assert_eq!(token.reveal(), text);
            }
        }
    }

    #[test]
    fn a_generated_token_is_a_token_and_uses_all_characters_alike() {
        let mut state = 1_u32;
        let mut count = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = state.to_be_bytes()[0];
            }
            Ok::<_, Infallible>(())
        };
        let mut seen = BTreeMap::<char, usize>::new();
        for _ in 0..900 {
            let Ok(token) = TokenText::generate(&mut count);
            assert_eq!(TokenText::parse(&token.reveal()), Ok(token.clone()));
            for letter in token.secret.chars() {
                *seen.entry(letter).or_default() += 1;
            }
        }
        assert_eq!(seen.len(), 36);
        let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
        assert!(most * 4 < least * 5, "{seen:?}");
        assert_eq!(TokenText::generate(|_| Err("no entropy")), Err("no entropy"));
    }

    #[test]
    fn a_secret_is_never_printed() {
        let shown = format!("{:?}", text(1));
        assert!(shown.contains("token001") && !shown.contains("0000000000"), "{shown}");
    }

    #[test]
    fn only_the_right_secret_matches() {
        let token = stored(1, |_| {});
        assert!(text(1).matches(Some(&token.token)));
        assert!(!text(2).matches(Some(&token.token)));
        assert!(!text(1).matches(None));
        let mut empty = token.token.clone();
        empty.secret_sha256 = String::new();
        assert!(!text(1).matches(Some(&empty)), "a damaged Secret admits nobody");
        assert_eq!(
            sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn a_token_is_read_back_from_its_secret() {
        let token = stored(1, |token| token.description = "rack 4".to_owned());
        let secret = token.secret();
        assert_eq!(StoredToken::read(&secret).unwrap(), token);
        let raw = serde_json::to_string(&secret).unwrap();
        assert!(!raw.contains(&text(1).secret), "only the hash is kept");

        let mut other = secret.clone();
        other.type_ = Some("Opaque".to_owned());
        assert!(matches!(StoredToken::read(&other), Err(StoredTokenError::Type { .. })));
        let mut other = secret.clone();
        other.metadata.name = Some("pull-secret".to_owned());
        assert!(matches!(StoredToken::read(&other), Err(StoredTokenError::Name { .. })));
        for member in [TOKEN_MEMBER, JOINS_MEMBER] {
            let mut other = secret.clone();
            let data = other.data.as_mut().unwrap();
            data.insert(member.to_owned(), ByteString(b"{".to_vec()));
            let error = StoredToken::read(&other).unwrap_err().to_string();
            assert!(error.contains(member) && error.contains("mco token revoke"), "{error}");
        }
    }
}
