//! Types of a config of the 2.x specification.
//!
//! Members are in wire order. `since(V3_N)` means version 2.N here: the declarations use the flags
//! of 3.x, and 2.N is represented by `Spec::V3_N`.

use super::{Networkd, Passwd, Storage, Systemd};
use crate::{
    config::{Verification, keyed},
    object::object,
};

object! {
    /// An Ignition config.
    pub struct Config {
        /// Version of the config, and settings of Ignition itself.
        ignition: Ignition = "ignition" [always],
        /// Units of systemd-networkd.
        networkd: Networkd = "networkd",
        /// Users and groups.
        passwd: Passwd = "passwd",
        /// Disks, filesystems and files.
        storage: Storage = "storage",
        /// Systemd units.
        systemd: Systemd = "systemd",
    }
}

object! {
    /// Version of the config, and settings of Ignition itself.
    pub struct Ignition {
        /// References to other configs.
        config: Sources = "config",
        /// Trusted certificates.
        security: Security = "security" [since(V3_2)],
        /// Timeouts of HTTP requests.
        timeouts: Timeouts = "timeouts" [since(V3_1)],
        /// Version of the specification.
        version: String = "version",
    }
}

object! {
    /// References to other configs.
    pub struct Sources {
        /// Configs to append to this config.
        append: Vec<Reference> = "append",
        /// Config that replaces this config.
        replace: Option<Reference> = "replace",
    }
}

object! {
    /// A reference to uncompressed contents to fetch.
    pub struct Reference {
        /// URL of the contents.
        source: String = "source",
        /// Verification of the contents.
        verification: Verification = "verification",
    }
}

object! {
    /// Trusted certificates.
    pub struct Security {
        /// TLS settings.
        tls: Tls = "tls",
    }
}

object! {
    /// TLS settings.
    pub struct Tls {
        /// CA certificates in addition to those of the system.
        certificate_authorities: Vec<Reference> = "certificateAuthorities",
    }
}

object! {
    /// Timeouts of HTTP requests, in seconds.
    pub struct Timeouts {
        /// Timeout until the response headers arrive.
        http_response_headers: Option<i64> = "httpResponseHeaders",
        /// Timeout of the whole request.
        http_total: Option<i64> = "httpTotal",
    }
}

keyed!(Reference by source);
