//! A registry of images in the lab's network: Debian's `docker-registry`, without TLS.

use std::{fs, path::PathBuf};

use anyhow::Context as _;

use super::{Lab, Machine, control_plane};
use crate::api::Process;

const PORT: u16 = 5000;

/// A running registry. Stopped when dropped.
#[derive(Debug)]
pub struct Registry {
    process: Process,
}

impl Lab {
    /// Starts a registry. Its storage is removed with the lab.
    pub fn registry(&self) -> anyhow::Result<Registry> {
        let folder = self.folder.path.join("registry");
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        let config = folder.join("config.yml");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"0.0.0.0:{PORT}\"}}\n",
            folder.join("images").display()
        );
        fs::write(&config, text)
            .with_context(|| format!("failed to write {}", config.display()))?;
        let log: PathBuf = folder.join("log");
        let mut command = self.namespaces.enter(control_plane::GROUP);
        command.arg("docker-registry").arg("serve").arg(&config);
        Ok(Registry { process: Process::start("docker-registry", &mut command, &log)? })
    }
}

impl Registry {
    /// Returns host and port of the registry in the lab's network.
    #[must_use]
    pub fn host() -> String {
        format!("{}:{PORT}", control_plane::ADDRESS)
    }

    /// Pushes an image of a machine under this repository and tag.
    pub fn push(machine: &Machine, image: &str, repository: &str) -> anyhow::Result<()> {
        let target = format!("{}/{repository}", Self::host());
        let ctr = |words: &[&str]| machine.ask(&[&["ctr", "--namespace=k8s.io"], words].concat());
        ctr(&["images", "tag", "--force", image, &target])?;
        ctr(&["images", "push", "--plain-http", &target])?;
        ctr(&["images", "remove", &target])?;
        Ok(())
    }

    /// Returns the log, which has a line for each request.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
