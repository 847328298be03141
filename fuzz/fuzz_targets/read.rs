//! Reading must not panic, and what is read must survive being written and read again.
//!
//! Run with `cargo +nightly fuzz run read`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_ignition::{check, read};

fuzz_target!(|raw: &[u8]| {
    let Ok(document) = read(raw) else { return };
    let Ok(config) = document.upgrade() else { return };
    if check(&config).is_ok() {
        let again = read(&config.to_json()).expect("what we write is valid");
        assert_eq!(again.upgrade().expect("it is in the newest version"), config);
    }
});
