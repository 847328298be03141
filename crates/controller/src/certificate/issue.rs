//! Issues X.509 certificates and parses existing ones.

use std::{collections::BTreeSet, fmt, net::IpAddr, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mco_core::certs::{AuthorityView, CertificateLifetime, CertificateView};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    pem::Pem,
};

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// The parsed contents of a certificate.
#[derive(Clone, Debug)]
pub(super) struct ParsedCertificate {
    /// Common name of the subject.
    pub(super) subject: String,
    /// The fields that renewal depends on.
    pub(super) view: CertificateView,
}

impl ParsedCertificate {
    /// Returns the view of this certificate as a CA.
    pub(super) fn authority(&self) -> AuthorityView {
        AuthorityView { name: self.subject.clone(), not_after: self.view.not_after }
    }
}

/// Issues a new CA with that common name.
pub(super) fn authority(
    name: &str,
    life: CertificateLifetime,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let mut params = with_validity(CertificateParams::default(), life, now);
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = AUTHORITY_USAGES.to_vec();
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

const AUTHORITY_USAGES: [KeyUsagePurpose; 3] =
    [KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];

/// Issues a serving certificate for these names, followed by the certificate of the CA that signs
/// it.
pub(super) fn serving(
    authority: &Pair,
    signer: &str,
    names: &BTreeSet<String>,
    life: CertificateLifetime,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let list: Vec<String> = names.iter().cloned().collect();
    let mut params = with_validity(CertificateParams::new(list)?, life, now);
    let first = names.first().map_or("machine-config-server", String::as_str);
    params.distinguished_name = common_name(first);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let mut of_issuer = CertificateParams::default();
    of_issuer.distinguished_name = common_name(signer);
    of_issuer.key_usages = AUTHORITY_USAGES.to_vec();
    let issuer = Issuer::new(of_issuer, read_key(&authority.key)?);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let certificate = format!("{certificate}{}", authority.certificate);
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// Returns true if the PEM text is a key that can sign.
pub(super) fn is_key(pem: &str) -> bool {
    read_key(pem).is_ok()
}

/// Reads a key as PEM: PKCS#8, or PKCS#1 as other operators write RSA keys.
fn read_key(pem: &str) -> Result<KeyPair, rcgen::Error> {
    let block = Pem::iter_from_buffer(pem.as_bytes()).next().and_then(Result::ok);
    match block.filter(|block| block.label == "RSA PRIVATE KEY") {
        Some(block) => KeyPair::try_from(pkcs8(&block.contents)),
        None => KeyPair::from_pem(pem),
    }
}

/// Wraps an RSA key of PKCS#1 as PKCS#8 (RFC 5208): version 0, the algorithm rsaEncryption, the key.
fn pkcs8(rsa_key: &[u8]) -> Vec<u8> {
    const VERSION_AND_ALGORITHM: [u8; 18] = [
        0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01,
        0x01, 0x05, 0x00,
    ];
    let key = der(0x04, rsa_key);
    der(0x30, &[VERSION_AND_ALGORITHM.as_slice(), &key].concat())
}

/// Encodes a value in DER, with its tag and its length.
fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len().to_be_bytes();
    let length = length.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<u8>>();
    let mut encoded = vec![tag];
    match (length.as_slice(), u8::try_from(length.len())) {
        ([], _) => encoded.push(0),
        ([short], _) if *short < 0x80 => encoded.push(*short),
        (long, Ok(count)) => {
            encoded.push(0x80 | count);
            encoded.extend(long);
        }
        // A length in memory has eight bytes at most.
        (_, Err(_)) => {}
    }
    encoded.extend(contents);
    encoded
}

fn common_name(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn with_validity(
    mut params: CertificateParams,
    life: CertificateLifetime,
    now: Timestamp,
) -> CertificateParams {
    // Valid from a second ago, for peers whose clock is that much behind.
    let from = now.as_second().saturating_sub(1);
    let until = now.as_second().saturating_add(life.validity.as_secs());
    let time = |seconds: i64| {
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        rcgen::date_time_ymd(1970, 1, 1) + seconds
    };
    (params.not_before, params.not_after) = (time(from), time(until));
    params
}

/// Parses the first certificate of a PEM text.
pub(super) fn parse(pem: &[u8]) -> Option<ParsedCertificate> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    from_x509(&block.parse_x509().ok()?)
}

/// Parses all certificates of a PEM text, each with its own PEM; invalid blocks are skipped.
pub(super) fn parse_all(pem: &str) -> Vec<(ParsedCertificate, String)> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = pem.split_inclusive(END).filter_map(|text| {
        let start = text.find("-----BEGIN CERTIFICATE-----")?;
        let text = format!("{}\n", text.get(start..)?);
        Some((parse(text.as_bytes())?, text))
    });
    blocks.collect()
}

