//! Detection of the media type of bytes, by the rules of browsers (mimesniff.spec.whatwg.org).
//!
//! Compat: the reference writes the detected type into the URL, so the table and its order affect
//! the rendered bytes (Go net/http).

/// Number of bytes that are inspected.
const WINDOW: usize = 512;

const TEXT: &str = "text/plain;charset=utf-8";

/// Tags that mark a document as HTML; a space or `>` must follow.
const TAGS: [&str; 17] = [
    "<!DOCTYPE HTML",
    "<HTML",
    "<HEAD",
    "<SCRIPT",
    "<IFRAME",
    "<H1",
    "<DIV",
    "<FONT",
    "<TABLE",
    "<A",
    "<STYLE",
    "<TITLE",
    "<B",
    "<BODY",
    "<BR",
    "<P",
    "<!--",
];

/// A signature: bytes at the start, bytes at an offset, and the media type.
struct Signature(&'static [u8], Option<(usize, &'static [u8])>, &'static str);

const SIGNATURES: &[Signature] = &[
    Signature(b"%PDF-", None, "application/pdf"),
    Signature(b"%!PS-Adobe-", None, "application/postscript"),
    // A byte-order mark counts only if more bytes follow it.
    Signature(b"\xfe\xff", Some((4, b"")), "text/plain;charset=utf-16be"),
    Signature(b"\xff\xfe", Some((4, b"")), "text/plain;charset=utf-16le"),
    Signature(b"\xef\xbb\xbf", Some((4, b"")), TEXT),
    Signature(b"\0\0\x01\0", None, "image/x-icon"),
    Signature(b"\0\0\x02\0", None, "image/x-icon"),
    Signature(b"BM", None, "image/bmp"),
    Signature(b"GIF87a", None, "image/gif"),
    Signature(b"GIF89a", None, "image/gif"),
    Signature(b"RIFF", Some((8, b"WEBPVP")), "image/webp"),
    Signature(b"\x89PNG\r\n\x1a\n", None, "image/png"),
    Signature(b"\xff\xd8\xff", None, "image/jpeg"),
    Signature(b"FORM", Some((8, b"AIFF")), "audio/aiff"),
    Signature(b"ID3", None, "audio/mpeg"),
    Signature(b"OggS\0", None, "application/ogg"),
    Signature(b"MThd\0\0\0\x06", None, "audio/midi"),
    Signature(b"RIFF", Some((8, b"AVI ")), "video/avi"),
    Signature(b"RIFF", Some((8, b"WAVE")), "audio/wave"),
    // `is_mp4` checks video/mp4 further, because it has no fixed pattern.
    Signature(b"", Some((4, b"ftyp")), "video/mp4"),
    Signature(b"\x1a\x45\xdf\xa3", None, "video/webm"),
    Signature(b"", Some((34, b"LP")), "application/vnd.ms-fontobject"),
    Signature(b"\0\x01\0\0", None, "font/ttf"),
    Signature(b"OTTO", None, "font/otf"),
    Signature(b"ttcf", None, "font/collection"),
    Signature(b"wOFF", None, "font/woff"),
    Signature(b"wOF2", None, "font/woff2"),
    Signature(b"\x1f\x8b\x08", None, "application/x-gzip"),
    Signature(b"PK\x03\x04", None, "application/zip"),
    Signature(b"Rar!\x1a\x07\0", None, "application/x-rar-compressed"),
    Signature(b"Rar!\x1a\x07\x01\0", None, "application/x-rar-compressed"),
    Signature(b"\0asm", None, "application/wasm"),
];

/// Returns the media type of `bytes`, as written in a data URL.
pub(super) fn sniff(bytes: &[u8]) -> &'static str {
    let window = bytes.get(..WINDOW).unwrap_or(bytes);
    let is_space = |byte: &u8| b"\t\n\x0c\r ".contains(byte);
    let start = window.iter().position(|byte| !is_space(byte)).unwrap_or(window.len());
    let text = window.get(start..).unwrap_or_default();
    if TAGS.iter().any(|tag| has_tag(text, tag)) {
        return "text/html;charset=utf-8";
    }
    if text.starts_with(b"<?xml") {
        return "text/xml;charset=utf-8";
    }
    if let Some(Signature(.., name)) = SIGNATURES.iter().find(|it| it.matches(window)) {
        return name;
    }
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if text.iter().any(is_binary) { "application/octet-stream" } else { TEXT }
}

impl Signature {
    fn matches(&self, window: &[u8]) -> bool {
        let &Self(start, further, name) = self;
        let has_further = further
            .is_none_or(|(at, bytes)| window.get(at..).is_some_and(|rest| rest.starts_with(bytes)));
        window.starts_with(start) && has_further && (name != "video/mp4" || is_mp4(window))
    }
}

/// Returns true if the first box of `window` lists the brand `mp4`.
fn is_mp4(window: &[u8]) -> bool {
    let Some(size) = window.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
        return false;
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let brands = (8..size).step_by(4).filter(|at| *at != 12);
    window.len() >= 12
        && size <= window.len()
        && size.is_multiple_of(4)
        && brands.into_iter().any(|at| window.get(at..at + 3) == Some(b"mp4"))
}

fn has_tag(text: &[u8], tag: &str) -> bool {
    let Some((start, rest)) = text.split_at_checked(tag.len()) else {
        return false;
    };
    let matches = |(byte, wanted): (&u8, u8)| match wanted {
        b'A'..=b'Z' => byte & 0xdf == wanted,
        _ => *byte == wanted,
    };
    start.iter().zip(tag.bytes()).all(matches) && matches!(rest.first(), Some(b' ' | b'>'))
}
