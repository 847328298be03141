//! Tests of the comparison of configs.

use mco_api::RawConfig;

use super::*;

fn config(config: &str) -> DecodedConfig {
    let config = RawConfig::from_json(config.to_owned()).unwrap();
    let spec = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
    DecodedConfig::new("a".to_owned(), spec).unwrap()
}

fn changed(old: &str, new: &str) -> Vec<Change> {
    let whole = |rest: &str| format!(r#"{{"ignition":{{"version":"3.2.0"}},{rest}}}"#);
    between(&config(&whole(old)), &config(&whole(new)), Secrets::Hide)
}

fn file(contents: &str) -> String {
    format!(r#""storage":{{"files":[{{"path":"/a","contents":{contents}}}]}}"#)
}

#[test]
fn equal_contents_in_different_encodings_are_equal() {
    // `gzip -n` of "hi\n".
    let gzip = r#"{"source":"data:;base64,H4sIAAAAAAAAA8vI5AIAenpv7QMAAAA=","compression":"gzip"}"#;
    let plain = r#"{"source":"data:,hi%0A"}"#;
    let base64 = r#"{"source":"data:text/plain;base64,aGkK"}"#;
    for other in [gzip, base64] {
        assert_eq!(changed(&file(plain), &file(other)), []);
    }
}

#[test]
fn binary_contents_are_reported_by_size() {
    let changes = changed(&file(r#"{"source":"data:,a"}"#), &file(r#"{"source":"data:,%00a"}"#));
    assert_eq!(changes[0].contents, Some(Contents::Binary { old: 1, new: 2 }));
}

#[test]
fn a_password_hash_is_compared_but_hidden() {
    let user =
        |hash: &str| format!(r#""passwd":{{"users":[{{"name":"core","passwordHash":"{hash}"}}]}}"#);
    let changes = changed(&user("$y$1"), &user("$y$2"));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].contents, None);
    assert!(!format!("{changes:?}").contains("$y$"));
    assert_eq!(changed(&user("$y$1"), &user("$y$1")), []);
}

#[test]
fn a_changed_secret_is_reported_without_its_text() {
    let changes = changed(
        &file(r#"{"source":"data:,token%3Dabcdef"}"#),
        &file(r#"{"source":"data:,token%3Dghijkl"}"#),
    );
    assert_eq!(changes[0].contents, Some(Contents::Hidden));
}
