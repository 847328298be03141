//! The container engine, through its command lines. The engine itself reads the machine's pull
//! secret and registries.conf, so that neither credentials nor mirrors are handled here.

use std::collections::BTreeSet;

use mco_host::{Root, RootError, SystemError};
use serde::Deserialize;

use super::{PinError, RunCommand};

/// Path of the machine's pull secret.
const AUTH: &str = "/var/lib/kubelet/config.json";

/// Attempts of a pull.
const ATTEMPTS: usize = 5;

/// The command lines of the container engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Engine {
    crictl: &'static str,
    /// Reads the size of an image before it is pulled, if installed.
    podman: Option<&'static str>,
}

#[derive(Deserialize)]
struct Images {
    #[serde(default)]
    images: Vec<Image>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    #[serde(default)]
    repo_digests: Vec<String>,
    #[serde(default)]
    repo_tags: Vec<String>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
    #[serde(default)]
    size: u64,
}

impl Engine {
    /// Finds the commands on the machine below `root`.
    pub(super) fn find(root: &Root) -> Result<Self, RootError> {
        let first = |paths: [&'static str; 2]| -> Result<Option<&'static str>, RootError> {
            for path in paths {
                if root.exists(path)? {
                    return Ok(Some(path));
                }
            }
            Ok(None)
        };
        let crictl = first(["/usr/bin/crictl", "/usr/local/bin/crictl"])?;
        let podman = first(["/usr/bin/podman", "/usr/local/bin/podman"])?;
        // If crictl is missing, its first call fails.
        Ok(Self { crictl: crictl.unwrap_or("/usr/bin/crictl"), podman })
    }

    /// Returns the images that the machine does not have.
    pub(super) fn missing(
        self,
        run: &RunCommand,
        images: &[String],
    ) -> Result<Vec<String>, PinError> {
        let text = run(&[self.crictl, "images", "-o", "json"]).map_err(PinError::List)?;
        let list: Images = serde_json::from_str(&text).map_err(|error| {
            let (command, fault) = (format!("{} images", self.crictl), error.to_string());
            PinError::List(SystemError::Command { command, fault })
        })?;
        let has: BTreeSet<String> = list
            .images
            .into_iter()
            .flat_map(|it| it.repo_digests.into_iter().chain(it.repo_tags))
            .collect();
        Ok(images.iter().filter(|image| !has.contains(*image)).cloned().collect())
    }

    /// Pulls one image.
    pub(super) fn pull(self, run: &RunCommand, image: &str) -> Result<(), PinError> {
        let mut attempts = 0;
        loop {
            let Err(fault) = run(&[self.crictl, "pull", image]) else { return Ok(()) };
            attempts += 1;
            // A full disk is not retried.
            let is_full = fault.to_string().contains("no space left on device");
            if attempts == ATTEMPTS || is_full {
                return Err(PinError::Pull { image: image.to_owned(), source: fault });
            }
        }
    }

    /// Returns the bytes that these images need; zero if the size cannot be read.
    pub(super) fn size(self, run: &RunCommand, images: &[String]) -> Result<u64, PinError> {
        let Some(podman) = self.podman else { return Ok(0) };
        let mut layers = BTreeSet::new();
        let mut bytes = 0_u64;
        for image in images {
            let failed = |source| PinError::Inspect { image: image.clone(), source };
            let text =
                run(&[podman, "manifest", "inspect", "--authfile", AUTH, image]).map_err(failed)?;
            let manifest: Manifest = serde_json::from_str(&text).map_err(|error| {
                let command = format!("{podman} manifest inspect");
                failed(SystemError::Command { command, fault: error.to_string() })
            })?;
            for layer in manifest.layers {
                if layers.insert(layer.digest) {
                    // Compat: twice, because layers are compressed
                    // (pkg/daemon/pinned_image_set.go).
                    bytes = bytes.saturating_add(layer.size.saturating_mul(2));
                }
            }
        }
        Ok(bytes)
    }
}
