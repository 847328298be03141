//! Development tasks that the lab and the tests use too: manifests, images, releases. Nothing ships
//! this crate.

pub mod image;
pub mod layout;
pub mod manifests;
pub mod mutants;
pub mod pages;
pub mod release;
pub mod suite;

/// Returns bytes as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}
