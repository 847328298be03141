//! Rules for resources: their sources and their verification.

use super::{Checker, RuleResult, url};
use crate::{
    config::{HttpHeader, Resource},
    spec::Spec,
};

impl Checker {
    /// Checks a resource, such as the contents of a file.
    pub(super) fn resource(&mut self, resource: &Resource) {
        self.require("compression", compression(resource));
        if resource.verification.hash.is_some() && resource.source.is_none() {
            let path = self.path.member("verification").member("hash");
            self.report.error(path, "source must be specified if verification is specified");
        }
        self.optional_source(resource);
        self.require("httpHeaders", check_headers(resource));
        self.each("httpHeaders", &resource.http_headers, Self::header);
        self.unique("httpHeaders", &resource.http_headers);
        self.verification(resource);
    }

    /// Checks a reference to another config or to a certificate.
    pub(super) fn reference(&mut self, resource: &Resource) {
        if self.spec == Spec::V3_0 {
            self.optional_source(resource);
            self.verification(resource);
        } else {
            self.resource(resource);
        }
    }

    /// Checks that a reference has a source, by the rule of all versions except 3.0.
    pub(super) fn required_source(&mut self, resource: &Resource) {
        if self.spec == Spec::V3_0 {
            return;
        }
        match resource.source.as_deref() {
            None | Some("") => self.error("source is required"),
            Some(source) => {
                if let Err(message) = url::check(source, self.spec) {
                    self.error(message);
                }
            }
        }
    }

    /// Checks that a reference has a source, by the rule of 3.0.
    pub(super) fn required_source_in_3_0(&mut self, resource: &Resource) {
        let source = resource.source.as_deref().unwrap_or_default();
        if self.spec == Spec::V3_0 && source.is_empty() {
            self.error_at("source", url::BAD_SCHEME);
        }
    }

    fn optional_source(&mut self, resource: &Resource) {
        if let Err(message) = url::check_optional(resource.source.as_deref(), self.spec) {
            self.error_at("source", message);
        }
    }

    fn header(&mut self, header: &HttpHeader) {
        if header.name.is_empty() {
            self.error_at("name", "HTTP header name can't be empty");
        }
        if header.value.as_deref() == Some("") {
            self.error_at("value", "unable to parse HTTP header");
        }
    }

    fn verification(&mut self, resource: &Resource) {
        let Some(hash) = resource.verification.hash.as_deref() else { return };
        let result = check_hash(hash, self.spec);
        self.at("verification", |checker| checker.require("hash", result));
    }
}

fn compression(resource: &Resource) -> RuleResult {
    match resource.compression.as_deref() {
        None | Some("" | "gzip") => Ok(()),
        Some(_) => Err("invalid compression method"),
    }
}

fn check_headers(resource: &Resource) -> RuleResult {
    if resource.http_headers.is_empty() {
        return Ok(());
    }
    let source = resource.source.as_deref().filter(|source| !source.is_empty());
    let url = source.and_then(url::Url::parse).ok_or(url::UNREADABLE)?;
    match url.scheme.as_str() {
        "http" | "https" => Ok(()),
        _ => Err("cannot use HTTP headers with this source scheme"),
    }
}

fn check_hash(hash: &str, spec: Spec) -> RuleResult {
    let (function, sum) = hash.split_once('-').ok_or("malformed hash specifier")?;
    let size = match function {
        "sha512" => 128,
        "sha256" if spec >= Spec::V3_1 => 64,
        _ => return Err("unrecognized hash function"),
    };
    if sum.len() == size { Ok(()) } else { Err("incorrect size for hash sum") }
}
