//! The config that makes a machine fetch its first config: as Ignition, as user data of cloud-init,
//! and as kernel arguments.

use std::net::IpAddr;

use mco_ignition::data_url;
use serde_json::{Value, json};

use super::token::TokenText;

/// Port of the server's HTTPS.
pub const SERVER_PORT: u16 = 22623;

/// Version of the Ignition spec of a pointer: the oldest one that is widely used and has headers.
pub const VERSION: &str = "3.2.0";

/// Path of the server's CA certificates on a machine.
const CA_FILE: &str = "/etc/mco/server-ca.crt";

/// Path of the join token on a machine, until the machine has joined.
const TOKEN_FILE: &str = "/etc/mco/join-token";

/// Path of the variables with which the unit of the first boot reports a failure to the server.
const REPORT_FILE: &str = "/etc/mco/first-boot.env";

/// A pointer to the config of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// URL of the server, without a path.
    pub server: String,
    /// Pool of the machine.
    pub pool: String,
    /// CA certificates of the server, as PEM; empty if the machine trusts it already.
    pub ca: String,
    /// Token of the machine.
    pub token: Option<TokenText>,
    /// Name of the machine's node; sent to the server, which checks it against the token.
    pub node: String,
}

/// A server that is not a URL of HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the URL of a config server, such as https://api-int.example.com:22623")]
pub struct ServerUrlError(pub String);

/// Returns the URL of a server in its only form: scheme, host and port, without a path.
pub fn server_url(text: &str) -> Result<String, ServerUrlError> {
    let error = || ServerUrlError(text.to_owned());
    let rest = text.trim().strip_prefix("https://").ok_or_else(error)?;
    let rest = rest.trim_end_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if rest.is_empty() || !rest.chars().all(is_plain) {
        return Err(error());
    }
    let has_port = match rest.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => {
            rest.starts_with('[') || rest.matches(':').count() == 1
        }
        Some((_, port)) if !port.ends_with(']') => return Err(error()),
        Some(_) | None => false,
    };
    let port = if has_port { String::new() } else { format!(":{SERVER_PORT}") };
    Ok(format!("https://{rest}{port}"))
}

/// Returns the host of a URL, as it is written in one.
#[must_use]
pub fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let host = match authority.find(']') {
        Some(end) => authority.get(..=end)?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

/// Returns the URL of the config server on the host of the API server, as machines reach it: by the
/// internal URL of the infrastructure, else by the URL in the ConfigMap `cluster-info`, else by the
/// first address of the service `kubernetes`.
#[must_use]
pub fn default_server(
    internal: Option<&str>,
    cluster_info: Option<&str>,
    endpoints: &[IpAddr],
) -> Option<String> {
    let internal = internal.and_then(host);
    let by_url = internal.or_else(|| cluster_info.and_then(host)).map(str::to_owned);
    let host = by_url.or_else(|| {
        endpoints.first().map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        })
    })?;
    Some(format!("https://{host}:{SERVER_PORT}"))
}

