//! `mco server`: the reference's command line.

use snapbox::str;

use crate::mco;

// covers: S03
#[test]
fn the_address_for_new_machines_must_be_given() {
    mco(&["server", "start"]).assert().code(1).stderr_eq(str![[r#"
error: --apiserver-url cannot be empty

"#]]);
}

#[test]
fn flags_stand_before_or_behind_the_action() {
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
