//! The part of a data URL between `data:` and the data: media type, parameters and encoding.

use super::{DataUrlError, unescape};

/// Encoding of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Percent,
    Base64,
}

/// Known kinds of media types. Only the start of the word is compared.
const KINDS: [&str; 7] = ["text", "image", "audio", "video", "application", "message", "multipart"];

/// Parses up to and including the comma; returns the encoding and the data.
pub(super) fn parse(text: &str) -> Result<(Encoding, &str), DataUrlError> {
    let mut rest = media_type(text)?;
    let mut quoting = Quoting::default();
    loop {
        if let Some(data) = rest.strip_prefix(',') {
            return Ok((Encoding::Percent, data));
        }
        let parameter = rest.strip_prefix(';').ok_or(match rest {
            "" => DataUrlError::Comma,
            _ => DataUrlError::MediaType,
        })?;
        let (name, behind) = token(parameter);
        if name.is_empty() {
            return Err(DataUrlError::Parameter);
        }
        if let Some(data) = behind.strip_prefix(',') {
            return match name {
                "base64" => Ok((Encoding::Base64, data)),
                other => Err(DataUrlError::Encoding(other.to_owned())),
            };
        }
        let value = behind.strip_prefix('=').ok_or(DataUrlError::Parameter)?;
        rest = quoting.value(value)?;
    }
}

/// Parses the media type, which is optional; returns the rest.
fn media_type(text: &str) -> Result<&str, DataUrlError> {
    if text.is_empty() {
        return Err(DataUrlError::Comma);
    }
    if text.starts_with([';', ',']) {
        return Ok(text);
    }
    let (kind, rest) = token(text);
    let subtype = rest.strip_prefix('/').ok_or(DataUrlError::MediaType)?;
    let is_extension = kind.starts_with("x-") || kind.starts_with("X-");
    if !is_extension && !KINDS.iter().any(|known| kind.starts_with(known)) {
        return Err(DataUrlError::MediaType);
    }
    Ok(token(subtype).1)
}

/// Splits off the longest run of token characters.
fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// State for parsing parameter values.
///
/// Compat: after an empty quoted value the next value counts as quoted, so a percent sign in it
/// need not start an escape.
#[derive(Default)]
struct Quoting {
    pending: bool,
}

impl Quoting {
    /// Checks the value at the start of `text` and returns the rest.
    fn value<'a>(&mut self, text: &'a str) -> Result<&'a str, DataUrlError> {
        if let Some(quoted) = text.strip_prefix('"') {
            let (value, rest) = split_quoted(quoted).ok_or(DataUrlError::Parameter)?;
            self.pending = value.is_empty();
            return is_literal(value).then_some(rest).ok_or(DataUrlError::Parameter);
        }
        let (value, rest) = token(text);
        let was_pending = std::mem::take(&mut self.pending);
        if value.is_empty() || (!was_pending && unescape(value).is_none()) {
            return Err(DataUrlError::Parameter);
        }
        Ok(rest)
    }
}

/// Splits at the closing quote, unless a backslash escapes it.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if !c.is_ascii() => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// Returns true if `text` is valid between double quotes in Go source.
fn is_literal(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '\n']) {
        let Some(behind) = rest.get(at..).and_then(|text| text.strip_prefix('\\')) else {
            return false;
        };
        let Some(length) = escape_length(behind) else {
            return false;
        };
        rest = behind.get(length..).unwrap_or_default();
    }
    true
}

/// Returns the length of the escape at the start of `text`, without the backslash.
fn escape_length(text: &str) -> Option<usize> {
    let number = |digits: std::ops::Range<usize>, radix: u32| {
        let digits = text.get(digits)?;
        // A sign is not a digit, although the number parser accepts it.
        digits
            .chars()
            .all(|c| c.is_digit(radix))
            .then(|| u32::from_str_radix(digits, radix).ok())?
    };
    match text.chars().next()? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' | '"' => Some(1),
        'x' => number(1..3, 16).map(|_| 3),
        'u' => number(1..5, 16).and_then(char::from_u32).map(|_| 5),
        'U' => number(1..9, 16).and_then(char::from_u32).map(|_| 9),
        '0'..='7' => number(0..3, 8).filter(|byte| *byte <= 0xff).map(|_| 3),
        _ => None,
    }
}