impl Pointer {
    /// Returns the URL of the pool's config.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/config/{}", self.server, self.pool)
    }

    /// Returns the pointer as an Ignition config. With the CA certificates, the machine gets what it
    /// needs to report a failed first boot, too.
    #[must_use]
    pub fn ignition(&self) -> Value {
        let mut source = json!({"source": self.url()});
        let token = self.token.iter().map(|token| ("Authorization", bearer(token)));
        let node = (!self.node.is_empty()).then(|| ("Mco-Node-Name", self.node.clone()));
        let headers: Vec<Value> =
            token.chain(node).map(|(name, value)| json!({"name": name, "value": value})).collect();
        if let (Some(members), false) = (source.as_object_mut(), headers.is_empty()) {
            members.insert("httpHeaders".to_owned(), Value::Array(headers));
        }
        let mut ignition = json!({"version": VERSION, "config": {"merge": [source]}});
        if let (Some(members), false) = (ignition.as_object_mut(), self.ca.is_empty()) {
            let source = data_url::encode_base64(self.ca.as_bytes());
            let authorities = json!({"tls": {"certificateAuthorities": [{"source": source}]}});
            members.insert("security".to_owned(), authorities);
        }
        let mut config = json!({"ignition": ignition});
        if let (Some(members), false) = (config.as_object_mut(), self.ca.is_empty()) {
            let files = self.files().into_iter().chain([(REPORT_FILE, 0o644, self.variables())]);
            let files = files.map(|(path, mode, text)| {
                let source = data_url::encode_base64(text.as_bytes());
                json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}})
            });
            members.insert("storage".to_owned(), json!({"files": files.collect::<Vec<_>>()}));
        }
        config
    }

    /// Returns path, mode and contents of the files with which a machine trusts the server and is
    /// trusted by it.
    fn files(&self) -> Vec<(&'static str, u32, String)> {
        let ca = (!self.ca.is_empty()).then(|| (CA_FILE, 0o644, self.ca.clone()));
        let token = self.token.iter().map(|token| (TOKEN_FILE, 0o600, token.reveal()));
        ca.into_iter().chain(token).collect()
    }

    /// Returns the variables of the unit that completes the first boot.
    fn variables(&self) -> String {
        let token = self.token.iter().map(|_| format!("MCO_REPORT_TOKEN_FILE={TOKEN_FILE}\n"));
        let server = format!(
            "MCO_REPORT_SERVER={}\nMCO_REPORT_POOL={}\nMCO_REPORT_CA={CA_FILE}\n",
            self.server, self.pool
        );
        [server].into_iter().chain(token).collect()
    }

    /// Returns the pointer as user data for cloud-init, which runs `mco join` on a machine that is
    /// booted already. The token is in a file that only root can read, not in an argument, which
    /// every process can.
    #[must_use]
    pub fn cloud_init(&self) -> String {
        let mut join = format!("mco join --server {} --pool {}", self.server, self.pool);
        let mut argument = |name: &str, value: &str| join.extend([" ", name, " ", value]);
        if !self.node.is_empty() {
            argument("--node-name", &self.node);
        }
        if !self.ca.is_empty() {
            argument("--ca", CA_FILE);
        }
        if self.token.is_some() {
            argument("--token-file", TOKEN_FILE);
        }
        // No terminal is there to ask.
        join.push_str(" --yes");
        let files: String =
            self.files().iter().map(|(path, mode, text)| file(path, *mode, text)).collect();
        let files = if files.is_empty() { files } else { format!("write_files:\n{files}") };
        format!(
            "#cloud-config\n# The image must have the program `mco` in its search path.\n{files}runcmd:\n- {join}\n"
        )
    }

    /// Returns the pointer as kernel arguments; `None` with a token, because kernel arguments cannot
    /// carry headers and every process of the machine can read them.
    #[must_use]
    pub fn kernel_arguments(&self) -> Option<String> {
        let plain = self.token.is_none() && self.node.is_empty();
        plain.then(|| {
            format!(
                "ignition.firstboot ignition.platform.id=metal ignition.config.url={}",
                self.url()
            )
        })
    }
}

fn bearer(token: &TokenText) -> String {
    format!("Bearer {}", token.reveal())
}

