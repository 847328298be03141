//! Time and randomness, the server's two inputs besides requests.
//!
//! Both are arguments, so that a simulation of a whole fleet repeats exactly.

use std::{fmt::Write as _, sync::Arc};

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that always returns the same time, for tests.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A source of 128 random bits, for UIDs and generated names.
pub type Entropy = Arc<dyn Fn() -> u128 + Send + Sync>;

/// Returns the operating system's random number generator.
#[must_use]
pub fn system_entropy() -> Entropy {
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(move || {
        let mut bits = [0_u8; 16];
        provider.secure_random.fill(&mut bits).expect("the system's random source never fails");
        u128::from_ne_bytes(bits)
    })
}

/// Formats a time as Kubernetes does in `metadata`: whole seconds, UTC.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Builds a version 4 UUID from the given bits.
pub(crate) fn uuid(bits: u128) -> String {
    let bits = (bits & !(0xf << 76)) | (0x4 << 76);
    let bits = (bits & !(0x3 << 62)) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let mut out = String::with_capacity(36);
    for (at, digit) in hex.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            out.push('-');
        }
        out.push(digit);
    }
    out
}

/// Returns true if the text is a version 4 UUID, as servers assign them.
pub(crate) fn is_uuid(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_hexdigit();
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12]
        && text.chars().all(|c| c == '-' || is_digit(c))
        && text.split('-').nth(2).is_some_and(|part| part.starts_with('4'))
}

/// Returns the five characters that complete a `generateName`. The alphabet has no vowels, so that
/// no words arise.
pub(crate) fn suffix(bits: u128) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = bits;
    let mut out = String::new();
    for _ in 0..5 {
        let at = usize::try_from(rest % 27).unwrap_or(0);
        let _ = out.write_char(char::from(ALPHABET.get(at).copied().unwrap_or(b'b')));
        rest /= 27;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_version_and_variant_bits() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        for (text, expected) in [
            (uuid(7), true),
            ("00000000-0000-0000-0000-000000000000".to_owned(), false),
            ("u-1".to_owned(), false),
        ] {
            assert_eq!(is_uuid(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_suffix_has_five_safe_characters() {
        assert_eq!(suffix(0), "bbbbb");
        assert_eq!(suffix(26), "9bbbb");
    }

    #[test]
    fn metadata_times_have_whole_seconds() {
        let time: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
    }
}
