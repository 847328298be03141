//! Systemd units and their drop-ins.

use super::keyed;
use crate::object::object;

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
        contents: Option<String> = "contents",
        /// Drop-ins of the unit.
        dropins: Vec<Dropin> = "dropins",
        /// True if the unit is enabled.
        enabled: Option<bool> = "enabled",
        /// True if the unit is masked.
        mask: Option<bool> = "mask",
        /// Name of the unit with its suffix.
        name: String = "name" [always],
    }
}

object! {
    /// A drop-in of a unit.
    pub struct Dropin {
        /// Contents of the drop-in file.
        contents: Option<String> = "contents",
        /// Name of the drop-in, ending in `.conf`.
        name: String = "name" [always],
    }
}

keyed!(Dropin by name, Unit by name);
