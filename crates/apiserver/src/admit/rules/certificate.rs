//! Validation of CertificateSigningRequests.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use super::items;
use crate::{admit::name, failure::Fault, object};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Shortest validity of a certificate that a request may ask for, in seconds.
const MIN_SECONDS: i64 = 600;

/// Validates a request, and its change from `old`.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if let Some(why) = malformed(object::text(spec, &["request"])) {
        faults.push(Fault::invalid("spec.request", spec.get("request").unwrap_or(&json!("")), why));
    }
    if items(spec, "usages").next().is_none() {
        faults.push(Fault::required("spec.usages", ""));
    }
    let mut seen = BTreeSet::new();
    let mut repeated = Vec::new();
    for (at, usage) in items(spec, "usages") {
        let (place, usage) = (format!("spec.usages[{at}]"), usage.as_str().unwrap_or(""));
        if !USAGES.contains(&usage) {
            faults.push(Fault::not_supported(place.clone(), usage, &USAGES));
        }
        if !seen.insert(usage) {
            repeated.push(Fault::duplicate(place, usage));
        }
    }
    faults.extend(repeated);
    faults.extend(signer(object::text(spec, &["signerName"])));
    let seconds = spec.get("expirationSeconds");
    if let Some(seconds) = seconds.filter(|it| it.as_i64().is_some_and(|it| it < MIN_SECONDS)) {
        let rule = "may not specify a duration less than 600 seconds (10 minutes)";
        faults.push(Fault::invalid("spec.expirationSeconds", seconds, rule));
    }
    let status = new.get("status").unwrap_or(&Value::Null);
    faults.extend(conditions(status));
    faults.extend(old.map(|old| removed(status, old)).into_iter().flatten());
    faults
}

/// Returns why a request is no certificate request.
fn malformed(request: &str) -> Option<&'static str> {
    const WHY: &str = "PEM block type must be CERTIFICATE REQUEST";
    let bytes = STANDARD.decode(request).unwrap_or_default();
    let Ok((_, block)) = x509_parser::pem::parse_x509_pem(&bytes) else { return Some(WHY) };
    if block.label != "CERTIFICATE REQUEST" {
        return Some(WHY);
    }
    match X509CertificationRequest::from_der(&block.contents) {
        Ok(_) => None,
        Err(_) => Some("asn1: structure error: malformed certificate request"),
    }
}

fn signer(signer: &str) -> Vec<Fault> {
    const PLACE: &str = "spec.signerName";
    if signer.is_empty() {
        return vec![Fault::required(PLACE, "")];
    }
    if signer == "kubernetes.io/legacy-unknown" {
        let rule = "the legacy signerName is not allowed via this API version";
        return vec![Fault::invalid(PLACE, &json!(signer), rule)];
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, path] = parts.as_slice() else {
        let rule =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![Fault::invalid(PLACE, &json!(signer), rule)];
    };
    let mut faults = Vec::new();
    let mut labels = |text: &str, rules: &dyn Fn(&str) -> Vec<String>| {
        let wrong = text.split('.').find(|label| !rules(label).is_empty());
        for rule in wrong.into_iter().flat_map(rules) {
            let rule = format!("validating label {:?}: {rule}", wrong.unwrap_or(""));
            faults.push(Fault::invalid(PLACE, &json!(text), &rule));
        }
    };
    labels(domain, &name::label_faults);
    labels(path, &name::subdomain_faults);
    if !domain.contains('.') {
        let rule = "should be a domain with at least two segments separated by dots";
        let at = faults.iter().filter(|fault| fault.message.contains(*domain)).count();
        faults.insert(at.min(faults.len()), Fault::invalid(PLACE, &json!(domain), rule));
    }
    faults
}

fn conditions(status: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, one) in items(status, "conditions") {
        let place = format!("status.conditions[{at}]");
        let kind = object::text(one, &["type"]);
        if kind.is_empty() {
            faults.push(Fault::required(format!("{place}.type"), ""));
        }
        let is_final = matches!(kind, "Approved" | "Denied" | "Failed");
        let known: &[&str] = if is_final { &["True"] } else { &["False", "True", "Unknown"] };
        match object::text(one, &["status"]) {
            "" => faults.push(Fault::required(format!("{place}.status"), "")),
            word if !known.contains(&word) => {
                faults.push(Fault::not_supported(format!("{place}.status"), word, known));
            }
            _ => {}
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if seen.contains(opposite) {
            let rule = "Approved and Denied conditions are mutually exclusive";
            faults.push(Fault::invalid("status.conditions", &json!(kind), rule));
        }
        if !seen.insert(kind) {
            faults.push(Fault::duplicate(format!("{place}.type"), kind));
        }
    }
    faults
}

/// Validates that no decision on a request is taken back.
fn removed(status: &Value, old: &Value) -> Vec<Fault> {
    let before = old.get("status").unwrap_or(&Value::Null);
    let count = |status: &Value, kind: &str| {
        items(status, "conditions").filter(|(_, one)| object::text(one, &["type"]) == kind).count()
    };
    let mut faults = Vec::new();
    for kind in ["Approved", "Denied", "Failed"] {
        if count(status, kind) < count(before, kind) {
            let rule = format!("updates may not remove a condition of type \"{kind}\"");
            faults.push(Fault::forbidden("status.conditions", &rule));
        }
    }
    faults
}
