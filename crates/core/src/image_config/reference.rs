//! Image references: `host[:port]/path[:tag][@digest]`.
//!
//! Compat: the grammar and the texts are those of containers/image (docker/reference).

use super::scope;

/// The reason why a text is no image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The text does not have the form of a reference.
    #[error("invalid reference format")]
    Format,
    /// The text has no name.
    #[error("repository name must have at least one component")]
    Empty,
    /// The name has upper-case letters.
    #[error("repository name must be lowercase")]
    UpperCase,
    /// The name has upper-case letters after its host.
    #[error("invalid reference format: repository name must be lowercase")]
    UpperCaseName,
    /// The name is too long.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// The name leaves out the registry.
    #[error("repository name must be canonical")]
    NotCanonical,
    /// The digest names an unknown algorithm.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// The digest has the wrong length.
    #[error("invalid checksum digest length")]
    DigestLength,
    /// The digest is no lower-case hexadecimal number.
    #[error("invalid checksum digest format")]
    DigestFormat,
    /// The name looks like an identifier of an image.
    #[error("invalid repository name, cannot specify 64-byte hexadecimal strings")]
    Identifier,
}

const DEFAULT_HOST: &str = "docker.io";
const MAX_NAME: usize = 255;

/// An image reference, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    name: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl Reference {
    /// Parses a reference, whose name may leave out the registry.
    pub(super) fn parse(text: &str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        let Some(found) = split(text) else {
            let lower = text.to_lowercase();
            let is_upper = split(&lower).is_some();
            return Err(if is_upper { ReferenceError::UpperCase } else { ReferenceError::Format });
        };
        if found.name.len() > MAX_NAME {
            return Err(ReferenceError::TooLong);
        }
        if let Some(digest) = &found.digest {
            check_digest(digest)?;
        }
        Ok(found)
    }

    /// Parses a reference and adds the default registry to a name without one.
    pub(super) fn normalized(text: &str) -> Result<Self, ReferenceError> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 64 && text.bytes().all(is_hex) {
            return Err(ReferenceError::Identifier);
        }
        let (host, rest) = split_host(text);
        let name = rest.split(':').next().unwrap_or_default();
        if name.to_lowercase() != name {
            return Err(ReferenceError::UpperCaseName);
        }
        Self::parse(&format!("{host}/{rest}"))
    }

    /// Parses a reference whose name has its registry.
    pub(super) fn canonical(text: &str) -> Result<Self, ReferenceError> {
        let found = Self::normalized(text)?;
        if found.to_string() == text { Ok(found) } else { Err(ReferenceError::NotCanonical) }
    }

    /// Returns the name, without tag and digest.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the reference has a digest.
    pub(super) fn has_digest(&self) -> bool {
        self.digest.is_some()
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Returns true for a repository's name, with or without its registry.
pub(super) fn is_name(text: &str) -> bool {
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let starts = scope::is_path_component(first) || (!rest.is_empty() && scope::is_host(first));
    starts && rest.into_iter().all(scope::is_path_component)
}

/// Takes a reference apart; `None` if it does not have the form of one.
fn split(text: &str) -> Option<Reference> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) if is_digest(digest) => (rest, Some(digest)),
        Some(_) => return None,
        None => (text, None),
    };
    let path = rest.rfind('/').map_or(0, |slash| slash + 1);
    let colon = rest.get(path..)?.find(':').map(|colon| path + colon);
    let (name, tag) = match colon {
        Some(colon) => (rest.get(..colon)?, Some(rest.get(colon + 1..)?)),
        None => (rest, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) {
        return None;
    }
    let owned = |text: &str| text.to_owned();
    Some(Reference { name: owned(name), tag: tag.map(owned), digest: digest.map(owned) })
}

fn split_host(text: &str) -> (&str, String) {
    let (host, rest) = match text.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
        _ => (DEFAULT_HOST, text),
    };
    let host = if host == "index.docker.io" { DEFAULT_HOST } else { host };
    if host == DEFAULT_HOST && !rest.contains('/') {
        return (host, format!("library/{rest}"));
    }
    (host, rest.to_owned())
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    bytes.next().is_some_and(is_word)
        && tag.len() <= 128
        && bytes.all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let is_word = |word: &str| {
        word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_word)
        && hex.len() >= 32
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), ReferenceError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(ReferenceError::DigestFormat)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ReferenceError::DigestAlgorithm),
    };
    if hex.len() != length {
        return Err(ReferenceError::DigestLength);
    }
    if hex.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(ReferenceError::DigestFormat);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_name_is_canonical() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let release = format!("quay.io/ns/release@{digest}");
        assert_eq!(
            Reference::canonical(&release).map(|found| found.name().to_owned()).as_deref(),
            Ok("quay.io/ns/release")
        );
        for (text, error) in [
            ("", ReferenceError::Format),
            ("bad::", ReferenceError::Format),
            ("ocp-release", ReferenceError::NotCanonical),
            ("m.test", ReferenceError::NotCanonical),
            ("quay.io/Ns/x", ReferenceError::UpperCaseName),
            ("quay.io/ns/x@sha256:abc", ReferenceError::Format),
        ] {
            assert_eq!(Reference::canonical(text), Err(error), "{text:?}");
        }
        let tagged = Reference::canonical("localhost:5000/a/b:v1").expect("a reference");
        assert_eq!((tagged.name(), tagged.has_digest()), ("localhost:5000/a/b", false));
        assert_eq!(
            Reference::canonical("docker.io/library/x").map(|found| found.to_string()).as_deref(),
            Ok("docker.io/library/x")
        );
    }
}
