//! The certificate of the config server, made at the first start and kept.

use anyhow::Context as _;
use mco_host::Root;
use mco_server::Certificate;

use super::place::Place;

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Names the server answers to.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Where the certificate is; made where it is missing.
pub(crate) fn certificate(place: &Place) -> anyhow::Result<Certificate> {
    let dir = place.server();
    let root = Root::create(&dir)?;
    // The key is written last: with it there, the certificate is too.
    if !root.exists(&format!("/{KEY}"))? {
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned));
        let made = made.context("cannot make a certificate for the config server")?;
        root.write(&format!("/{CHAIN}"), made.cert.pem().as_bytes(), 0o644)?;
        root.write(&format!("/{KEY}"), made.signing_key.serialize_pem().as_bytes(), 0o600)?;
    }
    Ok(Certificate::files(dir.join(CHAIN), dir.join(KEY)))
}
