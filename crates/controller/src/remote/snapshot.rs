//! Keeps what was fetched, in a Secret that belongs to the MachineConfig that asked for it.

use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client};
use mco_api::{GROUP, VERSION, label};
use mco_cluster::{
    CallError,
    apply::{self, Created},
};
use mco_core::render::remote::Source;

/// The member of the Secret that has the bytes.
const CONTENTS: &str = "contents";

/// Why contents cannot be kept, or be had again.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The Secret cannot be read.
    #[error("cannot read Secret {name}")]
    Read {
        /// The Secret.
        name: String,
        /// Why not.
        source: CallError,
    },
    /// The Secret cannot be made.
    #[error("cannot create Secret {name}")]
    Create {
        /// The Secret.
        name: String,
        /// Why not.
        source: CallError,
    },
    /// Somebody made a Secret of that name that is none of ours.
    #[error("Secret {name} has no member `contents`; delete it to have it made anew")]
    Foreign {
        /// The Secret.
        name: String,
    },
}

fn name(key: &str) -> String {
    format!("remote-content-{key}")
}

fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), label::NAMESPACE)
}

/// What is kept under this key.
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

/// Keeps contents; gives back those that count, which are another's if it was faster.
pub(super) async fn keep(
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
    let what = source.to_string();
    secret.metadata.annotations = Some([(label::REMOTE_CONTENT.to_owned(), what)].into());
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
