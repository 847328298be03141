//! A config of the 2.x specification.
//!
//! Members stand in wire order. `since(V3_N)` means version 2.N here: the declarations are made with
//! the same words as those of 3.x, and a reader of 2.N calls itself 3.N.

use super::{Networkd, Passwd, Storage, Systemd};
use crate::{
    config::{Verification, keyed},
    object::object,
};

object! {
    /// A whole config.
    pub struct Config {
        /// About the config itself.
        ignition: Ignition = "ignition" [always],
        /// Network units.
        networkd: Networkd = "networkd",
        /// Users and groups.
        passwd: Passwd = "passwd",
        /// Disks, filesystems and files.
        storage: Storage = "storage",
        /// Units.
        systemd: Systemd = "systemd",
    }
}

object! {
    /// About the config itself.
    pub struct Ignition {
        /// Other configs to take in.
        config: Sources = "config",
        /// Whom to trust.
        security: Security = "security" [since(V3_2)],
        /// How long to wait.
        timeouts: Timeouts = "timeouts" [since(V3_1)],
        /// The version of the specification.
        version: String = "version",
    }
}

object! {
    /// Other configs to take in.
    pub struct Sources {
        /// Configs to add to this one.
        append: Vec<Reference> = "append",
        /// A config to use in place of this one.
        replace: Option<Reference> = "replace",
    }
}

object! {
    /// Something to fetch as it is.
    pub struct Reference {
        /// Where it is.
        source: String = "source",
        /// How to tell that it is right.
        verification: Verification = "verification",
    }
}

object! {
    /// Whom to trust.
    pub struct Security {
        /// TLS.
        tls: Tls = "tls",
    }
}

object! {
    /// Whom to trust in TLS.
    pub struct Tls {
        /// Certificate authorities beyond those of the system.
        certificate_authorities: Vec<Reference> = "certificateAuthorities",
    }
}

object! {
    /// How long to wait, in seconds.
    pub struct Timeouts {
        /// For the first answer.
        http_response_headers: Option<i64> = "httpResponseHeaders",
        /// For the whole answer.
        http_total: Option<i64> = "httpTotal",
    }
}

keyed!(Reference by source);
