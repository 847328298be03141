//! Fast search for the next byte that needs handling.
//!
//! Configs are long runs of ordinary characters. Processed in blocks, with comparisons that need no
//! branch, they cost a fraction of a loop over single bytes.

/// Number of bytes per block: two or four registers on common machines.
const BLOCK: usize = 64;

/// Returns the offset of the first byte of `bytes` that is not `ordinary`, or the length if there
/// is none.
///
/// `ordinary` should consist of plain comparisons of its byte, so that the compiler can vectorise
/// the loop.
#[inline]
pub fn find_special(bytes: &[u8], ordinary: impl Fn(u8) -> bool) -> usize {
    let mut blocks = bytes.chunks_exact(BLOCK);
    let mut at = 0;
    for block in &mut blocks {
        if !block.iter().fold(true, |all, byte| all & ordinary(*byte)) {
            break;
        }
        at += BLOCK;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| !ordinary(*byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_find_the_same_byte_as_a_loop(bytes in "[a-z]{0,200}[#:]?[a-z#]{0,90}") {
            let ordinary = |byte: u8| byte != b'#' && byte != b':';
            let expected = bytes.bytes().position(|byte| !ordinary(byte)).unwrap_or(bytes.len());
            prop_assert_eq!(find_special(bytes.as_bytes(), ordinary), expected);
        }
    }
}
