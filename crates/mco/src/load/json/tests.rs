//! Tests of the JSON parser: positions and several values.

use super::*;
use mco_core::lint::FieldPath;

#[test]
fn values_are_parsed_unchanged() {
    let text = "{\"a\": [1, -2.5, true, null, \"\\ud83d\\ude00\"], \"b\": {}}\n{\"c\":[]}null";
    let values: Vec<String> = read(text).unwrap().iter().map(SpannedValue::to_json).collect();
    assert_eq!(values, [r#"{"a":[1,-2.5,true,null,"😀"],"b":{}}"#, r#"{"c":[]}"#]);
}

#[test]
fn positions_point_at_the_value() {
    let value = read("{\n  \"a\": [\n    {\"é\": 1, \"b\": 2}\n  ]\n}\n").unwrap().remove(0);
    let at = value.locate(&FieldPath::of("a").index(0).member("b"));
    assert_eq!((at.line, at.column), (3, 19));
}

#[test]
fn errors_have_a_position() {
    let rows = [
        ("{\"a\": }", (1, 7), "expected value"),
        ("{\"a\": 1, \"a\": 2}", (1, 1), "duplicate key \"a\""),
        ("{\n\"a\": 1", (2, 6), "EOF"),
    ];
    for (text, (line, column), words) in rows {
        let error = read(text).expect_err(text);
        assert_eq!(error.at.map(|at| (at.line, at.column)), Some((line, column)), "{text}");
        assert!(error.message.contains(words), "{text}: {}", error.message);
    }
    assert!(read(&("[".repeat(5000) + &"]".repeat(5000))).is_err());
}
