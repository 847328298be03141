//! Systemd units, their drop-ins, and units of systemd-networkd.

use crate::{config::keyed, object::object};

object! {
    /// Systemd units.
    pub struct Systemd {
        /// Units.
        units: Vec<Unit> = "units",
    }
}

object! {
    /// A systemd unit.
    pub struct Unit {
        /// Contents of the unit file.
        contents: String = "contents",
        /// Drop-ins of the unit.
        dropins: Vec<Dropin> = "dropins",
        /// True if the unit is enabled; the older spelling.
        enable: bool = "enable",
        /// True if the unit is enabled.
        enabled: Option<bool> = "enabled" [since(V3_1)],
        /// True if the unit is masked.
        mask: bool = "mask",
        /// Name of the unit with its suffix.
        name: String = "name",
    }
}

object! {
    /// A drop-in of a unit.
    pub struct Dropin {
        /// Contents of the drop-in file.
        contents: String = "contents",
        /// Name of the drop-in, ending in `.conf`.
        name: String = "name",
    }
}

object! {
    /// Units of systemd-networkd.
    pub struct Networkd {
        /// Units of systemd-networkd.
        units: Vec<NetworkdUnit> = "units",
    }
}

object! {
    /// A unit of systemd-networkd.
    pub struct NetworkdUnit {
        /// Contents of the unit file.
        contents: String = "contents",
        /// Drop-ins of the unit.
        dropins: Vec<Dropin> = "dropins" [since(V3_2)],
        /// Name of the unit with its suffix.
        name: String = "name",
    }
}

keyed!(Dropin by name, NetworkdUnit by name, Unit by name);
