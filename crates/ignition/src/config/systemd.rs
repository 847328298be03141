//! Units and their drop-ins.

use super::keyed;
use crate::object::object;

object! {
    /// Units.
    pub struct Systemd {
        /// Units.
        units: Vec<Unit> = "units",
    }
}

object! {
    /// A unit.
    pub struct Unit {
        /// The unit file.
        contents: Option<String> = "contents",
        /// Files that change or extend it.
        dropins: Vec<Dropin> = "dropins",
        /// Whether it starts at boot.
        enabled: Option<bool> = "enabled",
        /// Whether it must not start at all.
        mask: Option<bool> = "mask",
        /// Name, with its suffix.
        name: String = "name" [always],
    }
}

object! {
    /// A file that changes or extends a unit.
    pub struct Dropin {
        /// The file.
        contents: Option<String> = "contents",
        /// Name, ending in `.conf`.
        name: String = "name" [always],
    }
}

keyed!(Dropin by name, Unit by name);
