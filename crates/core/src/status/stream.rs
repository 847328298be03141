//! Which stream of OS images a pool runs, where that can be told.

use std::collections::BTreeMap;

use mco_api::{
    OSImageStream,
    machine_config_pool::{PoolConfiguration, StreamReference},
};

/// The streams that the cluster offers, and the images that configs name.
#[derive(Clone, Debug)]
pub struct Streams<'a> {
    /// The streams; none where the cluster has not said.
    pub offered: Option<&'a OSImageStream>,
    /// The image each MachineConfig names, for those that exist: the rendered one and its sources.
    pub images: BTreeMap<String, String>,
}

impl Streams<'_> {
    /// The stream whose image the config has, unless somebody chose the image by hand.
    #[must_use]
    pub(super) fn of(&self, config: &PoolConfiguration) -> Option<StreamReference> {
        let image = self.images.get(&config.rendered.name).filter(|image| !image.is_empty())?;
        let by_hand = config
            .source
            .iter()
            .any(|source| self.images.get(&source.name).is_some_and(|image| !image.is_empty()));
        if by_hand {
            return None;
        }
        let offered = self.offered?.status.as_ref()?;
        let stream = offered.available_streams.iter().find(|stream| stream.os_image == *image)?;
        Some(StreamReference { name: stream.name.clone() })
    }
}
