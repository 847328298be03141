//! The kubeconfig with which the kubelet of a new machine first connects to the API server.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_core::goyaml::{self, UnreadableText};
use mco_ignition::tree::Tree;

/// Builds the kubeconfig; `ca` is PEM, and `token` may only request a client certificate.
pub(crate) fn yaml(server: &str, ca: &[u8], token: &str) -> Result<String, UnreadableText> {
    let ca = STANDARD.encode(ca);
    let mut cluster = Vec::new();
    if !ca.is_empty() {
        cluster.push(("certificate-authority-data", Tree::Text(&ca)));
    }
    cluster.push(("server", Tree::Text(server)));
    let mut user = Vec::new();
    if !token.is_empty() {
        user.push(("token", Tree::Text(token)));
    }
    let context = vec![("cluster", Tree::Text("local")), ("user", Tree::Text("kubelet"))];
    let document = Tree::Object(vec![
        ("clusters", named("cluster", cluster, "local")),
        ("contexts", named("context", context, "kubelet")),
        ("current-context", Tree::Text("kubelet")),
        ("users", named("user", user, "kubelet")),
    ]);
    let mut yaml = Vec::new();
    goyaml::write(&document, &mut yaml)?;
    Ok(String::from_utf8(yaml).expect("YAML built from strings is UTF-8"))
}

/// Builds a list of one named entry.
fn named<'a>(
    member: &'static str,
    holds: Vec<(&'static str, Tree<'a>)>,
    name: &'a str,
) -> Tree<'a> {
    let mut entry = vec![(member, Tree::Object(holds)), ("name", Tree::Text(name))];
    entry.sort_by_key(|(name, _)| *name);
    Tree::List(vec![Tree::Object(entry)])
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: S31
    #[test]
    fn one_cluster_one_user_one_context() {
        let written = yaml("https://api-int.example.com:6443", b"--ca--", "to.ken").unwrap();
        let expected = "\
clusters:
- cluster:
    certificate-authority-data: LS1jYS0t
    server: https://api-int.example.com:6443
  name: local
contexts:
- context:
    cluster: local
    user: kubelet
  name: kubelet
current-context: kubelet
users:
- name: kubelet
  user:
    token: to.ken
";
        assert_eq!(written, expected);
    }
}
