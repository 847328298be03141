//! Check for a container runtime that the OS of the pool does not have.

use mco_api::PoolName;
use mco_ignition::{
    Config,
    content::{ContentError, ContentLimit},
};

/// Directory of CRI-O drop-ins, read in the order of the file names; the last one wins.
const CRIO_SETTINGS: &str = "/etc/crio/crio.conf.d/";

/// The reason why the runtime is refused.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The OS has no runc.
    #[error(
        "MachineConfigPool {0} targets a RHEL 10 OS image where runc is not available. To unblock, migrate to crun by \
         removing any ContainerRuntimeConfig that sets defaultRuntime to runc, and removing any MachineConfig that sets \
         default_runtime = \"runc\" in CRI-O configuration under {CRIO_SETTINGS}"
    )]
    NoRunc(PoolName),
    /// The contents of a drop-in cannot be decoded.
    #[error("failed to decode CRI-O drop-in {path:?}")]
    Contents {
        /// Path of the drop-in.
        path: String,
        /// Decoding error.
        source: ContentError,
    },
    /// A drop-in is not valid TOML.
    #[error("failed to parse TOML from CRI-O drop-in {path:?}")]
    Toml {
        /// Path of the drop-in.
        path: String,
        /// Parse error.
        source: toml_edit::TomlError,
    },
}

/// Refuses runc if the OS of `stream` has none.
pub fn check_runtime(pool: &PoolName, config: &Config, stream: &str) -> Result<(), RuntimeError> {
    if !matches!(stream, "rhel-10" | "centos-10") {
        return Ok(());
    }
    match default_runtime(config)?.as_deref() {
        Some("runc") => Err(RuntimeError::NoRunc(pool.clone())),
        _ => Ok(()),
    }
}

fn default_runtime(config: &Config) -> Result<Option<String>, RuntimeError> {
    let mut files: Vec<_> =
        config.storage.files.iter().filter(|file| file.path.starts_with(CRIO_SETTINGS)).collect();
    files.sort_by(|left, right| left.path.cmp(&right.path));
    let mut effective = None;
    for file in files {
        let path = || file.path.clone();
        let bytes = file
            .contents
            .contents(ContentLimit::DEFAULT)
            .map_err(|source| RuntimeError::Contents { path: path(), source })?;
        let document: toml_edit::DocumentMut = String::from_utf8_lossy(&bytes)
            .parse()
            .map_err(|source| RuntimeError::Toml { path: path(), source })?;
        let runtime = document.get("crio").and_then(|crio| crio.get("runtime"));
        let chosen = runtime.and_then(|runtime| runtime.get("default_runtime"));
        if let Some(chosen) = chosen.and_then(|chosen| chosen.as_str()).filter(|s| !s.is_empty()) {
            effective = Some(chosen.to_owned());
        }
    }
    Ok(effective)
}

#[cfg(test)]
mod tests {
    use mco_ignition::{config::File, data_url};

    use super::*;

    fn config(files: &[(&str, &str)]) -> Config {
        let mut config = Config::empty();
        config.storage.files = files
            .iter()
            .map(|(path, contents)| {
                let mut file = File { path: (*path).to_owned(), ..File::default() };
                file.contents.source = Some(data_url::encode(contents.as_bytes()));
                file
            })
            .collect();
        config
    }

    // covers: REN-33
    #[test]
    fn runc_is_refused_if_the_os_has_none() {
        let runc = "[crio.runtime]\ndefault_runtime = \"runc\"\n";
        let crun = "[crio.runtime]\ndefault_runtime = \"crun\"\n";
        let other = "[crio.image]\npause_image = \"x\"\n";
        let (a, b) = ("/etc/crio/crio.conf.d/00-a", "/etc/crio/crio.conf.d/99-b");
        let cases = [
            ("runc on RHEL 10", vec![(a, runc)], "rhel-10", true),
            ("runc on CentOS 10", vec![(a, runc)], "centos-10", true),
            ("runc on RHEL 9", vec![(a, runc)], "rhel-9", false),
            ("a later file wins", vec![(b, crun), (a, runc)], "rhel-10", false),
            ("one without the setting does not", vec![(a, runc), (b, other)], "rhel-10", true),
            ("other files do not count", vec![("/etc/runc", runc)], "rhel-10", false),
        ];
        let pool = "worker".parse().expect("a valid pool name");
        for (case, files, stream, refused) in cases {
            let result = check_runtime(&pool, &config(&files), stream);
            assert_eq!(matches!(result, Err(RuntimeError::NoRunc(_))), refused, "{case}");
        }
    }

    // covers: REN-33
    #[test]
    fn an_invalid_toml_file_is_named() {
        let broken = config(&[("/etc/crio/crio.conf.d/x", "[crio")]);
        let refused = check_runtime(&"worker".parse().unwrap(), &broken, "rhel-10").unwrap_err();
        let expected = "failed to parse TOML from CRI-O drop-in \"/etc/crio/crio.conf.d/x\"";
        assert_eq!(refused.to_string(), expected);
    }
}
