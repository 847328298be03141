//! Data URLs (RFC 2397): contents that stand inside the config.
//!
//! Compat: what is taken and what is refused is what the reference's decoder takes and refuses
//! (github.com/vincent-petithory/dataurl), because a config that one accepts and the other does not
//! would be applied by half. The media type is checked and then of no further use.

mod header;
mod media_type;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use self::header::Encoding;
use crate::scan;

/// Standard alphabet, padding needed; the bits beyond the last byte may be anything.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Why a data URL was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataUrlError {
    /// It does not start with `data:`.
    #[error("missing data prefix")]
    Prefix,
    /// It ends before the comma that the data follow.
    #[error("missing comma before data")]
    Comma,
    /// The media type is none, or of no known kind.
    #[error("invalid media type")]
    MediaType,
    /// A parameter is not `name=value`.
    #[error("invalid media type parameter")]
    Parameter,
    /// Something other than `base64` stands before the comma.
    #[error("expected base64, got {0}")]
    Encoding(String),
    /// The data have a character that must be escaped, or is outside the base64 alphabet.
    #[error("invalid data character")]
    Character,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("invalid percent escape")]
    Escape,
    /// The base64 data are malformed or lack their padding.
    #[error("illegal base64 data")]
    Base64,
}

/// The bytes that `url` holds.
pub fn decode(url: &str) -> Result<Vec<u8>, DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (encoding, data) = header::parse(rest)?;
    match encoding {
        Encoding::Percent if is_url(data) => unescape(data).ok_or(DataUrlError::Escape),
        Encoding::Base64 if is_base64(data) => decode_base64(data),
        Encoding::Percent | Encoding::Base64 => Err(DataUrlError::Character),
    }
}

/// Whether [`decode`] would succeed, without making the bytes.
pub fn check(url: &str) -> Result<(), DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (encoding, data) = header::parse(rest)?;
    match encoding {
        Encoding::Base64 if is_plain_base64(data) => Ok(()),
        Encoding::Percent if !is_url(data) => Err(DataUrlError::Character),
        Encoding::Base64 if !is_base64(data) => Err(DataUrlError::Character),
        Encoding::Percent if !escapes_are_whole(data) => Err(DataUrlError::Escape),
        Encoding::Base64 if !padding_is_whole(data) => Err(DataUrlError::Base64),
        Encoding::Percent | Encoding::Base64 => Ok(()),
    }
}

/// Whether every percent sign has its two digits.
///
/// No branch depends on the data, so that the compiler can judge many bytes at a time.
fn escapes_are_whole(data: &str) -> bool {
    let data = data.as_bytes();
    let is_hex = |byte: u8| (byte.wrapping_sub(b'0') < 10) | ((byte | 0x20).wrapping_sub(b'a') < 6);
    let (second, third) = (data.get(1..).unwrap_or_default(), data.get(2..).unwrap_or_default());
    let whole = data.iter().zip(second).zip(third).fold(true, |whole, ((sign, high), low)| {
        whole & ((*sign != b'%') | (is_hex(*high) & is_hex(*low)))
    });
    let cut_off = data.iter().rev().take(2).any(|byte| *byte == b'%');
    whole && !cut_off
}

/// Whether `data` is base64 without line breaks, as nearly all is, which one look can tell.
fn is_plain_base64(data: &str) -> bool {
    let digits = data.strip_suffix("==").or(data.strip_suffix('=')).unwrap_or(data);
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    data.len().is_multiple_of(4) && scan::past(digits.as_bytes(), ordinary) == digits.len()
}

/// Whether base64 data, of the right alphabet, come in fours with padding at the end only.
fn padding_is_whole(data: &str) -> bool {
    let length = data.bytes().filter(|byte| *byte != b'\n').count();
    let mut backward = data.bytes().rev().filter(|byte| *byte != b'\n');
    let padding = backward.by_ref().take_while(|byte| *byte == b'=').count();
    length.is_multiple_of(4) && padding <= 2 && !backward.any(|byte| byte == b'=')
}

/// A data URL for `bytes`, percent-escaped and without a media type.
///
/// Compat: everything but letters, digits and `-_.!~*'()` is escaped.
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

/// A base64 data URL for `bytes`, with the media type that they look like.
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

/// Replaces percent escapes by the bytes they stand for.
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

/// Whether `data` has only what plain data may hold unescaped.
fn is_url(data: &str) -> bool {
    let ordinary = |byte: u8| {
        let refused = matches!(
            byte,
            b'<' | b'>' | b'#' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'[' | b']' | b'`'
        );
        byte.is_ascii_graphic() && !refused
    };
    scan::past(data.as_bytes(), ordinary) == data.len()
}

/// Whether `data` has only what base64 may hold. Compat: a newline, yes; a carriage return, no.
fn is_base64(data: &str) -> bool {
    let ordinary =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n');
    scan::past(data.as_bytes(), ordinary) == data.len()
}

#[cfg(test)]
mod tests;
