//! Remote contents of files, which a config names by URL.
//!
//! The controller fetches them once, when the config is rendered, verifies them and embeds them
//! into the rendered config, so that the contents of a node cannot change without a new config.
//! This module selects the URLs, decides which addresses are allowed and verifies the contents; it
//! does not fetch.

pub mod address;
pub mod proxy;

use std::fmt;

use mco_ignition::{
    config::{File, Resource},
    content::{self, ContentError, ContentLimit},
    data_url,
};
use ring::digest::{self, SHA256, SHA512};

/// Maximum size of one file's contents, in bytes: the limit of a Secret, which caches them.
pub const MAX_CONTENTS: usize = 1 << 20;

/// Remote contents to fetch.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// MachineConfig that names the URL.
    pub config: String,
    /// Path of the file.
    pub path: String,
    /// URL of the contents.
    pub url: String,
    /// HTTP headers to send.
    pub headers: Vec<(String, String)>,
    hash: Option<String>,
    compression: Option<String>,
}

/// The reason why contents cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The hash does not match.
    #[error("the contents of {place} have the hash {found}, verification.hash says {wanted}")]
    Hash {
        /// Description of the source.
        place: String,
        /// Hash of the fetched contents.
        found: String,
        /// Hash in the config.
        wanted: String,
    },
    /// The hash algorithm is not supported.
    #[error("{place}: verification.hash {hash:?} is neither sha256 nor sha512")]
    UnknownHash {
        /// Description of the source.
        place: String,
        /// Hash in the config.
        hash: String,
    },
    /// The contents cannot be decompressed.
    #[error("failed to decode the contents of {place}")]
    Contents {
        /// Description of the source.
        place: String,
        /// Decoding error.
        source: ContentError,
    },
    /// The contents exceed [`MAX_CONTENTS`].
    #[error(
        "the contents of {place} have more than {max} bytes; make the file smaller, or put it into the OS image",
        max = MAX_CONTENTS
    )]
    TooLarge {
        /// Description of the source.
        place: String,
    },
}

/// Returns true if a resource has an HTTP or HTTPS URL.
pub(super) fn is_remote(resource: &Resource) -> bool {
    let Some(source) = &resource.source else { return false };
    source.split_once(':').is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

/// Returns the source of a file's remote contents, if any; `config` is the MachineConfig that names
/// the URL.
pub(super) fn source(file: &File, config: &str) -> Option<Source> {
    let contents = &file.contents;
    let url = contents.source.clone().filter(|_| is_remote(contents))?;
    let headers = contents.http_headers.iter();
    let headers = headers.filter_map(|header| Some((header.name.clone(), header.value.clone()?)));
    Some(Source {
        config: config.to_owned(),
        path: file.path.clone(),
        url,
        headers: headers.collect(),
        hash: contents.verification.hash.clone(),
        compression: contents.compression.clone().filter(|compression| !compression.is_empty()),
    })
}

impl Source {
    /// Returns the source of a file at a URL, without headers and verification.
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self {
            config: String::new(),
            path: String::new(),
            url: url.to_owned(),
            headers: Vec::new(),
            hash: None,
            compression: None,
        }
    }

    /// Returns true if the contents are declared as compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }

    /// Returns a cache key of forty hexadecimal digits. It stays the same while the MachineConfig,
    /// whose uid is `uid`, names the same source.
    #[must_use]
    pub fn key(&self, uid: &str) -> String {
        let mut context = digest::Context::new(&SHA256);
        let mut add = |text: &str| {
            context.update(text.len().to_string().as_bytes());
            context.update(b":");
            context.update(text.as_bytes());
        };
        add(uid);
        add(&self.url);
        for (name, value) in &self.headers {
            add(name);
            add(value);
        }
        add(self.hash.as_deref().unwrap_or_default());
        add(self.compression.as_deref().unwrap_or_default());
        hex(context.finish().as_ref()).chars().take(40).collect()
    }

    /// Verifies the contents and returns them as a data URL.
    pub fn check(&self, bytes: &[u8]) -> Result<String, RemoteError> {
        let place = || self.to_string();
        if bytes.len() > MAX_CONTENTS {
            return Err(RemoteError::TooLarge { place: place() });
        }
        let url = data_url::encode_base64(bytes);
        let plain = content::decode(Some(&url), self.compression.as_deref(), ContentLimit::DEFAULT)
            .map_err(|source| RemoteError::Contents { place: place(), source })?;
        // Ignition's rule: the hash covers the decompressed contents.
        let Some(wanted) = &self.hash else { return Ok(url) };
        let found = match wanted.split_once('-') {
            Some(("sha512", _)) => format!("sha512-{}", sum(&SHA512, &plain)),
            Some(("sha256", _)) => format!("sha256-{}", sum(&SHA256, &plain)),
            _ => return Err(RemoteError::UnknownHash { place: place(), hash: wanted.clone() }),
        };
        if found.eq_ignore_ascii_case(wanted) {
            Ok(url)
        } else {
            Err(RemoteError::Hash { place: place(), found, wanted: wanted.clone() })
        }
    }
}

fn sum(algorithm: &'static digest::Algorithm, bytes: &[u8]) -> String {
    hex(digest::digest(algorithm, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns a URL without its secret parts: user, password, query and fragment.
#[must_use]
pub fn shown(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => bare.to_owned(),
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (file {} of MachineConfig {})", shown(&self.url), self.path, self.config)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests;
