//! The certificate of the config server, created at the first start and kept in the state
//! directory.

use anyhow::Context as _;
use mco_host::Root;
use mco_server::Certificate;

use super::state_dir::StateDir;

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Names in the certificate.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Returns the paths of the certificate, which is created if missing.
pub(crate) fn load_or_create(state: &StateDir) -> anyhow::Result<Certificate> {
    let dir = state.server();
    let root = Root::create(&dir)?;
    // The key is written last: if the key exists, the certificate does too.
    if !root.exists(&format!("/{KEY}"))? {
        let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned));
        let made = made.context("failed to create a certificate for the config server")?;
        root.write(&format!("/{CHAIN}"), made.cert.pem().as_bytes(), 0o644)?;
        root.write(&format!("/{KEY}"), made.signing_key.serialize_pem().as_bytes(), 0o600)?;
    }
    Ok(Certificate::files(dir.join(CHAIN), dir.join(KEY)))
}
