use super::*;

fn yaml(text: &str) -> String {
    let mut out = Vec::new();
    write(&Tree::Object(vec![("a", Tree::Text(text))]), &mut out).expect("readable");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn text_stays_plain_unless_yaml_would_parse_another_type() {
    let plain = [
        "a",
        "a b",
        "a:b",
        "a#b",
        "-a",
        ":a",
        "?a",
        "http://x/?q=1,2",
        "<<",
        "0x",
        "1.2.3",
        "1e999",
        ".",
        "..",
        "2024-13-01",
        "2023-02-29",
        "1:60",
        "truee",
        "08x",
        "é",
        "a\u{a0}b",
        "+",
    ];
    for text in plain {
        assert_eq!(yaml(text), format!("a: {text}\n"), "{text:?}");
    }
    let double = [
        "",
        "y",
        "No",
        "on",
        "OFF",
        "~",
        "null",
        "1",
        "-1",
        "0644",
        "0o17",
        "0x1F",
        "0b1",
        "1_000",
        "1.5",
        ".5",
        ".0_1",
        "1e3",
        "+.inf",
        ".NaN",
        "08",
        "18446744073709551616",
        "12:30:45",
        "2024-02-29",
        "2001-1-1 1:2:3",
        "2001-12-14t21:59:43.10-05:00",
        "0b-1",
        "190:20:30.15",
    ];
    for text in double {
        assert_eq!(yaml(text), format!("a: \"{text}\"\n"), "{text:?}");
    }
    let single = [
        "-", "- a", "? a", ": a", "a: b", "a:", "a #b", "#a", "&a", "*a", "!a", "|", ">", "%a",
        "@a", "`a", "{}", "[]", ",a", " a", "a ", "\"a\"", "---", "...", "---a",
    ];
    for text in single {
        assert_eq!(yaml(text), format!("a: '{text}'\n"), "{text:?}");
    }
    assert_eq!(yaml("'"), "a: ''''\n");
}

#[test]
fn control_characters_and_characters_above_the_basic_plane_are_escaped() {
    assert_eq!(yaml("a\tb"), "a: \"a\\tb\"\n");
    assert_eq!(yaml("\0\u{7}\u{1b}\r\u{1f}"), "a: \"\\0\\a\\e\\r\\x1F\"\n");
    assert_eq!(yaml("\u{1f600}"), "a: \"\\U0001F600\"\n");
    assert_eq!(yaml("a\u{feff}"), "a: \"a\\uFEFF\"\n");
    // A leading byte order mark escapes everything after it.
    assert_eq!(yaml("\u{feff}ab\""), "a: \"\\uFEFF\\x61\\x62\\\"\"\n");
}

#[test]
fn lines_are_kept_in_a_literal_block_where_yaml_can_show_them() {
    let cases = [
        ("one\ntwo\n", "a: |\n  one\n  two\n"),
        ("one\ntwo", "a: |-\n  one\n  two\n"),
        ("one\n\n", "a: |+\n  one\n\n"),
        ("\n", "a: |2+\n\n"),
        ("  one\n", "a: |2\n    one\n"),
        ("one\n  two\n\nthree\n", "a: |\n  one\n    two\n\n  three\n"),
        ("one \ntwo\n", "a: \"one \\ntwo\\n\"\n"),
        ("one\n ", "a: \"one\\n \"\n"),
        ("one\ttab\n", "a: \"one\\ttab\\n\"\n"),
    ];
    for (text, expected) in cases {
        assert_eq!(yaml(text), expected, "{text:?}");
    }
}

#[test]
fn long_text_wraps_at_single_spaces_only() {
    let word = "x".repeat(79);
    assert_eq!(yaml(&format!("{word} y")), format!("a: {word}\n  y\n"));
    assert_eq!(yaml(&format!("{word}  y")), format!("a: {word}  y\n"));
    assert_eq!(yaml(&format!("{word}: y")), format!("a: '{word}:\n  y'\n"));
    assert_eq!(yaml(&format!("\t{word}  y")), format!("a: \"\\t{word}\n  \\ y\"\n"));
}

#[test]
fn objects_and_lists_are_laid_out_as_blocks() {
    let tree = Tree::Object(vec![
        ("b", Tree::List(vec![Tree::Text("x"), Tree::Object(vec![("d", Tree::Int(-1))])])),
        ("a10", Tree::Bool(true)),
        ("a9", Tree::List(vec![])),
        ("a", Tree::Object(vec![("z", Tree::Text("l\n")), ("x", Tree::Null)])),
    ]);
    let mut out = Vec::new();
    write(&tree, &mut out).unwrap();
    let expected = "a:\n  x: null\n  z: |\n    l\na9: []\na10: true\nb:\n- x\n- d: -1\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn text_that_the_reference_cannot_parse_back_is_an_error() {
    let result = |text| write(&Tree::Object(vec![("a", Tree::Text(text))]), &mut Vec::new());
    assert_eq!(result("a\u{7f}"), Err(UnreadableText::ControlCharacter(0x7f)));
    assert_eq!(result("\u{9f}"), Err(UnreadableText::ControlCharacter(0x9f)));
    assert_eq!(result("a\u{85}--- b"), Err(UnreadableText::DocumentMarker));
    assert_eq!(result("a\u{85}---"), Ok(()));
}

#[test]
fn a_next_line_character_is_folded_as_a_line_break() {
    let cases = [("a\u{85}b", "a b"), ("a \u{85} b", "a b"), ("a\u{85}", "a "), ("\u{85}a", " a")];
    for (text, read) in cases {
        assert_eq!(as_read(text).unwrap(), read, "{text:?}");
    }
    assert_eq!(as_read("a\u{85}\u{85}\u{85}b").unwrap(), "a\n\nb");
}
