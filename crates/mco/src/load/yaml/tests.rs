//! Tests of the YAML parser, which follows kubectl.

use mco_core::lint::FieldPath;

use super::*;

fn json(text: &str) -> String {
    let documents = read(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    documents.iter().map(SpannedValue::to_json).collect::<Vec<_>>().join("\n")
}

#[test]
fn scalars_follow_yaml_1_1() {
    let rows = [
        ("a: 0644", r#"{"a":420}"#),
        ("a: 0o644", r#"{"a":420}"#),
        ("a: 0x1F", r#"{"a":31}"#),
        ("a: 1_000", r#"{"a":1000}"#),
        ("a: \"0644\"", r#"{"a":"0644"}"#),
        ("a: yes\nb: No\nc: on\nd: OFF", r#"{"a":true,"b":false,"c":true,"d":false}"#),
        ("a: ~\nb:\nc: null", r#"{"a":null,"b":null,"c":null}"#),
        ("a: 3.2.0\nb: 3.2", r#"{"a":"3.2.0","b":3.2}"#),
        ("a: 2020-01-01", r#"{"a":"2020-01-01"}"#),
        ("a: -5", r#"{"a":-5}"#),
        ("1: a\ntrue: b", r#"{"1":"a","true":"b"}"#),
        ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
        ("a: >-\n  x\n  y\n", r#"{"a":"x y"}"#),
    ];
    for (text, want) in rows {
        assert_eq!(json(text), want, "{text}");
    }
}

#[test]
fn anchors_and_merge_keys_are_expanded() {
    let text = "a: &a {p: 1, q: 2}\nb: *a\nc:\n  <<: *a\n  q: 3\n";
    assert_eq!(json(text), r#"{"a":{"p":1,"q":2},"b":{"p":1,"q":2},"c":{"q":3,"p":1}}"#);
}

#[test]
fn documents_are_split_and_empty_ones_dropped() {
    assert_eq!(json("---\na: 1\n---\n# nothing\n---\n---\nb: 2\n...\n"), "{\"a\":1}\n{\"b\":2}");
    assert_eq!(json(""), "");
    assert_eq!(json("# only a comment\n"), "");
}

#[test]
fn errors_have_a_position_and_a_message() {
    let rows = [
        ("a: 1\na: 2\n", (2, 1), "duplicate key \"a\""),
        ("on: 1\ntrue: 2\n", (2, 1), "duplicate key \"true\""),
        ("a:\n\tb: 1\n", (2, 2), "tabs disallowed within this context (block indentation)"),
        ("a: *b\n", (1, 4), "unknown"),
        ("a: \"x\n", (2, 1), "quoted scalar"),
        ("a: .inf\n", (1, 4), "not a finite number"),
    ];
    for (text, (line, column), words) in rows {
        let error = read(text).expect_err(text);
        assert_eq!(error.at.map(|at| (at.line, at.column)), Some((line, column)), "{text}");
        assert!(error.message.contains(words), "{text}: {}", error.message);
    }
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.extend([format!("a{level}: &a{level} [{aliases}]\n")]);
    }
    assert!(read(&text).is_err());
    assert!(read(&"[".repeat(5000)).is_err());
}

#[test]
fn positions_point_at_the_value() {
    let document = read("a:\n  b:\n    - c: 1\n      d: |\n        x\n").unwrap().remove(0);
    let path = FieldPath::of("a.b").index(0);
    let at = |path: &FieldPath| {
        let at = document.locate(path);
        (at.line, at.column)
    };
    assert_eq!(at(&path), (3, 7));
    assert_eq!(at(&path.member("c")), (3, 10));
    assert_eq!(at(&path.member("d")), (5, 9));
    assert_eq!(at(&path.member("missing")), (3, 7));
    assert_eq!(at(&FieldPath::of("a.b")), (2, 3));
}
