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

/// Applies the manifests of `deploy/`, without the CRDs, and returns the kubeconfig of a process.
pub fn account(server: &KubeApiServer, name: &str) -> anyhow::Result<PathBuf> {
    for (file, text) in xtask::manifests::files() {
        kubectl(server, &["apply", "-f", "-"], &text).with_context(|| format!("deploy/{file}"))?;
    }
    let words = ["create", "token", name, "-n", label::NAMESPACE, "--duration=24h"];
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
