//! The container engines that the nodes of a pool report.

/// The container engines of a pool's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engines {
    /// All nodes have CRI-O, or there are no nodes yet.
    Crio,
    /// All nodes have containerd.
    Containerd,
    /// Some nodes have CRI-O and some containerd.
    Both,
}

impl Engines {
    /// Returns the engines of nodes that report these versions, such as `containerd://2.1.4`.
    ///
    /// Versions of other engines are ignored. Without any, the settings are those for CRI-O, as in
    /// the reference.
    pub fn of<'v>(versions: impl IntoIterator<Item = &'v str>) -> Self {
        let (mut crio, mut containerd) = (false, false);
        for version in versions {
            match version.split_once("://") {
                Some(("cri-o", _)) => crio = true,
                Some(("containerd", _)) => containerd = true,
                Some(_) | None => {}
            }
        }
        match (crio, containerd) {
            (true, true) => Self::Both,
            (false, true) => Self::Containerd,
            (_, false) => Self::Crio,
        }
    }

    /// Returns true if a node may have CRI-O.
    #[must_use]
    pub fn has_crio(self) -> bool {
        matches!(self, Self::Crio | Self::Both)
    }

    /// Returns true if a node has containerd.
    #[must_use]
    pub fn has_containerd(self) -> bool {
        matches!(self, Self::Containerd | Self::Both)
    }
}
