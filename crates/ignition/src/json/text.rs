//! Contents of JSON strings: scanning for the end, and decoding.

use std::borrow::Cow;

/// Returns the offset of the first byte of `rest` that ends or interrupts a string: a quote, a
/// backslash or a control character.
///
/// Most bytes of a config are inside long strings, so this function checks eight bytes at a time.
pub(super) fn plain_length(rest: &[u8]) -> usize {
    const WORD: usize = size_of::<u64>();
    let (words, tail) = rest.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        let stops = stops_in(u64::from_le_bytes(*word));
        if stops != 0 {
            return index * WORD + stops.trailing_zeros() as usize / 8;
        }
    }
    let scanned = rest.len() - tail.len();
    scanned + tail.iter().position(|&byte| is_stop(byte)).unwrap_or(tail.len())
}

fn is_stop(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns a word with the high bit set for each byte of `word` that stops a string. Only the
/// lowest such bit is exact: a borrow may set bits above it, but never below.
fn stops_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let equals = |byte: u8| {
        let difference = word ^ (ONES * u64::from(byte));
        difference.wrapping_sub(ONES) & !difference
    };
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (equals(b'"') | equals(b'\\') | control) & HIGH
}

/// Decodes the contents of a string without escapes.
///
/// Compat: each byte that is not valid UTF-8 becomes one replacement character.
pub(super) fn decode_plain(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| Cow::Owned(decode_lossy(bytes)), Cow::Borrowed)
}

fn decode_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    push_plain(bytes, &mut text);
    text
}

fn push_plain(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// Decodes the contents of a string whose escapes are known to be well formed.
///
/// Compat: half a surrogate pair becomes a replacement character.
pub(super) fn decode_escaped(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    while let Some(at) = bytes.iter().position(|&byte| byte == b'\\') {
        let (before, rest) = bytes.split_at(at);
        push_plain(before, &mut text);
        let (character, length) = escape(rest);
        text.push(character);
        bytes = rest.get(length..).unwrap_or_default();
    }
    push_plain(bytes, &mut text);
    text
}

/// Decodes the escape at the start of `rest`; returns the character and the length of the escape.
fn escape(rest: &[u8]) -> (char, usize) {
    let character = match rest.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(rest),
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (character, 2)
}

fn unicode_escape(rest: &[u8]) -> (char, usize) {
    const LENGTH: usize = 6;
    let first = code_unit(rest);
    if let Some(character) = first.and_then(char::from_u32) {
        return (character, LENGTH);
    }
    let second = rest.get(LENGTH..).and_then(code_unit);
    let pair = [first, second].map(|unit| unit.and_then(|unit| u16::try_from(unit).ok()));
    if let [Some(high), Some(low)] = pair
        && let Some(Ok(character)) = char::decode_utf16([high, low]).next()
    {
        return (character, 2 * LENGTH);
    }
    (char::REPLACEMENT_CHARACTER, LENGTH)
}

/// Returns the code unit of the escape `\uXXXX` at the start of `rest`.
fn code_unit(rest: &[u8]) -> Option<u32> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit * 16 + char::from(digit).to_digit(16)?))
}
