//! Gzip decompression (RFC 1952) in memory, with a limit on the output.
//!
//! Compat: a file consists of one or more members; bytes after the last member that do not start
//! another member, even zeros, make the file invalid (Go compress/gzip).

use flate2::{Crc, Decompress, FlushDecompress, Status};

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const HAS_HEADER_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;

/// Compat: maximum length of names and comments in the reference, the final zero included.
const MAX_TEXT: usize = 512;

/// Minimum growth of the output buffer.
const MIN_GROWTH: usize = 32 * 1024;

/// Compressed contents that cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GzipError {
    /// The header of the first member is invalid.
    #[error("invalid gzip header")]
    Header,
    /// The header of a later member is invalid, or other bytes follow the last member.
    #[error("invalid gzip header behind the first member")]
    NextHeader,
    /// The compressed data are malformed.
    #[error("corrupt compressed data")]
    Corrupt,
    /// The data end before the end of a member.
    #[error("unexpected end of compressed data")]
    Truncated,
    /// The decompressed data do not match their checksum or size.
    #[error("invalid gzip checksum")]
    Checksum,
    /// The decompressed data exceed the limit.
    #[error("decompressed contents exceed {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

/// Decompresses `bytes` into at most `limit` bytes.
pub fn decompress(bytes: &[u8], limit: usize) -> Result<Vec<u8>, GzipError> {
    let mut out = Vec::new();
    let mut rest = skip_header(bytes).ok_or(GzipError::Header)?;
    loop {
        let start = out.len();
        rest = inflate(rest, &mut out, limit)?;
        rest = check_trailer(rest, out.get(start..).unwrap_or_default())?;
        if rest.is_empty() {
            return Ok(out);
        }
        rest = skip_header(rest).ok_or(GzipError::NextHeader)?;
    }
}

/// Skips the header at the start of `bytes`; returns the rest.
fn skip_header(bytes: &[u8]) -> Option<&[u8]> {
    let (&[a, b, c, flags, ..], mut rest) = bytes.split_first_chunk::<10>()?;
    if [a, b, c] != MAGIC {
        return None;
    }
    if flags & HAS_EXTRA != 0 {
        let (length, behind) = rest.split_first_chunk()?;
        rest = behind.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    if flags & HAS_NAME != 0 {
        rest = skip_text(rest)?;
    }
    if flags & HAS_COMMENT != 0 {
        rest = skip_text(rest)?;
    }
    if flags & HAS_HEADER_CRC != 0 {
        let header = bytes.get(..bytes.len() - rest.len())?;
        let (sum, behind) = rest.split_first_chunk::<2>()?;
        let computed = crc(header).to_le_bytes();
        if !computed.starts_with(sum) {
            return None;
        }
        rest = behind;
    }
    Some(rest)
}

/// Skips the zero-terminated text at the start of `bytes`; returns the rest.
fn skip_text(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().take(MAX_TEXT).position(|byte| *byte == 0)?;
    bytes.get(end + 1..)
}

/// Decompresses one deflate stream and appends it to `out`; returns the rest after the stream.
fn inflate<'a>(bytes: &'a [u8], out: &mut Vec<u8>, limit: usize) -> Result<&'a [u8], GzipError> {
    let mut inflater = Decompress::new(false);
    let mut rest = bytes;
    loop {
        // One byte of room beyond the limit tells a full buffer from too much data.
        let room = (limit - out.len()).saturating_add(1);
        out.reserve(room.min(out.len().max(MIN_GROWTH)));
        let (read, written) = (inflater.total_in(), inflater.total_out());
        let status = inflater
            .decompress_vec(rest, out, FlushDecompress::None)
            .map_err(|_| GzipError::Corrupt)?;
        if out.len() > limit {
            return Err(GzipError::TooLarge { limit });
        }
        let taken = usize::try_from(inflater.total_in() - read).unwrap_or(usize::MAX);
        rest = rest.get(taken..).unwrap_or_default();
        match status {
            Status::StreamEnd => return Ok(rest),
            Status::Ok | Status::BufError if taken == 0 && inflater.total_out() == written => {
                return Err(GzipError::Truncated);
            }
            Status::Ok | Status::BufError => {}
        }
    }
}

/// Compares checksum and size; returns the rest after the trailer.
fn check_trailer<'a>(bytes: &'a [u8], contents: &[u8]) -> Result<&'a [u8], GzipError> {
    let (sum, rest) = bytes.split_first_chunk().ok_or(GzipError::Truncated)?;
    let (size, rest) = rest.split_first_chunk().ok_or(GzipError::Truncated)?;
    // The trailer has the size modulo 2^32.
    let same_size = contents.len() & 0xffff_ffff == widen(u32::from_le_bytes(*size));
    if same_size && crc(contents) == u32::from_le_bytes(*sum) {
        return Ok(rest);
    }
    Err(GzipError::Checksum)
}

fn widen(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, GzBuilder};
    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 1 << 20;

    fn member(contents: &[u8]) -> Vec<u8> {
        let mut encoder =
            GzBuilder::new().filename("name").extra("extra").write(Vec::new(), Compression::fast());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_are_concatenated() {
        let both = [member(b"one "), member(b"two")].concat();
        assert_eq!(decompress(&both, ROOM).as_deref(), Ok(b"one two".as_slice()));
        assert_eq!(decompress(&member(b""), ROOM).as_deref(), Ok(b"".as_slice()));
    }

    #[test]
    fn damaged_files_are_rejected() {
        let good = member(b"contents");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let cases = [
            ("no bytes", Vec::new(), GzipError::Header),
            ("another format", b"PK\x03\x04 and so on".to_vec(), GzipError::Header),
            ("half a header", good[..9].to_vec(), GzipError::Header),
            ("an unterminated name", [&good[..3], &[8], &[1; 600]].concat(), GzipError::Header),
            ("cut in the data", good[..good.len() - 9].to_vec(), GzipError::Truncated),
            ("cut in the trailer", good[..good.len() - 1].to_vec(), GzipError::Truncated),
            ("another checksum", with(good.len() - 8, 0x55), GzipError::Checksum),
            ("another size", with(good.len() - 1, 0x55), GzipError::Checksum),
            ("zeros after the member", [&good[..], &[0; 20]].concat(), GzipError::NextHeader),
            ("one byte after the member", [&good[..], &[0x1f]].concat(), GzipError::NextHeader),
        ];
        for (case, bytes, expected) in cases {
            assert_eq!(decompress(&bytes, ROOM), Err(expected), "{case}");
        }
    }

    #[test]
    fn a_decompression_bomb_stops_at_the_limit() {
        let bomb = member(&vec![0; 1 << 20]);
        assert_eq!(
            decompress(&bomb, (1 << 20) - 1),
            Err(GzipError::TooLarge { limit: (1 << 20) - 1 })
        );
        assert_eq!(decompress(&bomb, 1 << 20).map(|bytes| bytes.len()), Ok(1 << 20));
        assert_eq!(decompress(&member(b""), 0), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn compressed_bytes_decompress_to_themselves(contents: Vec<u8>) {
            prop_assert_eq!(decompress(&member(&contents), ROOM), Ok(contents));
        }

        #[test]
        fn decompressing_never_panics(mut bytes: Vec<u8>, at: usize, byte: u8) {
            let _ = decompress(&bytes, 1000);
            bytes.splice(..0, member(b"some contents"));
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = decompress(&bytes, 1000);
        }
    }
}
