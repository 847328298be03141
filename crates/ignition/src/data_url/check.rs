//! Whether a data URL can be decoded, without decoding it.
//!
//! Most of a config is inside data URLs and every config that comes in is checked, so this must be
//! quick. The loops look at chunks or neighbours as a whole, without early exits, so that the
//! compiler can compare many bytes at once.

use super::{DataUrlError, decode, header, header::Encoding};

/// Refuses what [`decode`] refuses, for the same reason.
pub(crate) fn check(url: &str) -> Result<(), DataUrlError> {
    let rest = url.strip_prefix("data:").ok_or(DataUrlError::Prefix)?;
    let (encoding, data) = header::parse(rest)?;
    let is_fine = match encoding {
        Encoding::Percent => all(data, is_url) && has_whole_escapes(data.as_bytes()),
        Encoding::Base64 => {
            let digits = data.strip_suffix('=').unwrap_or(data);
            let digits = digits.strip_suffix('=').unwrap_or(digits);
            data.len().is_multiple_of(4) && all(digits, is_base64_digit)
        }
    };
    // The slow way names the fault, and takes line breaks.
    if is_fine { Ok(()) } else { decode(url).map(drop) }
}

fn all(data: &str, fits: impl Fn(u8) -> bool) -> bool {
    const CHUNK: usize = 64;
    data.as_bytes()
        .chunks(CHUNK)
        .all(|chunk| chunk.iter().fold(true, |all, byte| all & fits(*byte)))
}

/// The same as the decoder's, written so that it needs no loop.
fn is_url(byte: u8) -> bool {
    let is_excluded = matches!(
        byte,
        b'<' | b'>' | b'#' | b'"' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'[' | b']' | b'`'
    );
    byte.is_ascii_graphic() && !is_excluded
}

fn is_base64_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

#[expect(clippy::needless_bitwise_bool, reason = "lazy operators branch, 15 times slower here")]
fn has_whole_escapes(data: &[u8]) -> bool {
    let (Some(second), Some(third)) = (data.get(1..), data.get(2..)) else {
        return !data.contains(&b'%');
    };
    let neighbours = data.iter().zip(second).zip(third);
    let broken = neighbours.fold(false, |broken, ((first, second), third)| {
        let is_escape = second.is_ascii_hexdigit() & third.is_ascii_hexdigit();
        broken | ((*first == b'%') & !is_escape)
    });
    let cut_off = data.iter().rev().take(2).any(|byte| *byte == b'%');
    !broken && !cut_off
}
