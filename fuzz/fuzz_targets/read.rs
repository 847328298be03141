//! Fuzzes the parser: it must not panic, and a parsed config must survive being serialized and
//! parsed again.
//!
//! Run with `cargo +nightly fuzz run read`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_ignition::{check, read};

fuzz_target!(|raw: &[u8]| {
    let Ok(document) = read(raw) else { return };
    let Ok(config) = document.upgrade() else { return };
    if check(&config).is_ok() {
        let again = read(&config.to_json()).expect("a serialized config is valid");
        assert_eq!(again.upgrade().expect("a serialized config has the newest version"), config);
    }
});
