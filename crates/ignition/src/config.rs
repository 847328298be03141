//! An Ignition config, as the newest version of the specification has it.
//!
//! Members stand in wire order. `since` marks what older versions do not know, so that one set of
//! types reads and writes all of 3.0 to 3.5; what a version *means* differently is in `translate`.

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
    merge::{Item, settle_arguments},
    object::{Object, object},
    spec::Spec,
    tree::Tree,
};

object! {
    /// A whole config.
    pub struct Config {
        /// About the config itself.
        ignition: Ignition = "ignition" [always],
        /// Kernel arguments.
        kernel_arguments: KernelArguments = "kernelArguments" [since(V3_3)],
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
        /// How to reach the network.
        proxy: Proxy = "proxy" [since(V3_1)],
        /// Whom to trust.
        security: Security = "security",
        /// How long to wait.
        timeouts: Timeouts = "timeouts",
        /// The version of the specification.
        version: String = "version" [always],
    }
}

object! {
    /// Other configs to take in.
    pub struct Sources {
        /// Configs to merge into this one.
        merge: Vec<Resource> = "merge",
        /// A config to use in place of this one.
        replace: Resource = "replace",
    }
}

object! {
    /// Something to fetch.
    pub struct Resource {
        /// How the contents are compressed.
        compression: Option<String> = "compression",
        /// Headers to send.
        http_headers: Vec<HttpHeader> = "httpHeaders" [since(V3_1)],
        /// Where it is.
        source: Option<String> = "source",
        /// How to tell that it is right.
        verification: Verification = "verification",
    }
}

object! {
    /// A header to send when fetching.
    pub struct HttpHeader {
        /// Name.
        name: String = "name" [always],
        /// Value.
        value: Option<String> = "value",
    }
}

object! {
    /// How to tell that fetched contents are right.
    pub struct Verification {
        /// Hash, as `sha512-…` or `sha256-…`.
        hash: Option<String> = "hash",
    }
}

object! {
    /// How to reach the network.
    pub struct Proxy {
        /// Proxy for HTTP.
        http_proxy: Option<String> = "httpProxy",
        /// Proxy for HTTPS.
        https_proxy: Option<String> = "httpsProxy",
        /// Hosts that need no proxy.
        no_proxy: Vec<String> = "noProxy",
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
        certificate_authorities: Vec<Resource> = "certificateAuthorities",
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

object! {
    /// Kernel arguments.
    pub struct KernelArguments before_merge(settle_arguments) {
        /// Arguments to add.
        should_exist: Vec<String> = "shouldExist",
        /// Arguments to take away.
        should_not_exist: Vec<String> = "shouldNotExist",
    }
}

impl Config {
    /// A config that says nothing.
    #[must_use]
    pub fn empty() -> Self {
        let mut config = Self::default();
        config.ignition.version = Spec::V3_5.to_string();
        config
    }

    /// The config as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        self.tree(Spec::V3_5).to_json()
    }

    /// The config as `spec` writes it, without what that version does not have.
    #[must_use]
    pub fn tree(&self, spec: Spec) -> Tree<'_> {
        crate::object::Field::tree(self, spec)
    }
}

impl Item for Resource {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.source.as_deref().unwrap_or_default())
    }

    fn absorb(&mut self, child: Self) {
        self.merge_members(child);
    }
}

impl Item for HttpHeader {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn absorb(&mut self, child: Self) {
        self.merge_members(child);
    }

    fn removes(&self) -> bool {
        self.value.is_none()
    }
}

/// Makes objects list items whose key is one of their members.
macro_rules! keyed {
    ($($name:ident by $field:ident),+ $(,)?) => {
        $(impl crate::merge::Item for $name {
            fn key(&self) -> std::borrow::Cow<'_, str> {
                std::borrow::Cow::Borrowed(&self.$field)
            }

            fn absorb(&mut self, child: Self) {
                crate::object::Object::merge_members(self, child);
            }
        })+
    };
}
pub(crate) use keyed;