fn file(path: &str, mode: u32, contents: &str) -> String {
    let lines = contents.trim_end().lines().flat_map(|line| ["    ", line, "\n"]);
    let lines: String = lines.collect();
    format!(
        "- path: {path}\n  permissions: '{mode:04o}'\n  owner: root:root\n  content: |\n{lines}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::fixture::text;

    fn pointer() -> Pointer {
        Pointer {
            server: "https://api-int.test:22623".to_owned(),
            pool: "worker".to_owned(),
            ca: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
            token: Some(text(1)),
            node: "w-1".to_owned(),
        }
    }

    #[test]
    fn a_server_is_a_url_of_https_with_a_port() {
        let rows = [
            ("https://api-int.test:22623", Some("https://api-int.test:22623")),
            ("https://api-int.test/", Some("https://api-int.test:22623")),
            ("https://10.0.0.1:8443", Some("https://10.0.0.1:8443")),
            ("https://[2001:db8::1]", Some("https://[2001:db8::1]:22623")),
            ("https://[2001:db8::1]:9", Some("https://[2001:db8::1]:9")),
            ("http://api-int.test:22624", None),
            ("api-int.test", None),
            ("https://", None),
            ("https://host:port", None),
            ("https://host:99999", None),
            ("https://host/config/worker", None),
            ("https://user@host", None),
            ("https://ho st", None),
            ("https://host\nruncmd:", None),
        ];
        for (given, expected) in rows {
            assert_eq!(server_url(given).ok().as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn the_server_is_on_the_host_that_machines_reach_the_api_by() {
        let (internal, info) = (Some("https://api-int.test:6443"), Some("https://10.0.0.1:6443/x"));
        let endpoints: [IpAddr; 1] = ["2001:db8::1".parse().unwrap()];
        let rows = [
            (internal, info, Some("https://api-int.test:22623")),
            (None, info, Some("https://10.0.0.1:22623")),
            (Some(""), info, Some("https://10.0.0.1:22623")),
            (None, Some("https://[2001:db8::2]:6443"), Some("https://[2001:db8::2]:22623")),
            (None, None, Some("https://[2001:db8::1]:22623")),
        ];
        for (internal, info, expected) in rows {
            assert_eq!(default_server(internal, info, &endpoints).as_deref(), expected);
        }
        assert_eq!(default_server(None, None, &[]), None);
    }

    #[test]
    fn our_own_ignition_accepts_the_pointer() {
        for pointer in [
            pointer(),
            Pointer { token: None, node: String::new(), ca: String::new(), ..pointer() },
        ] {
            let value = pointer.ignition();
            let document = mco_ignition::read(value.to_string().as_bytes()).unwrap();
            document.check().unwrap();
            assert_eq!(document.warnings().to_string(), "");
            let headers = &value["ignition"]["config"]["merge"][0]["httpHeaders"];
            assert_eq!(headers.is_array(), pointer.token.is_some());
        }
    }

    #[test]
    fn a_machine_of_ignition_can_report_a_failed_first_boot() {
        let files = |pointer: &Pointer| -> Vec<(String, u64, String)> {
            let value = pointer.ignition();
            let files = value["storage"]["files"].as_array().cloned().unwrap_or_default();
            let read = |file: &Value| {
                let source = file["contents"]["source"].as_str().unwrap();
                let bytes = data_url::decode(source).unwrap();
                let text = String::from_utf8(bytes.clone()).unwrap();
                (file["path"].as_str().unwrap().to_owned(), file["mode"].as_u64().unwrap(), text)
            };
            files.iter().map(read).collect()
        };
        let all = files(&pointer());
        let named: Vec<(&str, u64)> =
            all.iter().map(|(path, mode, _)| (path.as_str(), *mode)).collect();
        let expected = [
            ("/etc/mco/server-ca.crt", 0o644),
            ("/etc/mco/join-token", 0o600),
            ("/etc/mco/first-boot.env", 0o644),
        ];
        assert_eq!(named, expected);
        assert_eq!(
            all[2].2,
            "MCO_REPORT_SERVER=https://api-int.test:22623\n\
             MCO_REPORT_POOL=worker\n\
             MCO_REPORT_CA=/etc/mco/server-ca.crt\n\
             MCO_REPORT_TOKEN_FILE=/etc/mco/join-token\n"
        );
        let open = Pointer { token: None, ..pointer() };
        assert!(!files(&open)[1].2.contains("TOKEN"));
        // A server without a known CA cannot be told from another one.
        assert!(files(&Pointer { ca: String::new(), ..pointer() }).is_empty());
    }

    #[test]
    fn user_data_of_cloud_init_runs_mco_join() {
        let shown = pointer().cloud_init();
        let expected = "\
#cloud-config
# The image must have the program `mco` in its search path.
write_files:
- path: /etc/mco/server-ca.crt
  permissions: '0644'
  owner: root:root
  content: |
    -----BEGIN CERTIFICATE-----
    AA==
    -----END CERTIFICATE-----
- path: /etc/mco/join-token
  permissions: '0600'
  owner: root:root
  content: |
    token001.00000000000000000000000000000001
runcmd:
- mco join --server https://api-int.test:22623 --pool worker --node-name w-1 --ca /etc/mco/server-ca.crt --token-file /etc/mco/join-token --yes
";
        assert_eq!(shown, expected);
        assert!(serde_saphyr::from_str::<Value>(&shown).is_ok());
    }

    #[test]
    fn kernel_arguments_carry_no_token() {
        assert_eq!(pointer().kernel_arguments(), None);
        let open = Pointer { token: None, node: String::new(), ..pointer() };
        assert_eq!(
            open.kernel_arguments().unwrap(),
            "ignition.firstboot ignition.platform.id=metal \
             ignition.config.url=https://api-int.test:22623/config/worker"
        );
    }
}
