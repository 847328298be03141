//! Tests of decoding and encoding data URLs.

use proptest::prelude::*;

use super::*;

#[test]
fn valid_urls_are_decoded() {
    let cases = [
        ("data:,hello%20world", "hello world"),
        ("data:,", ""),
        ("data:,a,b;c?d", "a,b;c?d"),
        ("data:text/plain,x", "x"),
        ("data:texting/,x", "x"),
        ("data:x-mine/a.b+c,x", "x"),
        ("data:;charset=utf-8,x", "x"),
        ("data:;a=\"q,;\\\"\\u00e9\";b=%41,x", "x"),
        ("data:;a=\"\";b=%zz,x", "x"),
        ("data:;base64,aGk=", "hi"),
        ("data:;base64,aG\nk=\n", "hi"),
        ("data:text/plain;charset=utf-8;base64,aGl=", "hi"),
        ("data:;base64=1,x", "x"),
    ];
    for (url, expected) in cases {
        assert_eq!(decode(url).as_deref(), Ok(expected.as_bytes()), "{url}");
    }
}

#[test]
fn urls_that_the_reference_rejects_are_rejected() {
    let cases = [
        ("", DataUrlError::Prefix),
        ("DATA:,x", DataUrlError::Prefix),
        ("http://host/", DataUrlError::Prefix),
        ("data:", DataUrlError::Comma),
        ("data:;charset=utf-8", DataUrlError::Comma),
        ("data:base64,aGk=", DataUrlError::MediaType),
        ("data:Text/plain,x", DataUrlError::MediaType),
        ("data:font/woff,x", DataUrlError::MediaType),
        ("data:text/a/b,x", DataUrlError::MediaType),
        ("data:;,x", DataUrlError::Parameter),
        ("data:;a=,x", DataUrlError::Parameter),
        ("data:;a=%zz,x", DataUrlError::Parameter),
        ("data:;a=\"x,x", DataUrlError::Parameter),
        ("data:;a=\"\\q\",x", DataUrlError::Parameter),
        ("data:;a=\"\\ud800\",x", DataUrlError::Parameter),
        ("data:;a=\"\\+12\",x", DataUrlError::Parameter),
        ("data:;base64;a=b,aGk=", DataUrlError::Parameter),
        ("data:;BASE64,aGk=", DataUrlError::Encoding("BASE64".to_owned())),
        ("data:,a b", DataUrlError::Character),
        ("data:,caf\u{e9}", DataUrlError::Character),
        ("data:;base64,aGk%3D", DataUrlError::Character),
        ("data:;base64,aG\r\nk=", DataUrlError::Character),
        ("data:;base64,a-k_", DataUrlError::Character),
        ("data:,%4", DataUrlError::Escape),
        ("data:,%+1", DataUrlError::Escape),
        ("data:;base64,aGk", DataUrlError::Base64),
        ("data:;base64,aGk=aGk=", DataUrlError::Base64),
        ("data:;base64,====", DataUrlError::Base64),
    ];
    for (url, expected) in cases {
        assert_eq!(check(url), Err(expected.clone()), "{url}");
        assert_eq!(decode(url), Err(expected), "{url}");
    }
}

#[test]
fn the_media_type_is_detected_from_the_bytes() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "text/plain;charset=utf-8"),
        (b"plain\n", "text/plain;charset=utf-8"),
        (b" \n<html>", "text/html;charset=utf-8"),
        (b"<htmlx>", "text/plain;charset=utf-8"),
        (b"<?xml version", "text/xml;charset=utf-8"),
        (b"\x1f\x8b\x08\0", "application/x-gzip"),
        (b"\0\0\0\x10ftypmp42....", "video/mp4"),
        (b"\xef\xbb\xbf", "text/plain;charset=utf-8"),
        (b"\x01", "application/octet-stream"),
    ];
    for (bytes, expected) in cases {
        let url = encode_base64(bytes);
        assert!(url.starts_with(&format!("data:{expected};base64,")), "{url}");
    }
}

// covers: S37
#[test]
fn only_unreserved_characters_stay_unescaped() {
    assert_eq!(encode(b"a-_.!~*'()/ +\n\xff"), "data:,a-_.!~*'()%2F%20%2B%0A%FF");
}

proptest! {
    #[test]
    fn encoded_bytes_decode_to_themselves(bytes: Vec<u8>) {
        prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes.clone()));
        // Only text round-trips: the decoder does not know the media types of fonts.
        let text = String::from_utf8_lossy(&bytes).replace(|c: char| c.is_control(), "");
        let url = encode_base64(format!(" {text}").as_bytes());
        prop_assert_eq!(decode(&url), Ok(format!(" {text}").into_bytes()));
    }

    #[test]
    fn check_agrees_with_decode(
        head in "data:(|;base64|text/plain;a=b),",
        data in "([%=+/#a-fA-F0-9]|\n|\u{e9}){0,12}",
    ) {
        let url = format!("{head}{data}");
        prop_assert_eq!(check(&url), decode(&url).map(drop));
    }

    #[test]
    fn decoding_never_panics(text in "data:[ -~\n]{0,20}|.*") {
        let _ = decode(&text);
    }
}
