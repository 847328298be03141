//! Contents of files that a config names by an address instead of holding them.
//!
//! They are fetched once, when the config is rendered, checked, and put into the rendered config, so
//! that what a node gets cannot change behind the config's back. Which addresses these are, whether
//! one may be asked, and whether what came is what was meant, is decided here; asking is not.

pub mod address;
pub mod proxy;

use std::fmt;

use mco_ignition::{
    config::{File, Resource},
    content::{self, ContentError, Limit},
    data_url,
};
use ring::digest::{self, SHA256, SHA512};

/// The most bytes that the contents of one file may have: what a Secret, which keeps them, can hold.
pub const MAX_CONTENTS: usize = 1 << 20;

/// Contents to fetch.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The MachineConfig that names the address.
    pub config: String,
    /// The file that the contents are for.
    pub path: String,
    /// Where they are.
    pub url: String,
    /// Headers to send, with their values.
    pub headers: Vec<(String, String)>,
    hash: Option<String>,
    compression: Option<String>,
}

/// Why contents cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// They are not what the config says they are.
    #[error("the contents of {place} have the hash {found}, verification.hash says {wanted}")]
    Hash {
        /// What was fetched.
        place: String,
        /// The hash of what came.
        found: String,
        /// The hash that should have come.
        wanted: String,
    },
    /// There is no such hash.
    #[error("{place}: verification.hash {hash:?} is neither sha256 nor sha512")]
    UnknownHash {
        /// What was fetched.
        place: String,
        /// The hash in the config.
        hash: String,
    },
    /// They are not compressed as the config says.
    #[error("the contents of {place} cannot be read")]
    Contents {
        /// What was fetched.
        place: String,
        /// What is wrong with them.
        source: ContentError,
    },
    /// They do not fit into an object of the cluster.
    #[error(
        "the contents of {place} have more than {max} bytes; make the file smaller, or put it into the OS image",
        max = MAX_CONTENTS
    )]
    TooLarge {
        /// What was fetched.
        place: String,
    },
}

/// Whether a resource is somewhere that can be asked over HTTP.
pub(super) fn is_remote(resource: &Resource) -> bool {
    let Some(source) = &resource.source else { return false };
    source.split_once(':').is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

/// What to fetch for a file, if its contents are somewhere else; `config` names the address.
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
    /// Whether the contents are said to be compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }

    /// A name for what this asks for, the same as long as the MachineConfig, whose uid is `uid`,
    /// asks for the same. Forty hexadecimal digits.
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

    /// The contents as a data URL, if they are what they should be.
    pub fn check(&self, bytes: &[u8]) -> Result<String, RemoteError> {
        let place = || self.to_string();
        if bytes.len() > MAX_CONTENTS {
            return Err(RemoteError::TooLarge { place: place() });
        }
        let url = data_url::encode_base64(bytes);
        let plain = content::decode(Some(&url), self.compression.as_deref(), Limit::DEFAULT)
            .map_err(|source| RemoteError::Contents { place: place(), source })?;
        // Ignition's rule: a hash is that of the contents once decompressed.
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

/// An address without what may be secret in it: user, password, query and fragment.
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
