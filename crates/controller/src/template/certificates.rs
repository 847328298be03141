//! The certificates that the ControllerConfig distributes to nodes, as its status lists them.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mco_api::{
    Bytes,
    controller_config::{ControllerCertificate, ControllerConfigSpec},
};
use x509_parser::{pem::Pem, time::ASN1Time, x509::X509Name};

/// Returns all certificates of a ControllerConfig.
///
/// Compat: names and order of the bundles are the reference's, and a bundle is read up to its first
/// malformed block (`pkg/controller/template`).
pub(super) fn of(spec: &ControllerConfigSpec) -> Vec<ControllerCertificate> {
    let named = [
        ("KubeAPIServerServingCAData", Some(&spec.kube_api_server_serving_ca_data)),
        ("CloudProviderCAData", spec.cloud_provider_ca_data.as_ref()),
        ("RootCAData", Some(&spec.root_ca_data)),
        ("AdditionalTrustBundle", spec.additional_trust_bundle.as_ref()),
    ];
    let named = named.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)));
    let registries =
        spec.image_registry_bundle_data.iter().chain(&spec.image_registry_bundle_user_data);
    let registries = registries.map(|bundle| (bundle.file.as_str(), &bundle.data));
    named.chain(registries).flat_map(|(name, bytes)| parse(name, bytes)).collect()
}

fn parse(bundle: &str, bytes: &Bytes) -> Vec<ControllerCertificate> {
    let blocks = Pem::iter_from_buffer(bytes.as_slice());
    let certificates = blocks.map_while(|block| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        let validity = certificate.validity();
        Some(ControllerCertificate {
            subject: name(certificate.subject()),
            signer: name(certificate.issuer()),
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
            bundle_file: bundle.to_owned(),
        })
    });
    certificates.collect()
}

fn time(time: ASN1Time) -> Option<Time> {
    Timestamp::from_second(time.timestamp()).ok().map(Time)
}

/// Attributes of names, by object identifier.
const ATTRIBUTES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.17", "POSTALCODE"),
];

/// Returns a distinguished name as text. Compat: the form of Go, last attribute first.
fn name(name: &X509Name<'_>) -> String {
    let attribute = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        let oid = attribute.attr_type().to_id_string();
        let known = ATTRIBUTES.iter().find(|(known, _)| *known == oid);
        let key = known.map_or(oid.as_str(), |(_, name)| *name);
        let value = attribute.as_str().unwrap_or_default().replace(',', "\\,").replace('+', "\\+");
        format!("{key}={value}")
    };
    let sets = name.iter_rdn().map(|set| set.iter().map(attribute).collect::<Vec<_>>().join("+"));
    let mut sets: Vec<String> = sets.collect();
    sets.reverse();
    sets.join(",")
}

#[cfg(test)]
mod tests {
    use mco_api::controller_config::ImageRegistryBundle;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn certificate(common: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Test, Inc");
        params.distinguished_name.push(DnType::CommonName, common);
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2036, 1, 2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    // covers: TPL-9
    #[test]
    fn certificates_of_all_bundles_are_listed_with_their_validity() {
        let two = format!("{}{}", certificate("a"), certificate("b"));
        let cut = format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n", certificate("c"));
        let spec = ControllerConfigSpec {
            kube_api_server_serving_ca_data: two.into_bytes().into(),
            root_ca_data: b"authority".to_vec().into(),
            additional_trust_bundle: Some(cut.into_bytes().into()),
            image_registry_bundle_data: vec![ImageRegistryBundle {
                file: "registry.test..5000".to_owned(),
                data: certificate("d").into_bytes().into(),
            }],
            ..ControllerConfigSpec::default()
        };
        let found = of(&spec);
        let short = found.iter().map(|one| format!("{} {}", one.bundle_file, one.subject));
        let expected = [
            "KubeAPIServerServingCAData CN=a,O=Test\\, Inc",
            "KubeAPIServerServingCAData CN=b,O=Test\\, Inc",
            "AdditionalTrustBundle CN=c,O=Test\\, Inc",
            "registry.test..5000 CN=d,O=Test\\, Inc",
        ];
        assert!(short.clone().eq(expected), "{:?}", short.collect::<Vec<_>>());
        for one in found {
            assert_eq!(one.signer, one.subject);
            assert_eq!(one.not_before.unwrap().0.to_string(), "2026-01-02T00:00:00Z");
            assert_eq!(one.not_after.unwrap().0.to_string(), "2036-01-02T00:00:00Z");
        }
    }
}
