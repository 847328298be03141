//! Tests of the `mco` binary: files, output and exit codes.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic fails the test")]
#![expect(clippy::needless_raw_string_hashes, reason = "snapbox writes snapshots that way")]

#[cfg(test)]
mod apiserver;
#[cfg(test)]
mod apiserver_watcher;
#[cfg(test)]
mod bootstrap;
mod check;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod components;
#[cfg(test)]
mod connection;
#[cfg(test)]
mod contents;
mod daemon;
mod diff;
#[cfg(test)]
mod doctor;
mod examples;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod first_boot;
#[cfg(test)]
mod forget;
#[cfg(test)]
mod hang;
#[cfg(test)]
mod health;
#[cfg(test)]
mod helm;
#[cfg(test)]
mod host;
#[cfg(test)]
mod install;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod live;
mod load;
#[cfg(test)]
mod log_level;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod must_gather;
#[cfg(test)]
mod operator_bootstrap;
mod plan;
#[cfg(test)]
mod processes;
mod readme;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod secure_metrics;
mod seed;
mod server;
mod settings;
#[cfg(test)]
mod shell;
mod show;
mod simulate;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod uninstall;
mod up;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod version;

use std::path::{Path, PathBuf};

use snapbox::cmd::Command;

/// Returns the command, run in the root of the repository, without colours.
fn mco(args: &[&str]) -> Command {
    Command::new(env!("CARGO_BIN_EXE_mco")).args(args).current_dir(workspace()).env("NO_COLOR", "1")
}

/// Returns the root of the repository.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A temporary directory of manifests.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            folder.write(name, bytes);
        }
        folder
    }

    #[expect(clippy::disallowed_methods, reason = "the test writes its input files")]
    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the test reads the output files")]
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the command, run in this directory.
    fn mco(&self, args: &[&str]) -> Command {
        mco(args).current_dir(self.0.path())
    }
}

/// Returns a text without the sequences that change the colour of a terminal.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(part.len());
        match part.get(end..).and_then(|rest| rest.strip_prefix('m')) {
            Some(rest) => plain.push_str(rest),
            None => plain.extend(["\u{1b}[", part]),
        }
    }
    plain
}

/// Returns a MachineConfig of the role worker with this text as its `spec`.
fn config(name: &str, spec: &str) -> String {
    let spec = indented(2, spec);
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  \
         name: {name}\n  labels:\n    machineconfiguration.openshift.io/role: worker\nspec:\n{spec}"
    )
}

/// Indents the lines.
fn indented(by: usize, text: &str) -> String {
    let lines = text.lines().flat_map(|line| [" ".repeat(by), line.to_owned(), "\n".to_owned()]);
    lines.collect()
}
