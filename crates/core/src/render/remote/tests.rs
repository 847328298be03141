use super::{super::*, *};
use crate::fixture::ignition;

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn with_file(name: &str, role: &str, contents: &str) -> MachineConfig {
    let text = format!(
        r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{{"path":"/etc/a","contents":{contents}}}]}}}}"#
    );
    ignition(name, role, &text)
}

fn drafted(configs: &[MachineConfig]) -> Draft {
    let configs: Vec<&MachineConfig> = configs.iter().collect();
    draft(&"worker".parse().unwrap(), &configs, &BaseImages::default()).unwrap()
}

fn one(contents: &str) -> Source {
    let mut found = drafted(&[with_file("50-a", "worker", contents)]).remote();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

// covers: REN-22
#[test]
fn only_contents_in_the_merged_config_are_fetched() {
    let plain = with_file("10-plain", "worker", r#"{"source":"data:,x"}"#);
    let http = with_file("20-http", "worker", r#"{"source":"http://h.test/a"}"#);
    let https = with_file("30-https", "worker", r#"{"source":"HTTPS://h.test/b"}"#);
    let mode = ignition(
        "40-mode",
        "worker",
        r#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","mode":384}]}}"#,
    );
    let tftp = with_file("50-tftp", "worker", r#"{"source":"tftp://h.test/c"}"#);
    let cases = [
        (vec![&plain], ""),
        (vec![&http], "http://h.test/a (file /etc/a of MachineConfig 20-http)"),
        (vec![&plain, &http], "http://h.test/a (file /etc/a of MachineConfig 20-http)"),
        (vec![&http, &https], "HTTPS://h.test/b (file /etc/a of MachineConfig 30-https)"),
        (vec![&https, &mode], "HTTPS://h.test/b (file /etc/a of MachineConfig 30-https)"),
        (vec![&https, &tftp], ""),
    ];
    for (configs, expected) in cases {
        let configs: Vec<MachineConfig> = configs.into_iter().cloned().collect();
        let found: Vec<String> = drafted(&configs).remote().iter().map(Source::to_string).collect();
        assert_eq!(found.join(" "), expected);
    }
}

#[test]
fn embedded_contents_are_part_of_the_name() {
    let remote = [with_file(
        "50-a",
        "worker",
        r#"{"source":"https://h.test/a","httpHeaders":[{"name":"Authorization","value":"x"}]}"#,
    )];
    let mut draft = drafted(&remote);
    let sources = draft.remote();
    assert_eq!(sources[0].headers, [("Authorization".to_owned(), "x".to_owned())]);
    draft.embed(&sources[0], b"hello").unwrap();
    assert_eq!(draft.remote(), []);
    let embedded = draft.finish().unwrap();
    let inside = data_url::encode_base64(b"hello");
    let by_hand = [with_file("50-a", "worker", &format!(r#"{{"source":"{inside}"}}"#))];
    let by_hand = drafted(&by_hand).finish().unwrap();
    assert_eq!(embedded.name, by_hand.name);
    assert_eq!(embedded.spec, by_hand.spec);
    // Without embedding the result is that of the reference.
    let verbatim = drafted(&remote).finish().unwrap();
    assert!(verbatim.spec.config.unwrap().get().contains("https://h.test/a"));
}

#[test]
fn contents_must_match_their_hash_and_compression() {
    // `gzip -n` of "hi\n".
    let packed = content::decode(
        Some("data:;base64,H4sIAAAAAAAAA8vI5AIAenpv7QMAAAA="),
        None,
        ContentLimit::DEFAULT,
    )
    .unwrap();
    let hi = "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4";
    let contents = |more: &str| format!(r#"{{"source":"https://u:p@h.test/a?token=s"{more}}}"#);
    let hash = |sum: &str| contents(&format!(r#","verification":{{"hash":"sha256-{sum}"}}"#));
    let both = |sum: &str| {
        contents(&format!(r#","compression":"gzip","verification":{{"hash":"sha256-{sum}"}}"#))
    };
    let cases: [(String, &[u8], &str); 7] = [
        (contents(""), b"hello", ""),
        (hash(HELLO), b"hello", ""),
        (hash(&HELLO.to_uppercase()), b"hello", ""),
        (
            hash(HELLO),
            b"hullo",
            "the contents of https://h.test/a (file /etc/a of MachineConfig 50-a) have the hash sha256-",
        ),
        (both(hi), &packed, ""),
        (
            both(HELLO),
            &packed,
            "the contents of https://h.test/a (file /etc/a of MachineConfig 50-a) have the hash sha256-98ea",
        ),
        (
            contents(r#","compression":"gzip""#),
            b"hello",
            "failed to decode the contents of https://h.test/a (file /etc/a of MachineConfig 50-a)",
        ),
    ];
    for (contents, bytes, expected) in cases {
        let text = one(&contents).check(bytes).err().map(|error| error.to_string());
        let text = text.unwrap_or_default();
        assert!(text.starts_with(expected) && text.is_empty() == expected.is_empty(), "{text}");
    }
    let large = vec![0; MAX_CONTENTS + 1];
    let text = one(&contents("")).check(&large).unwrap_err().to_string();
    assert!(text.contains("more than 1048576 bytes"), "{text}");
}

#[test]
fn another_source_or_another_machine_config_has_another_key() {
    let base = one(r#"{"source":"https://h.test/a"}"#);
    let others = [
        (one(r#"{"source":"https://h.test/b"}"#), "u"),
        (one(r#"{"source":"https://h.test/a","httpHeaders":[{"name":"a","value":"b"}]}"#), "u"),
        (
            one(&format!(
                r#"{{"source":"https://h.test/a","verification":{{"hash":"sha256-{HELLO}"}}}}"#
            )),
            "u",
        ),
        (one(r#"{"source":"https://h.test/a","compression":"gzip"}"#), "u"),
        (base.clone(), "v"),
    ];
    assert_eq!(base.key("u"), one(r#"{"source":"https://h.test/a"}"#).key("u"));
    assert_eq!(base.key("u").len(), 40);
    for (other, uid) in others {
        assert_ne!(other.key(uid), base.key("u"), "{other}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let cases = [
        ("https://h.test/a", "https://h.test/a"),
        ("https://user:password@h.test:8443/a?token=x#y", "https://h.test:8443/a"),
        ("http://u@v@h.test", "http://h.test"),
        ("http://h.test/a@b", "http://h.test/a@b"),
        ("http:opaque?x", "http:opaque"),
    ];
    for (url, expected) in cases {
        assert_eq!(shown(url), expected);
    }
    let source = one(
        r#"{"source":"https://h.test/a?s3cret","httpHeaders":[{"name":"X","value":"s3cret"}]}"#,
    );
    assert!(!format!("{source:?} {source}").contains("s3cret"));
}
