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
/// token. Cluster, contexts and users are named after `name`, so that kubeconfigs can be merged.
pub(super) fn text(
    name: &str,
    address: SocketAddr,
    authority: &str,
    admin: &Pair,
    token: &str,
) -> String {
    let [authority, certificate, key] =
        [authority, &admin.certificate, &admin.key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
{SERVER}{address}
    certificate-authority-data: {authority}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}-admin
- name: {name}-token
  context:
    cluster: {name}
    user: {name}-admin-token
users:
- name: {name}-admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
- name: {name}-admin-token
  user:
    token: {token}
"
    )
}
