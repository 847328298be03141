//! What the server takes from the outside world: the time and unpredictable bits.
//!
//! Both are arguments, so that a simulation of a whole fleet repeats exactly.

use std::{fmt::Write as _, sync::Arc};

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still, for tests.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A source of 128 unpredictable bits: object identities and generated names come from it.
pub type Entropy = Arc<dyn Fn() -> u128 + Send + Sync>;

/// The operating system's random numbers.
#[must_use]
pub fn system_entropy() -> Entropy {
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(move || {
        let mut bits = [0_u8; 16];
        provider.secure_random.fill(&mut bits).expect("the system has random numbers");
        u128::from_ne_bytes(bits)
    })
}

/// A time as Kubernetes writes it in `metadata`: whole seconds, UTC.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A version 4 UUID made of the given bits.
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

/// The five characters that complete a `generateName`; no vowels, so no words come out.
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
    fn a_uuid_says_its_version_and_variant() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
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
