//! Objects as undecoded text, so that lists and watches are compiled once for all kinds.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::{
    Error, Resource,
    core::{ApiResource, DynamicResourceScope},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

/// An object of any kind: its text, and the resource version that a watch continues from.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    metadata: ObjectMeta,
    json: Box<RawValue>,
}

impl Raw {
    /// Returns the object's text.
    pub(crate) fn json(&self) -> &str {
        self.json.get()
    }
}

/// The only part of an object that a watch reads.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Version,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let head: Head = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let resource_version = head.metadata.resource_version;
        Ok(Self { metadata: ObjectMeta { resource_version, ..ObjectMeta::default() }, json })
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A list of objects whose items are still text.
#[derive(Deserialize)]
pub(super) struct List<'a> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(borrow, default)]
    pub(super) items: Vec<&'a RawValue>,
}

impl<'a> List<'a> {
    /// Reads a list.
    pub(super) fn decode(json: &'a str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(Error::SerdeError)
    }
}
