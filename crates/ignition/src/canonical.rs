//! The one way a config is written: compact JSON, members in a fixed order, the reference's escapes.

/// Writes `text` as a JSON string.
///
/// Compat: besides what JSON demands, `<`, `>`, `&` and the two Unicode line separators are escaped,
/// and of the control characters only newline, carriage return and tab have a short form.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut written = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !SPECIAL.get(usize::from(byte)).copied().unwrap_or(false) {
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let (escape, length) = match byte {
            b'"' => ("\\\"", 1),
            b'\\' => ("\\\\", 1),
            b'\n' => ("\\n", 1),
            b'\r' => ("\\r", 1),
            b'\t' => ("\\t", 1),
            0xe2 if rest.starts_with("\u{2028}".as_bytes()) => ("\\u2028", 3),
            0xe2 if rest.starts_with("\u{2029}".as_bytes()) => ("\\u2029", 3),
            0xe2 => continue,
            _ => ("", 1),
        };
        out.extend_from_slice(bytes.get(written..at).unwrap_or_default());
        if escape.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        } else {
            out.extend_from_slice(escape.as_bytes());
        }
        written = at + length;
    }
    out.extend_from_slice(bytes.get(written..).unwrap_or_default());
    out.push(b'"');
}

/// The bytes that may start an escape.
static SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};
