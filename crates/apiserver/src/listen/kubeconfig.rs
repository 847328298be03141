//! The kubeconfig for this server.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::tls::Pair;

/// Start of the line with the address.
const SERVER: &str = "    server: https://";

/// Returns the address in a kubeconfig of this server; `None` if someone edited it.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    text.lines().find_map(|line| line.strip_prefix(SERVER))?.parse().ok()
}

/// Builds a kubeconfig with two users: one with a client certificate (the default) and one with the
/// token.
pub(super) fn text(address: SocketAddr, authority: &str, admin: &Pair, token: &str) -> String {
    let [authority, certificate, key] =
        [authority, &admin.certificate, &admin.key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
current-context: mco
clusters:
- name: mco
  cluster:
{SERVER}{address}
    certificate-authority-data: {authority}
contexts:
- name: mco
  context:
    cluster: mco
    user: admin
- name: mco-token
  context:
    cluster: mco
    user: admin-token
users:
- name: admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
- name: admin-token
  user:
    token: {token}
"
    )
}
