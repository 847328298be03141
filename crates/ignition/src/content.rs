//! Inline contents of files: decoding of the data URL, and decompression.

use crate::{
    config::Resource,
    data_url::{self, DataUrlError},
    gzip::{self, GzipError},
};

/// Maximum number of bytes of decompressed contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentLimit(usize);

/// Contents that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The source is not a valid data URL.
    #[error("could not decode file content string")]
    DataUrl(#[source] DataUrlError),
    /// The contents are declared as gzip, but are not.
    #[error("could not create gzip reader")]
    NotGzip(#[source] GzipError),
    /// The compressed contents are corrupt or too large.
    #[error("failed decompressing")]
    Gzip(#[source] GzipError),
    /// The compression type is unknown.
    #[error("unsupported compression type {0:?}")]
    Compression(String),
}

impl ContentLimit {
    /// Forty times the largest config that a cluster can store, and small enough for any process.
    pub const DEFAULT: Self = Self(64 << 20);

    /// Returns a limit of `count` bytes.
    #[must_use]
    pub const fn bytes(count: usize) -> Self {
        Self(count)
    }
}

impl Default for ContentLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Resource {
    /// Decodes the contents of this resource, which must be inline.
    pub fn contents(&self, limit: ContentLimit) -> Result<Vec<u8>, ContentError> {
        decode(self.source.as_deref(), self.compression.as_deref(), limit)
    }
}

/// Decodes the inline contents of a resource with this source and compression.
///
/// Without a source the contents are empty, for any compression.
pub fn decode(
    source: Option<&str>,
    compression: Option<&str>,
    limit: ContentLimit,
) -> Result<Vec<u8>, ContentError> {
    let Some(url) = source else {
        return Ok(Vec::new());
    };
    let bytes = data_url::decode(url).map_err(ContentError::DataUrl)?;
    match compression {
        None | Some("") => Ok(bytes),
        Some("gzip") => gzip::decompress(&bytes, limit.0).map_err(|error| match error {
            GzipError::Header => ContentError::NotGzip(error),
            GzipError::NextHeader
            | GzipError::Corrupt
            | GzipError::Truncated
            | GzipError::Checksum
            | GzipError::TooLarge { .. } => ContentError::Gzip(error),
        }),
        Some(other) => Err(ContentError::Compression(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The output of `gzip -n` for "hi\n".
    const HI: &str = "data:;base64,H4sIAAAAAAAAA8vI5AIAenpv7QMAAAA=";

    #[test]
    fn errors_of_the_url_come_before_errors_of_the_compression() {
        let cases = [
            (None, Some("zstd"), Ok("")),
            (Some("data:,a"), None, Ok("a")),
            (Some("data:,a"), Some(""), Ok("a")),
            (Some(HI), Some("gzip"), Ok("hi\n")),
            (Some("x"), Some("zstd"), Err("could not decode file content string")),
            (Some("data:,a"), Some("zstd"), Err("unsupported compression type \"zstd\"")),
            (Some("data:,a"), Some("gzip"), Err("could not create gzip reader")),
            (Some("data:,a"), Some("GZIP"), Err("unsupported compression type \"GZIP\"")),
        ];
        for (source, compression, expected) in cases {
            let result = decode(source, compression, ContentLimit::DEFAULT);
            let result = result.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let result = result.map_err(|error| error.to_string());
            assert_eq!(
                result.as_deref().map_err(String::as_str),
                expected,
                "{source:?} {compression:?}"
            );
        }
    }

    #[test]
    fn contents_beyond_the_limit_are_rejected() {
        let resource = Resource {
            source: Some(HI.to_owned()),
            compression: Some("gzip".to_owned()),
            ..Resource::default()
        };
        assert_eq!(resource.contents(ContentLimit::bytes(3)).as_deref(), Ok(b"hi\n".as_slice()));
        let error = ContentError::Gzip(GzipError::TooLarge { limit: 2 });
        assert_eq!(resource.contents(ContentLimit::bytes(2)), Err(error));
    }
}
