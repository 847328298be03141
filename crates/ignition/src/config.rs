//! Types of an Ignition config of the newest specification version.
//!
//! Members are in wire order. `since` marks members that older versions do not have, so that one
//! set of types reads and writes all of 3.0 to 3.5; differences in meaning are handled in
//! `translate`.

mod passwd;
mod storage;
mod systemd;

use std::borrow::Cow;

pub use passwd::{Group, Passwd, User};
pub use storage::{
    Cex, Clevis, ClevisCustom, Directory, Disk, File, Filesystem, Link, Luks, Owner, Partition,
    Raid, Storage, Tang,
};
pub use systemd::{Dropin, Systemd, Unit};

use crate::{
    merge::{Item, remove_conflicting_arguments},
    object::{Object, object},
    spec::Spec,
    tree::Tree,
};

object! {
    /// An Ignition config.
    pub struct Config {
        /// Version of the config, and settings of Ignition itself.
        ignition: Ignition = "ignition" [always],
        /// Kernel arguments.
        kernel_arguments: KernelArguments = "kernelArguments" [since(V3_3)],
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
        /// Proxy settings.
        proxy: Proxy = "proxy" [since(V3_1)],
        /// Trusted certificates.
        security: Security = "security",
        /// Timeouts of HTTP requests.
        timeouts: Timeouts = "timeouts",
        /// Version of the specification.
        version: String = "version" [always],
    }
}

object! {
    /// References to other configs.
    pub struct Sources {
        /// Configs to merge into this config.
        merge: Vec<Resource> = "merge",
        /// Config that replaces this config.
        replace: Resource = "replace",
    }
}

object! {
    /// A reference to contents to fetch.
    pub struct Resource {
        /// Compression of the contents.
        compression: Option<String> = "compression",
        /// HTTP headers of the request.
        http_headers: Vec<HttpHeader> = "httpHeaders" [since(V3_1)],
        /// URL of the contents.
        source: Option<String> = "source",
        /// Verification of the contents.
        verification: Verification = "verification",
    }
}

object! {
    /// An HTTP header of a request.
    pub struct HttpHeader {
        /// Name of the header.
        name: String = "name" [always],
        /// Value of the header.
        value: Option<String> = "value",
    }
}

object! {
    /// Verification of fetched contents.
    pub struct Verification {
        /// Hash of the contents, as `sha512-…` or `sha256-…`.
        hash: Option<String> = "hash",
    }
}

object! {
    /// Proxy settings.
    pub struct Proxy {
        /// Proxy for HTTP.
        http_proxy: Option<String> = "httpProxy",
        /// Proxy for HTTPS.
        https_proxy: Option<String> = "httpsProxy",
        /// Hosts that are reached without a proxy.
        no_proxy: Vec<String> = "noProxy",
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
        certificate_authorities: Vec<Resource> = "certificateAuthorities",
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

object! {
    /// Kernel arguments.
    pub struct KernelArguments before_merge(remove_conflicting_arguments) {
        /// Arguments to add.
        should_exist: Vec<String> = "shouldExist",
        /// Arguments to remove.
        should_not_exist: Vec<String> = "shouldNotExist",
    }
}

impl Config {
    /// Returns a config without contents.
    #[must_use]
    pub fn empty() -> Self {
        let mut config = Self::default();
        config.ignition.version = Spec::V3_5.to_string();
        config
    }

    /// Serializes the config as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        self.tree(Spec::V3_5).to_json()
    }

    /// Converts the config to a tree for `spec`, without the members that this version does not
    /// have.
    #[must_use]
    pub fn tree(&self, spec: Spec) -> Tree<'_> {
        crate::object::Field::tree(self, spec)
    }
}

impl Item for Resource {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.source.as_deref().unwrap_or_default())
    }

    fn merge_child(&mut self, child: Self) {
        self.merge_members(child);
    }
}

impl Item for HttpHeader {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn merge_child(&mut self, child: Self) {
        self.merge_members(child);
    }

    fn is_removal(&self) -> bool {
        self.value.is_none()
    }
}

/// Implements [`Item`] for objects whose key is one of their members.
macro_rules! keyed {
    ($($name:ident by $field:ident),+ $(,)?) => {
        $(impl crate::merge::Item for $name {
            fn key(&self) -> std::borrow::Cow<'_, str> {
                std::borrow::Cow::Borrowed(&self.$field)
            }

            fn merge_child(&mut self, child: Self) {
                crate::object::Object::merge_members(self, child);
            }
        })+
    };
}
pub(crate) use keyed;
