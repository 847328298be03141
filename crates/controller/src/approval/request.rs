//! Decodes a certificate request into the view that the checks use.

use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use mco_core::join::{
    CertificateRequest,
    approval::{Names, Subject},
};
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME},
    pem::Pem,
    prelude::FromDer as _,
};

/// A request that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.request is not a PKCS#10 certificate request in PEM")]
pub struct ReadRequestError;

/// Returns true if the request is neither approved nor denied, and has no certificate.
#[must_use]
pub fn is_pending(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return true };
    let conditions = status.conditions.iter().flatten();
    let mut decided =
        conditions.filter(|it| matches!(it.type_.as_str(), "Approved" | "Denied" | "Failed"));
    decided.next().is_none() && status.certificate.as_ref().is_none_or(|found| found.0.is_empty())
}

/// Decodes a request.
pub fn read(request: &CertificateSigningRequest) -> Result<CertificateRequest, ReadRequestError> {
    let blocks: Vec<Pem> = Pem::iter_from_buffer(&request.spec.request.0)
        .collect::<Result<_, _>>()
        .map_err(|_| ReadRequestError)?;
    let [block] = blocks.as_slice() else { return Err(ReadRequestError) };
    let parsed = X509CertificationRequest::from_der(&block.contents);
    let (_, parsed) = parsed.map_err(|_| ReadRequestError)?;
    let spec = &request.spec;
    Ok(CertificateRequest {
        name: request.name_any(),
        signer: spec.signer_name.clone(),
        user: spec.username.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        usages: spec.usages.clone().unwrap_or_default(),
        subject: subject(&parsed),
        names: names(&parsed),
    })
}

fn subject(parsed: &X509CertificationRequest<'_>) -> Subject {
    let mut subject = Subject::default();
    for attribute in parsed.certification_request_info.subject.iter_attributes() {
        // An attribute that is not text is none of a node.
        let text = attribute.as_str().map(str::to_owned);
        match text {
            Ok(text) if *attribute.attr_type() == OID_X509_COMMON_NAME => {
                subject.common_names.push(text);
            }
            Ok(text) if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME => {
                subject.organizations.push(text);
            }
            Ok(_) | Err(_) => subject.has_others = true,
        }
    }
    subject
}

fn names(parsed: &X509CertificationRequest<'_>) -> Names {
    let mut names = Names::default();
    for extension in parsed.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(found) = extension else { continue };
        for name in &found.general_names {
            match name {
                GeneralName::DNSName(dns) => names.dns.push((*dns).to_owned()),
                GeneralName::IPAddress(bytes) => match address(bytes) {
                    Some(address) => names.addresses.push(address),
                    None => names.others.push("an address that is none".to_owned()),
                },
                GeneralName::OtherName(..)
                | GeneralName::RFC822Name(_)
                | GeneralName::X400Address(_)
                | GeneralName::DirectoryName(_)
                | GeneralName::EDIPartyName(_)
                | GeneralName::URI(_)
                | GeneralName::RegisteredID(_)
                | GeneralName::Invalid(..) => names.others.push(name.to_string()),
            }
        }
    }
    names
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(bytes.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn request(change: impl FnOnce(&mut CertificateParams)) -> CertificateSigningRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        change(&mut params);
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = CertificateSigningRequest::default();
        request.spec.request = ByteString(pem.into_bytes());
        request
    }

    #[test]
    fn subject_and_names_are_read() {
        let plain = read(&request(|_| {})).unwrap();
        assert_eq!(plain.subject.node(), Some("a"));
        assert_eq!(plain.subject.organizations, ["system:nodes"]);
        assert_eq!((plain.subject.has_others, plain.names), (false, Names::default()));
        let full = read(&request(|params| {
            params.distinguished_name.push(DnType::CountryName, "XX");
            params.subject_alt_names = vec![
                SanType::DnsName("a.test".try_into().unwrap()),
                SanType::IpAddress("10.0.0.1".parse().unwrap()),
                SanType::IpAddress("2001:db8::1".parse().unwrap()),
                SanType::Rfc822Name("a@b".try_into().unwrap()),
            ];
        }));
        let full = full.unwrap();
        assert!(full.subject.has_others);
        assert_eq!(full.names.dns, ["a.test"]);
        let addresses: Vec<String> = full.names.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "2001:db8::1"]);
        assert_eq!(full.names.others.len(), 1);
    }

    #[test]
    fn anything_else_is_refused() {
        let mut broken = request(|_| {});
        for bytes in [
            &b""[..],
            b"text",
            b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        ] {
            broken.spec.request = ByteString(bytes.to_vec());
            assert_eq!(read(&broken), Err(ReadRequestError));
        }
        let two = [request(|_| {}).spec.request.0, request(|_| {}).spec.request.0].concat();
        broken.spec.request = ByteString(two);
        assert_eq!(read(&broken), Err(ReadRequestError), "two requests");
    }
}
