//! The container engine, by its command lines. Credentials and mirrors are the engine's own affair: it
//! reads the pull secret and registries.conf of the machine, so none of them passes through here.

use std::collections::BTreeSet;

use mco_host::{Root, RootError, SystemError};
use serde::Deserialize;

use super::{PinError, RunCommand};

/// Where the machine's pull secret is.
const AUTH: &str = "/var/lib/kubelet/config.json";

/// A pull is tried so often.
const TRIES: usize = 5;

/// How the machine's images are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Engine {
    crictl: &'static str,
    /// Tells how large an image is before it is pulled, where it is there.
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
    /// The commands of the machine below `root`.
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
        // A machine without it says so when it is called.
        Ok(Self { crictl: crictl.unwrap_or("/usr/bin/crictl"), podman })
    }

    /// Which of these images the machine does not have.
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
        let mut tries = 0;
        loop {
            let Err(fault) = run(&[self.crictl, "pull", image]) else { return Ok(()) };
            tries += 1;
            // More tries make no more room.
            let is_full = fault.to_string().contains("no space left on device");
            if tries == TRIES || is_full {
                return Err(PinError::Pull { image: image.to_owned(), source: fault });
            }
        }
    }

    /// How many bytes these images need; zero where nobody can tell.
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
                    // Compat: twice, for layers are compressed (pkg/daemon/pinned_image_set.go).
                    bytes = bytes.saturating_add(layer.size.saturating_mul(2));
                }
            }
        }
        Ok(bytes)
    }
}
