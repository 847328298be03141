//! Contents that MachineConfigs name elsewhere: fetched once, kept in the cluster, put into the
//! rendered config.
//!
//! What was fetched is kept in a Secret that belongs to the MachineConfig. As long as that asks for
//! the same it is never fetched again, whoever renders and however often, so that the same configs
//! give the same rendered config; it goes with the MachineConfig.

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
    remote::{RemoteError, Source, address::Reach},
};
use tracing::info;

pub use self::fetch::{FetchError, Fetcher};
use self::snapshot::SnapshotError;
use crate::Context;

/// How many contents are fetched at a time for one pool.
const WIDTH: usize = 4;

/// Why contents are not there. Trying again later may help.
#[derive(Debug, thiserror::Error)]
pub enum RemoteFailure {
    /// The setting is none.
    #[error(
        "annotation {key} of {object} says {text:?}; it can say enabled, local or disabled",
        key = annotation::REMOTE_CONTENT
    )]
    Setting {
        /// Where it stands.
        object: String,
        /// What it says.
        text: String,
    },
    /// Nobody gave them.
    #[error("cannot fetch {place}")]
    Fetch {
        /// What was asked for.
        place: String,
        /// Why not.
        source: FetchError,
    },
    /// They are not what they should be.
    #[error(transparent)]
    Wrong(#[from] RemoteError),
    /// They cannot be kept.
    #[error("cannot keep {place}")]
    Snapshot {
        /// What was asked for.
        place: String,
        /// Why not.
        source: SnapshotError,
    },
}

/// Whether contents are fetched, and from where; `None` if not.
///
/// People say so on their MachineConfiguration, else on the ControllerConfig.
pub fn reach(
    settings: Option<&MachineConfiguration>,
    cluster: &ControllerConfig,
) -> Result<Option<Reach>, RemoteFailure> {
    let key = annotation::REMOTE_CONTENT.name();
    let said = settings.and_then(|settings| {
        let said = settings.annotations().get(key)?;
        Some((format!("MachineConfiguration {}", settings.name_any()), said))
    });
    let said = said.or_else(|| {
        let said = cluster.annotations().get(key)?;
        Some((format!("ControllerConfig {}", cluster.name_any()), said))
    });
    let Some((object, text)) = said.filter(|(_, text)| !text.is_empty()) else {
        return Ok(Some(Reach::Others));
    };
    match RemoteContent::from(text.as_str()) {
        RemoteContent::Enabled => Ok(Some(Reach::Others)),
        RemoteContent::Local => Ok(Some(Reach::Local)),
        RemoteContent::Disabled => Ok(None),
        RemoteContent::Other(text) => Err(RemoteFailure::Setting { object, text }),
    }
}

/// Puts in what the draft names elsewhere, from what is kept or else from where it is.
pub(crate) async fn embed(
    context: &Context,
    cluster: &ControllerConfig,
    draft: &mut Draft,
) -> Result<(), RemoteFailure> {
    let sources = draft.remote();
    if sources.is_empty() {
        return Ok(());
    }
    let settings = context.caches.settings();
    let Some(reach) = reach(settings.as_deref(), cluster)? else { return Ok(()) };
    let sources: Vec<Wanted> = sources
        .into_iter()
        .map(|source| {
            let config = context.caches.configs.get(&source.config);
            let uid = config.and_then(|config| config.uid()).unwrap_or_default();
            Wanted { key: source.key(&uid), uid, source }
        })
        .collect();
    // Several files may ask for the same.
    let distinct: BTreeMap<String, Wanted> =
        sources.iter().map(|wanted| (wanted.key.clone(), wanted.clone())).collect();
    let fetcher = &Fetcher::for_cluster(cluster, reach).await;
    let contents: BTreeMap<String, Vec<u8>> = stream::iter(distinct.into_values())
        .map(|wanted| async move {
            let contents = contents(context, fetcher, &wanted).await?;
            Ok::<_, RemoteFailure>((wanted.key, contents))
        })
        .buffer_unordered(WIDTH)
        .try_collect()
        .await?;
    for wanted in &sources {
        if let Some(contents) = contents.get(&wanted.key) {
            draft.embed(&wanted.source, contents)?;
        }
    }
    Ok(())
}

/// Contents to have, and the name that they are kept under.
#[derive(Clone)]
struct Wanted {
    key: String,
    /// Identity of the MachineConfig that asks for them.
    uid: String,
    source: Source,
}

/// Puts in what the draft names elsewhere, where there is no cluster to keep it yet.
pub async fn embed_once(fetcher: &Fetcher, draft: &mut Draft) -> Result<(), RemoteFailure> {
    for source in draft.remote() {
        let contents = fetch(fetcher, &source).await?;
        draft.embed(&source, &contents)?;
    }
    Ok(())
}

async fn contents(
    context: &Context,
    fetcher: &Fetcher,
    Wanted { key, uid, source }: &Wanted,
) -> Result<Vec<u8>, RemoteFailure> {
    let failed = |error| RemoteFailure::Snapshot { place: source.to_string(), source: error };
    if let Some(kept) = snapshot::get(&context.client, key).await.map_err(failed)? {
        return Ok(kept);
    }
    let contents = fetch(fetcher, source).await?;
    // Only what is right is kept: the next try may get something better.
    source.check(&contents)?;
    info!(%source, bytes = contents.len(), "Fetched contents of a file");
    snapshot::keep(&context.client, key, uid, source, contents).await.map_err(failed)
}

async fn fetch(fetcher: &Fetcher, source: &Source) -> Result<Vec<u8>, RemoteFailure> {
    let answer = fetcher.fetch(source).await;
    answer.map_err(|error| RemoteFailure::Fetch { place: source.to_string(), source: error })
}
