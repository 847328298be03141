//! Remote contents that MachineConfigs refer to by URL: fetched once, stored in the cluster,
//! embedded into the rendered config.
//!
//! Fetched contents are stored in a Secret that the MachineConfig owns. As long as the
//! MachineConfig refers to the same source, its contents are never fetched again, so that the same
//! configs always give the same rendered config. The garbage collector deletes the Secret together
//! with the MachineConfig.

mod connect;
mod fetch;
mod snapshot;
mod target;

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use mco_api::{ControllerConfig, MachineConfiguration, annotation, annotation::RemoteContent};
use mco_core::render::{
    Draft,
    remote::{RemoteError, Source, address::AddressPolicy},
};
use tracing::info;

pub use self::fetch::{FetchError, Fetcher};
use self::snapshot::SnapshotError;
use crate::Context;

/// Number of concurrent fetches for one pool.
const FETCH_CONCURRENCY: usize = 4;

/// A failure to get remote contents. A retry may succeed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteFailure {
    /// The annotation has an unknown value.
    #[error(
        "annotation {key} of {object} is {text:?}; set it to enabled, local or disabled",
        key = annotation::REMOTE_CONTENT
    )]
    Setting {
        /// Object with the annotation.
        object: String,
        /// Value of the annotation.
        text: String,
    },
    /// The contents cannot be fetched.
    #[error("failed to fetch {place}")]
    Fetch {
        /// URL of the contents.
        place: String,
        /// Cause of the failure.
        source: FetchError,
    },
    /// The contents do not match their verification.
    #[error(transparent)]
    Wrong(#[from] RemoteError),
    /// The contents cannot be stored.
    #[error("failed to store the contents of {place}")]
    Snapshot {
        /// URL of the contents.
        place: String,
        /// Cause of the failure.
        source: SnapshotError,
    },
}

/// Returns the addresses from which contents may be fetched; `None` if remote contents are
/// disabled.
///
/// The annotation on the MachineConfiguration takes precedence over the one on the
/// ControllerConfig.
pub(crate) fn reach_setting(
    settings: Option<&MachineConfiguration>,
    controller_config: &ControllerConfig,
) -> Result<Option<AddressPolicy>, RemoteFailure> {
    let key = annotation::REMOTE_CONTENT.name();
    let setting = settings.and_then(|settings| {
        let setting = settings.annotations().get(key)?;
        Some((format!("MachineConfiguration {}", settings.name_any()), setting))
    });
    let setting = setting.or_else(|| {
        let setting = controller_config.annotations().get(key)?;
        Some((format!("ControllerConfig {}", controller_config.name_any()), setting))
    });
    let Some((object, text)) = setting.filter(|(_, text)| !text.is_empty()) else {
        return Ok(Some(AddressPolicy::RemoteOnly));
    };
    match RemoteContent::from(text.as_str()) {
        RemoteContent::Enabled => Ok(Some(AddressPolicy::RemoteOnly)),
        RemoteContent::Private => Ok(Some(AddressPolicy::AllowPrivate)),
        RemoteContent::Local => Ok(Some(AddressPolicy::AllowLocal)),
        RemoteContent::Disabled => Ok(None),
        RemoteContent::Other(text) => Err(RemoteFailure::Setting { object, text }),
    }
}

/// Embeds the remote contents of the draft, from their Secrets or else from their URLs.
pub(crate) async fn fetch_and_embed(
    context: &Context,
    controller_config: &ControllerConfig,
    draft: &mut Draft,
) -> Result<(), RemoteFailure> {
    let sources = draft.remote();
    if sources.is_empty() {
        return Ok(());
    }
    let settings = context.caches.machine_configuration();
    let Some(reach) = reach_setting(settings.as_deref(), controller_config)? else { return Ok(()) };
    let sources: Vec<RemoteContents> = sources
        .into_iter()
        .map(|source| {
            let config = context.caches.configs.get(&source.config);
            let uid = config.and_then(|config| config.uid()).unwrap_or_default();
            RemoteContents { key: source.key(&uid), uid, source }
        })
        .collect();
    // Several files may refer to the same contents.
    let distinct: BTreeMap<String, RemoteContents> =
        sources.iter().map(|wanted| (wanted.key.clone(), wanted.clone())).collect();
    let fetcher = &Fetcher::for_cluster(controller_config, reach).await;
    let contents: BTreeMap<String, Vec<u8>> = stream::iter(distinct.into_values())
        .map(|wanted| async move {
            let contents = get_contents(context, fetcher, &wanted).await?;
            Ok::<_, RemoteFailure>((wanted.key, contents))
        })
        .buffer_unordered(FETCH_CONCURRENCY)
        .try_collect()
        .await?;
    for wanted in &sources {
        if let Some(contents) = contents.get(&wanted.key) {
            draft.embed(&wanted.source, contents)?;
        }
    }
    Ok(())
}

/// Contents to embed, and the key of their Secret.
#[derive(Clone)]
struct RemoteContents {
    key: String,
    /// UID of the MachineConfig that refers to them.
    uid: String,
    source: Source,
}

/// Embeds the remote contents of the draft during bootstrap, without a cluster to store them in.
pub(crate) async fn fetch_and_embed_once(
    fetcher: &Fetcher,
    draft: &mut Draft,
) -> Result<(), RemoteFailure> {
    for source in draft.remote() {
        let contents = fetch(fetcher, &source).await?;
        draft.embed(&source, &contents)?;
    }
    Ok(())
}

async fn get_contents(
    context: &Context,
    fetcher: &Fetcher,
    RemoteContents { key, uid, source }: &RemoteContents,
) -> Result<Vec<u8>, RemoteFailure> {
    let failed = |error| RemoteFailure::Snapshot { place: source.to_string(), source: error };
    if let Some(stored) = snapshot::get(&context.client, key).await.map_err(failed)? {
        return Ok(stored);
    }
    let contents = fetch(fetcher, source).await?;
    // Only valid contents are stored: a retry may get better ones.
    source.check(&contents)?;
    info!(%source, bytes = contents.len(), "Fetched remote contents");
    snapshot::store(&context.client, key, uid, source, contents).await.map_err(failed)
}

async fn fetch(fetcher: &Fetcher, source: &Source) -> Result<Vec<u8>, RemoteFailure> {
    let response = fetcher.fetch(source).await;
    response.map_err(|error| RemoteFailure::Fetch { place: source.to_string(), source: error })
}
