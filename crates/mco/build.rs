//! Passes the function order of `make dist` to the linker.
//!
//! `MCO_LAYOUT` is the path of the list that `xtask layout` writes: the functions that the
//! processes use, which are placed first. The kernel maps 64 kB of a program at a time; used
//! functions that are scattered among unused ones would fill memory with the latter.

use std::env;

#[expect(clippy::disallowed_methods, reason = "Cargo passes settings in environment variables")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MCO_LAYOUT");
    let Ok(order) = env::var("MCO_LAYOUT") else { return };
    println!("cargo::rerun-if-changed={order}");
    // Only the list needs symbol names, so they are stripped; the list may name functions that no
    // longer exist.
    let order = format!("--symbol-ordering-file={order}");
    // The loader reads all relocations of a program at its start; packed, they are a few pages.
    let packed = "-z,pack-relative-relocs";
    for option in [order.as_str(), "--no-warn-symbol-ordering", "--strip-all", packed] {
        println!("cargo::rustc-link-arg-bin=mco=-Wl,{option}");
    }
}
