//! `99-<role>-ssh`: SSH keys of the user `core`, from a ConfigMap with `authorized_keys` lines.

use std::collections::BTreeMap;

use mco_api::{
    MachineConfig, MachineConfigSpec,
    annotation::{self, BaseConfig},
    name::PoolName,
};
use mco_ignition::{Config, config::User};

use super::raw;
use crate::{generated, render::Build};

/// User that may log in. Compat: the only user that the reference's daemon changes.
const USER: &str = "core";

/// Key of the ConfigMap whose SSH keys all roles get.
const ALL: &str = "all";

/// Types of keys that current releases of OpenSSH accept.
const KEY_TYPES: [&str; 8] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-dss",
];

/// A line or key of the ConfigMap that cannot be used. The texts never contain the SSH key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshKeyError {
    /// A key of the ConfigMap is no role.
    #[error("key {0:?} is no role; use the name of a pool, or \"all\"")]
    Role(String),
    /// A line is no public key.
    #[error(
        "line {line} of key {role:?} is no public SSH key; write one per line, as ssh-keygen does: TYPE BASE64 COMMENT"
    )]
    Key {
        /// Key of the ConfigMap.
        role: String,
        /// Number of the line, from one.
        line: usize,
    },
}

/// Returns the name of a role's MachineConfig with SSH keys.
#[must_use]
pub fn ssh_config_name(role: &str) -> String {
    format!("99-{role}-ssh")
}

/// Builds the MachineConfigs for a ConfigMap's data, whose keys are roles or `all`; `roles` are those
/// of the cluster's pools.
pub fn ssh_configs(
    data: &BTreeMap<String, String>,
    roles: &[&str],
    build: &Build,
) -> Result<Vec<MachineConfig>, SshKeyError> {
    let mut by_role: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (role, text) in data {
        let keys = keys(role, text)?;
        let named = if role == ALL { roles.to_vec() } else { vec![role.as_str()] };
        for role in named {
            let of_role = by_role.entry(role).or_default();
            of_role.extend(
                keys.iter().filter(|key| !of_role.contains(*key)).cloned().collect::<Vec<_>>(),
            );
        }
    }
    let some = by_role.into_iter().filter(|(_, keys)| !keys.is_empty());
    Ok(some.map(|(role, keys)| config(role, keys, build)).collect())
}

fn keys(role: &str, text: &str) -> Result<Vec<String>, SshKeyError> {
    if role.parse::<PoolName>().is_err() {
        return Err(SshKeyError::Role(role.to_owned()));
    }
    let mut keys = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !is_public_key(line) {
            return Err(SshKeyError::Key { role: role.to_owned(), line: index + 1 });
        }
        keys.push(line.to_owned());
    }
    Ok(keys)
}

/// Returns true if the line has a type of key and base64 data that begin with the same type. Options
/// may precede the type, as in `authorized_keys`.
fn is_public_key(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let Some(kind) = words.find(|word| KEY_TYPES.contains(word)) else { return false };
    let Some(data) = words.next() else { return false };
    let url = format!("data:;base64,{data}");
    let Ok(data) = mco_ignition::data_url::decode(&url) else { return false };
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    rest.get(..length).is_some_and(|found| found == kind.as_bytes()) && rest.len() > length
}

fn config(role: &str, keys: Vec<String>, build: &Build) -> MachineConfig {
    let mut contents = Config::empty();
    let user = User { name: USER.to_owned(), ssh_authorized_keys: keys, ..User::default() };
    contents.passwd.users.push(user);
    let spec = MachineConfigSpec { config: Some(raw(&contents)), ..MachineConfigSpec::default() };
    let mut config = generated::machine_config(&ssh_config_name(role), role, spec, build, None);
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::BASE_CONFIG.set(annotations, &BaseConfig::Generated);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8m0b8gYy7r0m0m6Zr1m1m1m1m1m1m1m1m1m1m1m1m1 a@test";
    const SECOND: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK8m0b8gYy7r0m0m6Zr1m1m1m1m1m1m1m1m1m1m1m1m1 b@test";

    fn made(data: &[(&str, &str)]) -> Result<Vec<(String, String)>, SshKeyError> {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let configs = ssh_configs(&data, &["master", "worker"], &build)?;
        let text = |config: MachineConfig| {
            let machine = crate::machine::Machine::read(&config).unwrap();
            (machine.name, machine.config.passwd.users[0].ssh_authorized_keys.join("\n"))
        };
        Ok(configs.into_iter().map(text).collect())
    }

    #[test]
    fn keys_of_a_role_and_of_all_reach_the_user_core() {
        let made = made(&[("all", FIRST), ("worker", &format!("# two\n\n{SECOND}\n{FIRST}\n"))]);
        let both = format!("{FIRST}\n{SECOND}");
        let expected =
            [("99-master-ssh".to_owned(), FIRST.to_owned()), ("99-worker-ssh".to_owned(), both)];
        assert_eq!(made.unwrap(), expected);
    }

    #[test]
    fn without_keys_there_is_no_config() {
        assert_eq!(made(&[]).unwrap(), []);
        assert_eq!(made(&[("worker", "# none\n")]).unwrap(), []);
    }

    #[test]
    fn lines_that_are_no_keys_are_refused() {
        let (_, data) = FIRST.split_once(' ').unwrap();
        let mismatch = format!("ssh-rsa {data}");
        for line in ["hello", "ssh-ed25519", "ssh-ed25519 ???", "ssh-ed25519 AAAA", &mismatch] {
            let text = format!("{FIRST}\n{line}");
            let expected = SshKeyError::Key { role: "worker".to_owned(), line: 2 };
            assert_eq!(made(&[("worker", &text)]), Err(expected), "{line}");
        }
        assert_eq!(made(&[("No Role", FIRST)]), Err(SshKeyError::Role("No Role".to_owned())));
        assert!(made(&[("worker", &format!("restrict,pty {FIRST}"))]).is_ok());
    }
}
