//! Lists of objects as undecoded text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Error;
use serde::Deserialize;
use serde_json::value::RawValue;

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
