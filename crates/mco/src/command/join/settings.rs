//! The settings of a join: from the command line, or from the record of an unfinished one.

use std::{ffi::OsString, fmt, io::Write as _, path::Path, str::FromStr};

use anyhow::Context as _;
use mco_apply::{
    disk,
    join::{self, JoinRecord, JoinStage},
};
use mco_cluster::config_server::{ConfigServer, JoinToken, Trust};
use mco_host::{Host, SystemdSystem, input, process};

use super::{JoinArgs, identity};
use crate::{error::error_with_hint, print::Screen};

/// Variable with the join token.
pub(super) const TOKEN: &str = "MCO_JOIN_TOKEN";

const MAX_TOKEN_FILE: u64 = 4 << 10;
const MAX_CA_FILE: u64 = 1 << 20;
const MAX_NAME: usize = 253;

/// Credentials of a kubelet that has registered.
const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";

/// A token on the command line. `Debug` does not print it.
#[derive(Clone)]
pub(super) struct TokenArg(JoinToken);

impl FromStr for TokenArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(JoinToken::new(text)))
    }
}

impl fmt::Debug for TokenArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenArg(…)")
    }
}

/// Moves a token from the arguments, which all users of the machine can read, to the environment.
pub(super) fn hide_token(args: &JoinArgs) -> anyhow::Result<()> {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let without = without_token(&given);
    let Some(TokenArg(token)) = args.token.as_ref().filter(|_| without.len() < given.len()) else {
        return Ok(());
    };
    let error = process::restart_with(&without, TOKEN, token.secret());
    Err(error).context("failed to hide the token from the list of processes; use --token-file")
}

fn without_token(given: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = given.iter();
    while let Some(word) = words.next() {
        if word == "--token" {
            words.next();
        } else if !word.to_string_lossy().starts_with("--token=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// Returns the record of the join that is to be done; `None` if the machine has already joined, or
/// nothing is left to continue.
pub(super) fn record(
    args: &JoinArgs,
    host: &Host<SystemdSystem>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<Option<JoinRecord>> {
    let kept = join::load(&host.root)?;
    let Some(server) = &args.server else {
        let Some(kept) = kept.filter(|kept| kept.stage != JoinStage::Joined) else {
            writeln!(screen, "nothing to continue: no join of this machine is unfinished")?;
            return Ok(None);
        };
        return Ok(Some(kept));
    };
    match kept {
        Some(kept) if kept.server == *server && kept.pool == args.pool => {
            if kept.stage == JoinStage::Joined {
                let JoinRecord { node, pool, .. } = &kept;
                writeln!(screen, "nothing to do: this machine has joined pool {pool} as {node}")?;
                return Ok(None);
            }
            update(args, host, server, Some(kept)).map(Some)
        }
        Some(kept) if kept.stage != JoinStage::Fetching => Err(error_with_hint(
            format!("this machine joins or has joined pool {} of {}", kept.pool, kept.server),
            "a machine is in one cluster; install it anew to move it",
        )),
        Some(_) => update(args, host, server, None).map(Some),
        None => {
            refuse_node(host)?;
            update(args, host, server, None).map(Some)
        }
    }
}

/// Refuses a machine that is already a node.
fn refuse_node(host: &Host<SystemdSystem>) -> anyhow::Result<()> {
    let config = disk::current_name(&host.root)?;
    let found = match config {
        Some(config) => format!("it has the config {config}"),
        None if host.root.exists(KUBELET_KUBECONFIG)? => format!("it has {KUBELET_KUBECONFIG}"),
        None => return Ok(()),
    };
    Err(error_with_hint(
        format!("this machine is already managed or a node: {found}"),
        "the daemon of its cluster adopts it as it is; install the machine anew to move it",
    ))
}

/// Builds a record from the command line; the id and the stage are those of the join before, if any.
fn update(
    args: &JoinArgs,
    host: &Host<SystemdSystem>,
    server: &str,
    before: Option<JoinRecord>,
) -> anyhow::Result<JoinRecord> {
    let root = &host.root;
    let own = identity::host_name(root)?;
    let node = args.node_name.clone().or_else(|| before.as_ref().map(|it| it.node.clone()));
    let node = node.unwrap_or_else(|| own.clone());
    check_name(&node)?;
    check_name(&args.pool)?;
    let token = match &args.token_file {
        Some(path) => Some(read(path, MAX_TOKEN_FILE, "the token")?.trim().to_owned()),
        None => args.token.as_ref().map(|TokenArg(token)| token.secret().to_owned()),
    };
    let given = args.ca.is_some() || args.ca_sha256.is_some();
    let (ca, ca_sha256) = match &before {
        Some(before) if !given => (before.ca.clone(), before.ca_sha256.clone()),
        _ => {
            let ca = args.ca.as_deref().map(|path| read(path, MAX_CA_FILE, "the certificates"));
            (ca.transpose()?, args.ca_sha256.clone())
        }
    };
    let record = JoinRecord {
        server: server.to_owned(),
        pool: args.pool.clone(),
        ca,
        ca_sha256,
        token: token.or_else(|| before.as_ref().and_then(|it| it.token.clone())),
        is_renamed: node != own,
        node,
        join_id: match &before {
            Some(before) => before.join_id.clone(),
            None => identity::random_id(root)?,
        },
        stage: before.as_ref().map_or(JoinStage::Fetching, |it| it.stage),
        rebooted_from: before.as_ref().map(|it| it.rebooted_from.clone()).unwrap_or_default(),
        reboots: before.map_or(0, |it| it.reboots),
    };
    connect(&record)?;
    Ok(record)
}

/// Returns the config server of a record.
pub(super) fn connect(record: &JoinRecord) -> anyhow::Result<ConfigServer> {
    let trust = match (&record.ca, &record.ca_sha256) {
        (Some(ca), _) => Trust::authorities(ca.as_bytes()).context("--ca is unusable")?,
        (None, Some(hash)) => Trust::hash(hash).context("--ca-sha256 is unusable")?,
        (None, None) => {
            return Err(error_with_hint(
                "the machine needs --ca or --ca-sha256 to verify the config server",
                "`mco join --help` shows how to get them",
            ));
        }
    };
    Ok(ConfigServer::new(&record.server, &trust)?)
}

fn read(path: &Path, limit: u64, what: &str) -> anyhow::Result<String> {
    let bytes = input::file(path, limit).with_context(|| format!("failed to read {what}"))?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
}

/// Checks that a text is the name of a Kubernetes object, which also makes it safe in a path.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_valid = name.len() <= MAX_NAME
        && name.starts_with(is_edge)
        && name.ends_with(is_edge)
        && name.chars().all(|c| is_edge(c) || c == '-' || c == '.');
    anyhow::ensure!(
        is_valid,
        "{name:?} is no valid name: lower-case letters, digits, - and . are allowed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leaves_the_arguments() {
        let given = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (args, want) in [
            ("join --token a.b --yes", "join --yes"),
            ("join --yes --token=a.b", "join --yes"),
            ("join --token-file f", "join --token-file f"),
            ("join --token", "join"),
        ] {
            assert_eq!(without_token(&given(args)), given(want), "{args}");
        }
        assert!(!format!("{:?}", "a.secret".parse::<TokenArg>().unwrap()).contains("secret"));
    }

    #[test]
    fn names_are_checked() {
        for name in ["worker", "m4.example.com", "a"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "../a", "A", "a/b", "-a", "a\n", &"a".repeat(254)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
