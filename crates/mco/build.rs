//! Has the linker lay the program out as `make dist` found best.
//!
//! `MCO_LAYOUT` names the list that `xtask layout` makes: the functions that the processes use, which are
//! put first. The kernel maps 64 kB of a program at a time; functions that are used but lie scattered
//! among those that are not fill a machine's memory with the latter.

use std::env;

#[expect(clippy::disallowed_methods, reason = "this is how Cargo tells a build script of settings")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MCO_LAYOUT");
    let Ok(order) = env::var("MCO_LAYOUT") else { return };
    println!("cargo::rerun-if-changed={order}");
    // Only the list needed the names, and some of them may be gone by now.
    let order = format!("--symbol-ordering-file={order}");
    for option in [order.as_str(), "--no-warn-symbol-ordering", "--strip-all"] {
        println!("cargo::rustc-link-arg-bin=mco=-Wl,{option}");
    }
}
