//! Validation of configs by the rules of each specification version.
//!
//! The messages are Ignition's, because administrators search for them.

mod disk;
mod file;
mod path;
mod resource;
mod systemd;
mod unit_file;
mod url;
mod v2;

use std::{borrow::Cow, collections::HashSet};

pub(crate) use path::clean as clean_path;
pub(crate) use v2::v2;

use crate::{
    config::{Config, Ignition, KernelArguments, Passwd, Proxy},
    merge::Item,
    parse::Version,
    report::{Path, Report, Step},
    spec::Spec,
};

/// Validates `config` by the rules of the newest version; returns all faults.
#[must_use]
pub fn validate(config: &Config) -> Report {
    validate_for(Spec::V3_5, config)
}

/// Validates `config` by the rules of `spec`; returns all faults.
pub(crate) fn validate_for(spec: Spec, config: &Config) -> Report {
    let mut checker = Checker { spec, path: Path::default(), report: Report::default() };
    checker.config(config);
    checker.report
}

/// State of validating one config.
struct Checker {
    spec: Spec,
    path: Path,
    report: Report,
}

/// Result of a rule; the error is the message of the fault.
type RuleResult = Result<(), &'static str>;

/// Keys of one key space so far.
type Keys<'a> = HashSet<Cow<'a, str>>;

impl Checker {
    /// Runs `check` with the path extended by `member`.
    fn at(&mut self, member: &'static str, check: impl FnOnce(&mut Self)) {
        self.path.0.push(Step::Member(member));
        check(self);
        self.path.0.pop();
    }

    /// Runs `check` for every item of the list `member`.
    fn each<T>(&mut self, member: &'static str, items: &[T], check: impl Fn(&mut Self, &T)) {
        self.at(member, |checker| {
            for (index, item) in items.iter().enumerate() {
                checker.path.0.push(Step::Index(index));
                check(checker, item);
                checker.path.0.pop();
            }
        });
    }

    /// Reports an error at the current path.
    fn error(&mut self, message: impl Into<String>) {
        self.report.error(self.path.clone(), message);
    }

    /// Reports an error at `member`.
    fn error_at(&mut self, member: &'static str, message: impl Into<String>) {
        self.report.error(self.path.member(member), message);
    }

    /// Reports a warning at `member`.
    fn warning_at(&mut self, member: &'static str, message: impl Into<String>) {
        self.report.warning(self.path.member(member), message);
    }

    /// Reports an error at `member` if the rule is broken.
    fn require(&mut self, member: &'static str, result: RuleResult) {
        if let Err(message) = result {
            self.error_at(member, message);
        }
    }

    /// Reports the items of the list `member` that have the key of an earlier item.
    fn unique<T: Item>(&mut self, member: &'static str, items: &[T]) {
        if items.len() > 1 {
            self.unique_among(&mut Keys::new(), member, items);
        }
    }

    /// Reports the items of the list `member` whose key is already in `keys`, and adds the other
    /// keys.
    fn unique_among<'a, T: Item>(
        &mut self,
        keys: &mut Keys<'a>,
        member: &'static str,
        items: &'a [T],
    ) {
        for (index, item) in items.iter().enumerate() {
            if !keys.insert(item.key()) {
                let path = self.path.member(member).index(index);
                self.report.error(path, "duplicate entry defined");
            }
        }
    }

    fn config(&mut self, config: &Config) {
        self.units_and_paths(config);
        self.at("ignition", |checker| checker.ignition(&config.ignition));
        self.at("kernelArguments", |checker| checker.kernel_arguments(&config.kernel_arguments));
        self.at("passwd", |checker| checker.passwd(&config.passwd));
        self.at("storage", |checker| checker.storage(&config.storage));
        self.at("systemd", |checker| checker.systemd(&config.systemd));
    }

    fn ignition(&mut self, ignition: &Ignition) {
        self.require("version", self.version(&ignition.version));
        self.at("config", |checker| {
            let sources = &ignition.config;
            checker.each("merge", &sources.merge, |checker, source| {
                checker.required_source(source);
                checker.reference(source);
            });
            checker.at("replace", |checker| checker.reference(&sources.replace));
            checker.unique("merge", &sources.merge);
        });
        self.at("proxy", |checker| checker.proxy(&ignition.proxy));
        self.at("security", |checker| {
            checker.at("tls", |checker| {
                let authorities = &ignition.security.tls.certificate_authorities;
                checker.each("certificateAuthorities", authorities, |checker, authority| {
                    checker.required_source(authority);
                    checker.reference(authority);
                    checker.required_source_in_3_0(authority);
                });
                checker.unique("certificateAuthorities", authorities);
            });
        });
    }

    fn version(&self, version: &str) -> RuleResult {
        match Version::parse(version) {
            None => Err("invalid config version (couldn't parse)"),
            Some(version) if version.spec() != Some(self.spec) => Err("unsupported config version"),
            Some(_) => Ok(()),
        }
    }

    fn proxy(&mut self, proxy: &Proxy) {
        for (member, address) in
            [("httpProxy", &proxy.http_proxy), ("httpsProxy", &proxy.https_proxy)]
        {
            let Some(address) = address else { continue };
            match url::Url::parse(address).as_ref().map(|url| url.scheme.as_str()) {
                None => self.error_at(member, url::UNREADABLE),
                Some("http") if member == "httpsProxy" => self.warning_at(
                    member,
                    "insecure plaintext HTTP proxy specified for HTTPS resources",
                ),
                Some("http" | "https") => {}
                Some(_) => self.error_at(member, "proxies must be http(s)"),
            }
        }
        self.unique("noProxy", &proxy.no_proxy);
    }

    fn kernel_arguments(&mut self, arguments: &KernelArguments) {
        let mut keys = Keys::new();
        self.unique_among(&mut keys, "shouldExist", &arguments.should_exist);
        self.unique_among(&mut keys, "shouldNotExist", &arguments.should_not_exist);
    }

    fn passwd(&mut self, passwd: &Passwd) {
        self.unique("groups", &passwd.groups);
        self.unique("users", &passwd.users);
        self.each("users", &passwd.users, |checker, user| {
            checker.unique("groups", &user.groups);
            checker.unique("sshAuthorizedKeys", &user.ssh_authorized_keys);
        });
    }
}

#[cfg(test)]
mod tests;
