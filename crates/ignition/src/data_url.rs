//! Data URLs (RFC 2397), which hold the inline contents of files.
//!
//! Compat: a URL is accepted or rejected exactly as by the reference's decoder
//! (github.com/vincent-petithory/dataurl), because a config that only one of the two accepts would
//! be applied by half. The media type is checked and otherwise ignored.

mod header;
mod media_type;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use self::header::Encoding;
use crate::scan;

/// Base64 with the standard alphabet and mandatory padding; the bits beyond the last byte may have
/// any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// An invalid data URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataUrlError {
    /// The URL does not start with `data:`.
    #[error("missing data prefix")]
    Prefix,
    /// The URL has no comma before the data.
    #[error("missing comma before data")]
    Comma,
    /// The media type is malformed, or of an unknown kind.
    #[error("invalid media type")]
    MediaType,
    /// A parameter is not `name=value`.
    #[error("invalid media type parameter")]
    Parameter,
    /// The encoding before the comma is not `base64`.
    #[error("expected base64, got {0}")]
    Encoding(String),
    /// The data contain a character that must be escaped, or that is outside the base64 alphabet.
    #[error("invalid data character")]
    Character,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("invalid percent escape")]
    Escape,
    /// The base64 data are malformed or have incomplete padding.
    #[error("illegal base64 data")]
    Base64,
}

/// Decodes the bytes of `url`.
pub fn decode(url: &str) -> Result<Vec<u8>, DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (encoding, data) = header::parse(rest)?;
    match encoding {
        Encoding::Percent if is_percent_data(data) => unescape(data).ok_or(DataUrlError::Escape),
        Encoding::Base64 if is_base64(data) => decode_base64(data),
        Encoding::Percent | Encoding::Base64 => Err(DataUrlError::Character),
    }
}

/// Checks that [`decode`] would succeed, without allocating the bytes.
pub fn check(url: &str) -> Result<(), DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (encoding, data) = header::parse(rest)?;
    match encoding {
        Encoding::Base64 if is_plain_base64(data) => Ok(()),
        Encoding::Percent if !is_percent_data(data) => Err(DataUrlError::Character),
        Encoding::Base64 if !is_base64(data) => Err(DataUrlError::Character),
        Encoding::Percent if !escapes_are_complete(data) => Err(DataUrlError::Escape),
        Encoding::Base64 if !padding_is_complete(data) => Err(DataUrlError::Base64),
        Encoding::Percent | Encoding::Base64 => Ok(()),
    }
}

/// Returns true if two hexadecimal digits follow every percent sign.
///
/// No branch depends on the data, so that the compiler can vectorise the loop.
fn escapes_are_complete(data: &str) -> bool {
    let data = data.as_bytes();
    let is_hex = |byte: u8| (byte.wrapping_sub(b'0') < 10) | ((byte | 0x20).wrapping_sub(b'a') < 6);
    let (second, third) = (data.get(1..).unwrap_or_default(), data.get(2..).unwrap_or_default());
    let whole = data.iter().zip(second).zip(third).fold(true, |whole, ((sign, high), low)| {
        whole & ((*sign != b'%') | (is_hex(*high) & is_hex(*low)))
    });
    let cut_off = data.iter().rev().take(2).any(|byte| *byte == b'%');
    whole && !cut_off
}

/// Returns true if `data` is base64 without line breaks, which is the common case and needs one
/// pass.
fn is_plain_base64(data: &str) -> bool {
    let digits = data.strip_suffix("==").or(data.strip_suffix('=')).unwrap_or(data);
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    data.len().is_multiple_of(4) && scan::find_special(digits.as_bytes(), ordinary) == digits.len()
}

/// Returns true if base64 data of the right alphabet have a length divisible by four, and padding
/// only at the end.
fn padding_is_complete(data: &str) -> bool {
    let length = data.bytes().filter(|byte| *byte != b'\n').count();
    let mut backward = data.bytes().rev().filter(|byte| *byte != b'\n');
    let padding = backward.by_ref().take_while(|byte| *byte == b'=').count();
    length.is_multiple_of(4) && padding <= 2 && !backward.any(|byte| byte == b'=')
}

/// Encodes `bytes` as a data URL with percent escapes and without a media type.
///
/// Compat: all characters except letters, digits and `-_.!~*'()` are escaped.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(HEX.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    let mut url = String::with_capacity("data:,".len() + bytes.len());
    url.push_str("data:,");
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    url
}

/// Encodes `bytes` as a base64 data URL with the media type detected from them.
#[must_use]
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut url = format!("data:{};base64,", media_type::sniff(bytes));
    BASE64.encode_string(bytes, &mut url);
    url
}

fn decode_base64(data: &str) -> Result<Vec<u8>, DataUrlError> {
    let result = if data.contains('\n') {
        BASE64.decode(data.replace('\n', ""))
    } else {
        BASE64.decode(data)
    };
    result.map_err(|_| DataUrlError::Base64)
}

/// Decodes percent escapes.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let (plain, escape) = rest.split_at(at);
        bytes.extend_from_slice(plain);
        let (&[_, high, low], behind) = escape.split_first_chunk()?;
        bytes.push(nibble(high)? << 4 | nibble(low)?);
        rest = behind;
    }
    bytes.extend_from_slice(rest);
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Returns true if all characters of `data` are allowed unescaped in percent-encoded data.
fn is_percent_data(data: &str) -> bool {
    let ordinary = |byte: u8| {
        let refused = matches!(
            byte,
            b'<' | b'>' | b'#' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'[' | b']' | b'`'
        );
        byte.is_ascii_graphic() && !refused
    };
    scan::find_special(data.as_bytes(), ordinary) == data.len()
}

/// Returns true if all characters of `data` are allowed in base64 data. Compat: newlines are
/// allowed, carriage returns are not.
fn is_base64(data: &str) -> bool {
    let ordinary =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n');
    scan::find_special(data.as_bytes(), ordinary) == data.len()
}

#[cfg(test)]
mod tests;
