//! The command line of `mco server`, which is the reference's.

use snapbox::str;

use crate::mco;

// covers: S03
#[test]
fn the_apiserver_url_is_required() {
    mco(&["server", "start"]).assert().code(1).stderr_eq(str![[r#"
error: --apiserver-url cannot be empty

"#]]);
}

#[test]
fn flags_are_accepted_before_and_after_the_action() {
    for args in [
        ["server", "--secure-port", "1", "version"],
        ["server", "version", "--secure-port", "1"],
        ["server", "version", "--tls-cipher-suites", "a,b"],
    ] {
        let out = mco(&args).output().unwrap();
        assert!(out.status.success(), "{args:?}");
        assert!(out.stdout.starts_with(b"MachineConfigServer "), "{args:?}");
    }
}
