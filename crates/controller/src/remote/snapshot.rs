//! Stores fetched contents in a Secret that the MachineConfig owns.

use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::Client;
use mco_api::{GROUP, VERSION, label};
use mco_cluster::{
    Api, CallError,
    apply::{self, Created},
};
use mco_core::render::remote::Source;

/// Key of the contents in the Secret.
const CONTENTS: &str = "contents";

/// A failure to store or read contents.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The Secret cannot be read.
    #[error("failed to read Secret {name}")]
    Read {
        /// The Secret.
        name: String,
        /// Cause of the failure.
        source: CallError,
    },
    /// The Secret cannot be created.
    #[error("failed to create Secret {name}")]
    Create {
        /// The Secret.
        name: String,
        /// Cause of the failure.
        source: CallError,
    },
    /// A Secret of that name exists that the controller did not create.
    #[error("Secret {name} has no key `contents`; delete it and the controller creates it anew")]
    Foreign {
        /// The Secret.
        name: String,
    },
}

fn name(key: &str) -> String {
    format!("remote-content-{key}")
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::own(client.clone())
}

/// Returns the contents that are stored under this key.
pub(super) async fn get(client: &Client, key: &str) -> Result<Option<Vec<u8>>, SnapshotError> {
    let name = name(key);
    let found = secrets(client).get_opt(&name).await.map_err(CallError::from);
    match found {
        Ok(None) => Ok(None),
        Ok(Some(secret)) => match secret.data.and_then(|mut data| data.remove(CONTENTS)) {
            Some(ByteString(contents)) => Ok(Some(contents)),
            None => Err(SnapshotError::Foreign { name }),
        },
        Err(source) => Err(SnapshotError::Read { name, source }),
    }
}

/// Stores contents. Returns those that are stored now: another process may have been faster.
pub(super) async fn store(
    client: &Client,
    key: &str,
    uid: &str,
    source: &Source,
    contents: Vec<u8>,
) -> Result<Vec<u8>, SnapshotError> {
    let name = name(key);
    let secret = secret(&name, uid, source, contents.clone());
    let created = apply::create(&secrets(client), &secret).await;
    match created {
        Ok(Created::Now(_)) => Ok(contents),
        Ok(Created::Before) => get(client, key).await?.ok_or(SnapshotError::Foreign { name }),
        Err(source) => Err(SnapshotError::Create { name, source }),
    }
}

fn secret(name: &str, uid: &str, source: &Source, contents: Vec<u8>) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.labels = Some([(label::REMOTE_CONTENT.to_owned(), String::new())].into());
    let description = source.to_string();
    secret.metadata.annotations = Some([(label::REMOTE_CONTENT.to_owned(), description)].into());
    secret.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "MachineConfig".to_owned(),
        name: source.config.clone(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    secret.immutable = Some(true);
    secret.data = Some([(CONTENTS.to_owned(), ByteString(contents))].into());
    secret
}
