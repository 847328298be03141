//! Detection of the OS image stream that a pool runs.

use std::collections::BTreeMap;

use mco_api::{
    OSImageStream,
    machine_config_pool::{PoolConfiguration, StreamReference},
};

/// The OS image streams of the cluster, and the images of MachineConfigs.
#[derive(Clone, Debug)]
pub struct Streams<'a> {
    /// `OSImageStream` object, if the cluster has one.
    pub offered: Option<&'a OSImageStream>,
    /// Image of each MachineConfig that sets one: rendered configs and their sources.
    pub images: BTreeMap<String, String>,
}

impl Streams<'_> {
    /// Returns the stream whose image the config has, unless a source config sets the image.
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
