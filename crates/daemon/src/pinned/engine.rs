//! The container engine, through its command lines. The engine itself reads the machine's pull
//! secret and registries.conf, so that neither credentials nor mirrors are handled here.

use std::collections::BTreeSet;

use mco_host::{Root, RootError, SystemError};
use serde::Deserialize;

use super::{PinError, RunCommand};

/// Path of the machine's pull secret.
const AUTH: &str = "/var/lib/kubelet/config.json";

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
    /// Manifests of a list, one for each platform.
    #[serde(default)]
    manifests: Vec<ListedManifest>,
}

#[derive(Deserialize)]
struct ListedManifest {
    digest: String,
    #[serde(default)]
    platform: Platform,
}

#[derive(Default, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
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
        let pulled = run(&[self.crictl, "pull", image]);
        pulled.map(drop).map_err(|source| PinError::Pull { image: image.to_owned(), source })
    }

    /// Returns the bytes that these images need; zero if the size cannot be read.
    pub(super) fn size(self, run: &RunCommand, images: &[String]) -> Result<u64, PinError> {
        let Some(podman) = self.podman else { return Ok(0) };
        let mut layers = BTreeSet::new();
        let mut bytes = 0_u64;
        for image in images {
            for layer in manifest(run, podman, image)?.layers {
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

/// Fetches the manifest of an image; of a list, that for this machine.
fn manifest(run: &RunCommand, podman: &str, image: &str) -> Result<Manifest, PinError> {
    let failed = |source| PinError::Inspect { image: image.to_owned(), source };
    let command = format!("{podman} manifest inspect");
    let fault = |fault: String| failed(SystemError::Command { command: command.clone(), fault });
    let inspect = |name: &str| -> Result<Manifest, PinError> {
        let words = [podman, "manifest", "inspect", "--authfile", AUTH, name];
        let text = run(&words).map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| fault(error.to_string()))
    };
    let found = inspect(image)?;
    if found.manifests.is_empty() {
        return Ok(found);
    }
    let own = architecture();
    let is_own =
        |it: &&ListedManifest| it.platform.os == "linux" && it.platform.architecture == own;
    let listed = found.manifests.iter().find(is_own);
    let listed = listed.ok_or_else(|| fault(format!("no manifest for linux/{own}")))?;
    inspect(&format!("{}@{}", repository(image), listed.digest))
}

/// Returns the name of an image without its tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    match name.rsplit_once(':') {
        // A port of the registry has a path behind it.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// Returns the architecture of this machine in the words of manifests.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn an_image_is_named_without_tag_and_digest() {
        for (image, want) in [
            ("q.example/a@sha256:1", "q.example/a"),
            ("q.example:5000/a:v1@sha256:1", "q.example:5000/a"),
            ("q.example:5000/a", "q.example:5000/a"),
            ("a:latest", "a"),
        ] {
            assert_eq!(repository(image), want);
        }
    }

    // covers: C115
    #[test]
    fn the_size_of_a_list_is_that_of_the_manifest_for_this_machine() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let own = architecture();
        let list = format!(
            r#"{{"manifests": [
            {{"digest": "sha256:2", "size": 1, "platform": {{"architecture": "other", "os": "linux"}}}},
            {{"digest": "sha256:3", "size": 1, "platform": {{"architecture": "{own}", "os": "windows"}}}},
            {{"digest": "sha256:4", "size": 1, "platform": {{"architecture": "{own}", "os": "linux"}}}}]}}"#
        );
        let log = Arc::clone(&asked);
        let run: RunCommand = Arc::new(move |words: &[&str]| {
            let name = (*words.last().unwrap()).to_owned();
            log.lock().unwrap().push(name.clone());
            Ok(match name.as_str() {
                "q.example/a@sha256:1" => list.clone(),
                "q.example/a@sha256:4" => {
                    r#"{"layers": [{"digest": "x", "size": 10}, {"digest": "y", "size": 5}]}"#
                        .to_owned()
                }
                "q.example/b@sha256:9" => r#"{"layers": [{"digest": "x", "size": 10}]}"#.to_owned(),
                "q.example/c@sha256:7" => r#"{"manifests": [{"digest": "sha256:8"}]}"#.to_owned(),
                other => panic!("{other} was inspected"),
            })
        });
        let engine = Engine { crictl: "crictl", podman: Some("podman") };
        let images = ["q.example/a@sha256:1", "q.example/b@sha256:9"].map(str::to_owned);
        assert_eq!(engine.size(&run, &images).unwrap(), 30, "shared layers count once");
        let want = ["q.example/a@sha256:1", "q.example/a@sha256:4", "q.example/b@sha256:9"];
        assert_eq!(*asked.lock().unwrap(), want);
        let error = engine.size(&run, &["q.example/c@sha256:7".to_owned()]).unwrap_err();
        let text = mco_cluster::report::chain(&error);
        assert!(text.ends_with(&format!("no manifest for linux/{own}")), "{text}");
    }
}
