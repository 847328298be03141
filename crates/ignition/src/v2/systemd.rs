//! Units, their drop-ins, and network units.

use crate::{config::keyed, object::object};

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
        contents: String = "contents",
        /// Files that change or extend it.
        dropins: Vec<Dropin> = "dropins",
        /// Whether it starts at boot, as older versions spell it.
        enable: bool = "enable",
        /// Whether it starts at boot.
        enabled: Option<bool> = "enabled" [since(V3_1)],
        /// Whether it must not start at all.
        mask: bool = "mask",
        /// Name, with its suffix.
        name: String = "name",
    }
}

object! {
    /// A file that changes or extends a unit.
    pub struct Dropin {
        /// The file.
        contents: String = "contents",
        /// Name, ending in `.conf`.
        name: String = "name",
    }
}

object! {
    /// Network units.
    pub struct Networkd {
        /// Network units.
        units: Vec<NetworkdUnit> = "units",
    }
}

object! {
    /// A network unit.
    pub struct NetworkdUnit {
        /// The unit file.
        contents: String = "contents",
        /// Files that change or extend it.
        dropins: Vec<Dropin> = "dropins" [since(V3_2)],
        /// Name, with its suffix.
        name: String = "name",
    }
}

keyed!(Dropin by name, NetworkdUnit by name, Unit by name);