fn from_x509(certificate: &X509Certificate<'_>) -> Option<ParsedCertificate> {
    let name = |full: &x509_parser::x509::X509Name<'_>| {
        let common = full.iter_common_name().next().and_then(|name| name.as_str().ok());
        common.map_or_else(|| full.to_string(), str::to_owned)
    };
    let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some(ParsedCertificate {
        subject: name(certificate.subject()),
        view: CertificateView {
            not_before: time(certificate.validity().not_before)?,
            not_after: time(certificate.validity().not_after)?,
            names: names(certificate),
            signer: name(certificate.issuer()),
        },
    })
}

fn names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let alternatives = certificate.extensions().iter().filter_map(|extension| {
        let parsed = extension.parsed_extension();
        if let ParsedExtension::SubjectAlternativeName(names) = parsed {
            Some(&names.general_names)
        } else {
            None
        }
    });
    let address = |bytes: &[u8]| -> Option<IpAddr> {
        let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    let names = alternatives.flatten().filter_map(|name| {
        if let GeneralName::DNSName(name) = name {
            Some((*name).to_owned())
        } else if let GeneralName::IPAddress(bytes) = name {
            address(bytes).map(|address| address.to_string())
        } else {
            None
        }
    });
    names.collect()
}

/// Returns the time left until `then`; zero if it is past.
pub(super) fn until(then: Timestamp, now: Timestamp) -> Duration {
    let left = then.duration_since(now).max(SignedDuration::ZERO);
    Duration::try_from(left).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that `openssl genrsa -traditional` wrote, for this test only.
    const RSA_KEY: &str = include_str!("pkcs1.pem");

    // covers: CERT-4
    #[test]
    fn rsa_keys_of_other_operators_sign() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let life = CertificateLifetime::CONFIG_SERVER;
        let mut params = with_validity(CertificateParams::default(), life, now);
        params.distinguished_name = common_name("signer@1");
        let certificate = params.self_signed(&read_key(RSA_KEY).unwrap()).unwrap().pem();
        let signer = Pair { certificate, key: RSA_KEY.to_owned() };
        let names = BTreeSet::from(["a.test".to_owned()]);
        let made = serving(&signer, "signer@1", &names, life, now).unwrap();
        assert_eq!(parse(made.certificate.as_bytes()).unwrap().view.signer, "signer@1");
        assert!(is_key(RSA_KEY) && !is_key(&RSA_KEY.replace('A', "B")));
        for (length, header) in [(0, 2), (127, 2), (128, 3), (255, 3), (256, 4), (70_000, 5)] {
            assert_eq!(der(0x04, &vec![0; length]).len(), header + length, "{length}");
        }
    }

    // covers: CERT-1
    #[test]
    fn an_issued_certificate_parses_as_requested() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let life = CertificateLifetime::CONFIG_SERVER;
        let signer = authority("signer@1", life, now).unwrap();
        let names =
            BTreeSet::from(["a.test".to_owned(), "192.0.2.1".to_owned(), "fd00::1".to_owned()]);
        let made = serving(&signer, "signer@1", &names, life, now).unwrap();
        let of_signer = parse(signer.certificate.as_bytes()).unwrap();
        let of_server = parse(made.certificate.as_bytes()).unwrap();
        assert_eq!(of_signer.subject, "signer@1");
        assert_eq!(of_server.view.signer, "signer@1");
        assert_eq!(of_server.view.names, names);
        for view in [&of_signer.view, &of_server.view] {
            let lives = view.not_after.duration_since(view.not_before);
            assert_eq!(lives, life.validity + SignedDuration::from_secs(1));
        }
        let chain = parse_all(&format!("# a remark\n{}garbage", made.certificate));
        let subjects: Vec<&str> = chain.iter().map(|(found, _)| found.subject.as_str()).collect();
        assert_eq!(subjects, ["192.0.2.1", "signer@1"]);
        assert!(is_key(&made.key) && !is_key("-----BEGIN"));
        assert!(parse(b"nothing").is_none());
    }
}
