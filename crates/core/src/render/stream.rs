//! Selection of the OS images of a pool in a cluster with several OS image streams.

use mco_api::{
    MachineConfigPool, OSImageStream, PoolName, annotation, os_image_stream::OSImageStreamSet,
};

use super::{BaseImages, Build};

/// The reason why no stream can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The `OSImageStream` is of another build.
    #[error("ignoring OSImageStream with version {found} (my version: {mine})")]
    Skew {
        /// Build of the `OSImageStream`.
        found: String,
        /// Running build.
        mine: String,
    },
    /// The `OSImageStream` has no version.
    #[error("ignoring OSImageStream without {key} annotation (my version: {mine})")]
    Unmarked {
        /// Missing annotation.
        key: &'static str,
        /// Running build.
        mine: String,
    },
    /// The requested stream does not exist.
    #[error(
        "could not get OSImageStreamSet for pool {pool}: requested {stream:?} is not available; the cluster has {available}"
    )]
    Unknown {
        /// Name of the pool.
        pool: String,
        /// Requested stream.
        stream: String,
        /// Available streams.
        available: String,
    },
}

/// Returns the stream of `pool`: its own, that of the worker pool for a custom pool, or the
/// default.
pub fn stream_of<'a>(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: &'a OSImageStream,
    build: &Build,
) -> Result<&'a OSImageStreamSet, StreamError> {
    let mine = || build.hash.clone();
    let key = annotation::RELEASE_IMAGE_VERSION.name();
    match streams.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)) {
        None => return Err(StreamError::Unmarked { key, mine: mine() }),
        Some(found) if *found != build.hash => {
            return Err(StreamError::Skew { found: found.clone(), mine: mine() });
        }
        Some(_) => {}
    }
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let is_custom = !name.parse().is_ok_and(|name: PoolName| name.is_built_in());
    let inherited = worker.filter(|_| is_custom).and_then(requested);
    let status = streams.status.as_ref();
    let default = status.map(|status| status.default_stream.as_str()).unwrap_or_default();
    let wanted = requested(pool).or(inherited).unwrap_or(default);
    let available = status.map(|status| status.available_streams.as_slice()).unwrap_or_default();
    available.iter().find(|stream| stream.name == wanted).ok_or_else(|| StreamError::Unknown {
        pool: name.to_owned(),
        stream: wanted.to_owned(),
        available: available.iter().map(|set| set.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn requested(pool: &MachineConfigPool) -> Option<&str> {
    pool.spec.os_image_stream.as_ref().map(|stream| stream.name.as_str()).filter(|s| !s.is_empty())
}

impl From<&OSImageStreamSet> for BaseImages {
    fn from(stream: &OSImageStreamSet) -> Self {
        Self { os: stream.os_image.clone(), extensions: stream.os_extensions_image.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn streams(version: Option<&str>) -> OSImageStream {
        let mut streams: OSImageStream = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "cluster"},
            "spec": {"defaultStream": "rhel-9"},
            "status": {
                "defaultStream": "rhel-9",
                "availableStreams": [
                    {"name": "rhel-9", "osImage": "nine", "osExtensionsImage": "nine-x"},
                    {"name": "rhel-10", "osImage": "ten", "osExtensionsImage": "ten-x"},
                ],
            },
        }))
        .expect("an OSImageStream");
        if let Some(version) = version {
            let annotations = streams.metadata.annotations.get_or_insert_default();
            annotation::RELEASE_IMAGE_VERSION.set(annotations, &version.to_owned());
        }
        streams
    }

    fn pool(name: &str, stream: &str) -> MachineConfigPool {
        let mut pool = fixture::pool(name, "{}");
        pool.spec.os_image_stream =
            serde_json::from_value(serde_json::json!({ "name": stream })).expect("a reference");
        pool
    }

    // covers: REN-34
    #[test]
    fn a_custom_pool_follows_the_workers_unless_it_says_otherwise() {
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let cases = [
            // case, pool, its stream, the workers' stream, expected image
            ("the default", "worker", "", None, "nine"),
            ("its own", "worker", "rhel-10", None, "ten"),
            ("that of the workers", "infra", "", Some("rhel-10"), "ten"),
            ("its own before that of the workers", "infra", "rhel-9", Some("rhel-10"), "nine"),
            ("the default without a worker pool", "infra", "", None, "nine"),
            ("masters inherit nothing", "master", "", Some("rhel-10"), "nine"),
        ];
        for (case, name, own, workers, expected) in cases {
            let worker = workers.map(|stream| pool("worker", stream));
            let streams = streams(Some("abc"));
            let set = stream_of(&pool(name, own), worker.as_ref(), &streams, &build).expect(case);
            let images = BaseImages::from(set);
            assert_eq!(
                (images.os.as_str(), images.extensions),
                (expected, format!("{expected}-x"))
            );
        }
    }

    // covers: REN-34
    #[test]
    fn streams_of_another_build_and_unknown_ones_are_refused() {
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let text = |streams: &OSImageStream, stream: &str| {
            stream_of(&pool("worker", stream), None, streams, &build).unwrap_err().to_string()
        };
        assert_eq!(
            text(&streams(Some("old")), ""),
            "ignoring OSImageStream with version old (my version: abc)"
        );
        assert_eq!(
            text(&streams(None), ""),
            "ignoring OSImageStream without machineconfiguration.openshift.io/release-image-version \
             annotation (my version: abc)"
        );
        assert!(text(&streams(Some("abc")), "sid").starts_with(
            "could not get OSImageStreamSet for pool worker: requested \"sid\" is not available"
        ));
    }
}
