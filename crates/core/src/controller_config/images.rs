//! The file `images.json`: the images of a release.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Images of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseImages {
    /// Images by their name in the ControllerConfig.
    pub images: BTreeMap<String, String>,
    /// OS image; may be empty.
    pub os_image: String,
    /// Extensions image that fits the OS image; may be empty.
    pub os_extensions_image: String,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImagesError {
    /// The file cannot be read.
    #[error("failed to read images.json: {0}; check --images-json")]
    Read(String),
    /// The text is no JSON object.
    #[error(
        "images.json is not a JSON object with the keys releaseVersion and machineConfigOperator"
    )]
    Json,
    /// The file is that of another release. Compat: the reference's text.
    #[error("refusing to read images.json version {found:?}, operator version {expected:?}")]
    Version {
        /// Version in the file.
        found: String,
        /// Version of the operator.
        expected: String,
    },
}

/// Keys in the file, older spelling second, and the names in a ControllerConfig.
const NAMES: [([&str; 2], &str); 8] = [
    (["machineConfigOperator", ""], "machineConfigOperator"),
    (["infraImage", ""], "infraImageKey"),
    (["keepalivedImage", "keepalived"], "keepalivedImage"),
    (["corednsImage", "coredns"], "corednsImage"),
    (["haproxyImage", ""], "haproxyImage"),
    (["baremetalRuntimeCfgImage", "baremetalRuntimeCfg"], "baremetalRuntimeCfgImage"),
    (["kubeRbacProxy", ""], "kubeRbacProxyImage"),
    (["dockerRegistryImage", "dockerRegistry"], "dockerRegistryImage"),
];

/// Reads `images.json`. The file must be that of `release`.
pub fn release_images(text: &str, release: &str) -> Result<ReleaseImages, ImagesError> {
    let file: Map<String, Value> = serde_json::from_str(text).map_err(|_| ImagesError::Json)?;
    let read = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = read("releaseVersion");
    if found != release {
        return Err(ImagesError::Version { found, expected: release.to_owned() });
    }
    let first = |keys: [&str; 2]| keys.into_iter().map(read).find(|image| !image.is_empty());
    let named = NAMES.into_iter().filter_map(|(keys, name)| Some((name.to_owned(), first(keys)?)));
    let mut images: BTreeMap<String, String> = named.collect();
    if let Some(own) = images.get("machineConfigOperator").cloned() {
        images.insert("apiServerWatcherKey".to_owned(), own);
    }
    Ok(ReleaseImages {
        images,
        os_image: read("baseOSContainerImage"),
        os_extensions_image: read("baseOSExtensionsContainerImage"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // covers: O02
    #[test]
    fn images_of_another_release_are_refused() {
        let file = json!({"releaseVersion": "4.20.1", "machineConfigOperator": "mco", "infraImage": "pod",
            "keepalived": "old", "baseOSContainerImage": "os", "oauthProxy": "unused"});
        let found = release_images(&file.to_string(), "4.20.1").unwrap();
        let expected = json!({"machineConfigOperator": "mco", "apiServerWatcherKey": "mco",
            "infraImageKey": "pod", "keepalivedImage": "old"});
        assert_eq!(json!(found.images), expected);
        assert_eq!((found.os_image.as_str(), found.os_extensions_image.as_str()), ("os", ""));
        let error = release_images(&file.to_string(), "4.21.0").unwrap_err().to_string();
        let expected =
            "refusing to read images.json version \"4.20.1\", operator version \"4.21.0\"";
        assert_eq!(error, expected);
        assert_eq!(release_images("[]", "4.20.1"), Err(ImagesError::Json));
    }
}
