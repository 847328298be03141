//! A process of `deploy/` as the API server sees it: its ServiceAccount with the rights of its
//! manifest.

#![expect(clippy::disallowed_methods, reason = "runs kubectl and writes a kubeconfig")]

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use mco_api::label;
use serde_json::{Value, json};

use super::{ApiServer as _, KubeApiServer};

/// Applies all objects of an installation but the CRDs, and returns the kubeconfig of a process.
pub fn account(server: &KubeApiServer, name: &str) -> anyhow::Result<PathBuf> {
    let mut objects = xtask::manifests::everything();
    // The cluster lacks the kinds of the first, and lets only the operator write the second again.
    let left_out = ["monitoring.coreos.com/v1", "networking.k8s.io/v1"];
    objects.retain(|object| left_out.iter().all(|it| object["apiVersion"] != *it));
    // As the operator does, so that its own apply finds nothing to change.
    let words = ["apply", "--server-side", "--field-manager=machine-config-operator", "-f", "-"];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    kubectl(server, &words, &list.to_string()).context("failed to apply the manifests")?;
    account_kubeconfig(server, name)
}

/// Installs `mco` as a user does, and returns the kubeconfig of the operator.
pub fn install(server: &KubeApiServer) -> anyhow::Result<PathBuf> {
    kubectl(server, &["apply", "-f", "-"], &xtask::manifests::stream())
        .context("failed to apply the manifests")?;
    account_kubeconfig(server, "machine-config-operator")
}

/// Installs `mco` into another namespace, and returns the kubeconfig of the operator.
pub fn install_in(server: &KubeApiServer, namespace: &str) -> anyhow::Result<PathBuf> {
    kubectl(server, &["apply", "-f", "-"], &xtask::manifests::stream_in(namespace))
        .context("failed to apply the manifests")?;
    account_kubeconfig_in(server, namespace, "machine-config-operator")
}

/// Returns the kubeconfig of a process, with a token of its service account.
pub fn account_kubeconfig(server: &KubeApiServer, name: &str) -> anyhow::Result<PathBuf> {
    account_kubeconfig_in(server, label::NAMESPACE, name)
}

fn account_kubeconfig_in(
    server: &KubeApiServer,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PathBuf> {
    let words = ["create", "token", name, "-n", namespace, "--duration=24h"];
    let token = kubectl(server, &words, "")?;
    let text = kubectl(server, &["config", "view", "--raw", "--minify", "-o", "json"], "")?;
    let mut config: Value = serde_json::from_str(&text)?;
    let user = config.pointer_mut("/users/0/user").context("a kubeconfig has a user")?;
    *user = json!({"token": token.trim()});
    let path = server.file(&format!("{name}.kubeconfig"));
    fs::write(&path, config.to_string())?;
    Ok(path)
}

fn kubectl(server: &KubeApiServer, words: &[&str], input: &str) -> anyhow::Result<String> {
    let mut command = Command::new(server.kubectl());
    command.arg("--kubeconfig").arg(server.kubeconfig()).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("failed to start kubectl")?;
    child.stdin.take().context("a piped standard input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {} failed: {error}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
