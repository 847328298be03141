//! Tests of the JSON parser against the behaviour of Go's decoder.

use super::*;

fn show(node: &Node<'_>) -> String {
    let at = node.at;
    match &node.value {
        Value::Null => format!("{at}:null"),
        Value::Bool(switch) => format!("{at}:{switch}"),
        Value::Number(text) => format!("{at}:{text}"),
        Value::String(text) => format!("{at}:{text:?}"),
        Value::Array(nodes) => {
            format!("{at}:[{}]", nodes.iter().map(show).collect::<Vec<_>>().join(" "))
        }
        Value::Object(members) => {
            let member = |member: &Member<'_>| format!("{}={}", member.key, show(&member.node));
            format!("{at}:{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(" "))
        }
    }
}

fn read(raw: &[u8]) -> String {
    match parse(raw) {
        Ok(node) => show(&node),
        Err(error) => format!("{} at {}", error, error.at),
    }
}

#[test]
fn values_keep_their_offsets_and_order() {
    let cases: [(&str, &str); 6] = [
        ("null", "0:null"),
        (" [1, -0.5e+3 ,true]\n", "1:[2:1 5:-0.5e+3 14:true]"),
        (r#"{"b":{},"a":[],"b":"x"}"#, r#"0:{b=5:{} a=12:[] b=19:"x"}"#),
        (
            r#""a long string without any escape in it""#,
            r#"0:"a long string without any escape in it""#,
        ),
        (r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#, r#"0:"\"\\/\u{8}\u{c}\n\r\té😀""#),
        (r#""12345678901234567\n""#, r#"0:"12345678901234567\n""#),
    ];
    for (raw, expected) in cases {
        assert_eq!(read(raw.as_bytes()), expected, "{raw}");
    }
}

#[test]
fn invalid_unicode_becomes_replacement_characters() {
    let cases: [(&[u8], &str); 6] = [
        (b"\"a\xffb\"", "0:\"a\u{fffd}b\""),
        (b"\"\xe2\x80\"", "0:\"\u{fffd}\u{fffd}\""),
        (b"\"\xed\xa0\x80\\n\"", "0:\"\u{fffd}\u{fffd}\u{fffd}\\n\""),
        (br#""\ud800""#, "0:\"\u{fffd}\""),
        (br#""\ud800\u0041""#, "0:\"\u{fffd}A\""),
        (br#""\udc00\ud83d\ude00""#, "0:\"\u{fffd}😀\""),
    ];
    for (raw, expected) in cases {
        assert_eq!(read(raw), expected, "{}", raw.escape_ascii());
    }
}

#[test]
fn syntax_errors_name_the_character_and_its_offset() {
    let cases: [(&[u8], &str); 22] = [
        (b"", "unexpected end of JSON input at 0"),
        (b"[1", "unexpected end of JSON input at 2"),
        (b"{'a':1}", r"invalid character '\'' looking for beginning of object key string at 1"),
        (b"{\"a\" 1}", "invalid character '1' after object key at 5"),
        (b"{\"a\":1 2}", "invalid character '2' after object key:value pair at 7"),
        (b"{\"a\":1,}", "invalid character '}' looking for beginning of object key string at 7"),
        (b"[1,]", "invalid character ']' looking for beginning of value at 3"),
        (b"[1 2]", "invalid character '2' after array element at 3"),
        (b"{} x", "invalid character 'x' after top-level value at 3"),
        (b"\"a\nb\"", r"invalid character '\n' in string literal at 2"),
        (b"\"\\x\"", "invalid character 'x' in string escape code at 2"),
        (b"\"\\u12g4\"", r"invalid character 'g' in \u hexadecimal character escape at 5"),
        (b"01", "invalid character '1' after top-level value at 1"),
        (b"-a", "invalid character 'a' in numeric literal at 1"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal at 2"),
        (b"1e", "unexpected end of JSON input at 2"),
        (b"1ex", "invalid character 'x' in exponent of numeric literal at 2"),
        (b"trUe", "invalid character 'U' in literal true (expecting 'u') at 2"),
        (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value at 0"),
        (b"\0", r"invalid character '\x00' looking for beginning of value at 0"),
        (b"\x85", r"invalid character '\u0085' looking for beginning of value at 0"),
        (b"+1", "invalid character '+' looking for beginning of value at 0"),
    ];
    for (raw, expected) in cases {
        assert_eq!(read(raw), expected, "{}", raw.escape_ascii());
    }
}

#[test]
fn depth_is_limited_without_using_the_stack() {
    let nested = |levels: usize| {
        let open = (0..levels).map(|level| if level % 2 == 0 { "[" } else { r#"{"k":"# });
        let close = (0..levels).rev().map(|level| if level % 2 == 0 { "]" } else { "}" });
        open.chain(["\"x\""]).chain(close).collect::<String>()
    };
    assert!(parse(nested(10_000).as_bytes()).is_ok());
    let error = parse(nested(10_001).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "invalid character '[' exceeded max depth");
    let unclosed = nested(200).replace(']', "");
    assert!(parse(unclosed.as_bytes()).is_err());
}

#[test]
fn plain_length_equals_a_bytewise_scan() {
    for length in 0..40 {
        for stop in [b'"', b'\\', b'\n', 0x1f, 0x00] {
            let mut bytes = vec![0xc3; length];
            bytes.push(stop);
            bytes.extend_from_slice(b"some \" more");
            assert_eq!(text::plain_length(&bytes), length, "{stop} at {length}");
        }
        let plain: Vec<u8> = (0..length).map(|at| 0x20 + u8::try_from(at % 2).unwrap()).collect();
        assert_eq!(text::plain_length(&plain), length);
    }
}
