//! Certificates for test clusters: one authority, the certificates that it signs, and kubeconfigs
//! with them.

use std::fmt;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The certificate authority of a cluster.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
}

/// The key pair for service account tokens, both as PEM.
#[derive(Clone)]
pub struct SigningKey {
    /// Key that signs tokens.
    pub private: String,
    /// Key that verifies tokens.
    pub public: String,
}

/// The subject of a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s> {
    /// Common name: a user, or the name of a server.
    pub name: &'s str,
    /// Organization: a group of users.
    pub group: Option<&'s str>,
}

/// The usage of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Server authentication.
    Server,
    /// Client authentication.
    Client,
    /// Both, as a kubelet needs.
    Both,
}

/// Credentials of a kubeconfig's user.
#[derive(Clone, Copy)]
pub enum Credentials<'c> {
    /// A client certificate.
    Certificate(&'c Pair),
    /// A bearer token.
    Token(&'c str),
}

impl Authority {
    /// Creates an authority of that name.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("failed to create the authority's key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate =
            params.self_signed(&key).context("failed to sign the authority's certificate")?.pem();
        let pair = Pair { certificate, key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), pair })
    }

    /// Returns the authority's own certificate and key.
    #[must_use]
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Issues a certificate for `subject`, valid for these host names and addresses.
    pub fn issue(
        &self,
        subject: Subject<'_>,
        purpose: Purpose,
        names: &[String],
    ) -> anyhow::Result<Pair> {
        let make = || -> Result<Pair, rcgen::Error> {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, subject.name);
            if let Some(group) = subject.group {
                params.distinguished_name.push(DnType::OrganizationName, group);
            }
            let (serve, call) =
                (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
            params.extended_key_usages = match purpose {
                Purpose::Server => vec![serve],
                Purpose::Client => vec![call],
                Purpose::Both => vec![serve, call],
            };
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok(Pair { certificate, key: key.serialize_pem() })
        };
        make().with_context(|| format!("failed to create a certificate for {}", subject.name))
    }

    /// Issues a server certificate.
    pub fn server(&self, name: &str, names: &[String]) -> anyhow::Result<Pair> {
        self.issue(Subject { name, group: None }, Purpose::Server, names)
    }

    /// Issues a client certificate for a user.
    pub fn user(&self, name: &str, group: Option<&str>) -> anyhow::Result<Pair> {
        self.issue(Subject { name, group }, Purpose::Client, &[])
    }

    /// Issues the certificate of a node's kubelet, for client and server authentication.
    pub fn node(&self, node: &str, addresses: &[String]) -> anyhow::Result<Pair> {
        let name = format!("system:node:{node}");
        let subject = Subject { name: &name, group: Some("system:nodes") };
        let names = [&[node.to_owned()], addresses].concat();
        self.issue(subject, Purpose::Both, &names)
    }

    /// Builds a kubeconfig for a user of the API server at `url`, whose certificate this authority
    /// signed.
    #[must_use]
    pub fn kubeconfig(&self, url: &str, user: Credentials<'_>) -> String {
        let authority = STANDARD.encode(&self.pair.certificate);
        let user = match user {
            Credentials::Certificate(pair) => format!(
                "client-certificate-data: {}\n    client-key-data: {}",
                STANDARD.encode(&pair.certificate),
                STANDARD.encode(&pair.key)
            ),
            Credentials::Token(token) => format!("token: {token}"),
        };
        format!(
            "apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: {url}
    certificate-authority-data: {authority}
contexts:
- name: test
  context:
    cluster: test
    user: user
users:
- name: user
  user:
    {user}
"
        )
    }
}

impl SigningKey {
    /// Generates a key pair.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("failed to create a key for service accounts")?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate(_) => "Certificate",
            Self::Token(_) => "Token",
        })
    }
}
