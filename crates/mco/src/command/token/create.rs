//! `mco token create`: makes a token and prints it once.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::Namespace,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Client, api::PostParams};
use mco_api::{
    MachineConfigPool,
    duration::DurationText,
    join_token::{self, Binding, JoinToken},
};
use mco_cluster::{Api, Clock, apply, config_server};
use mco_core::join::{StoredToken, TokenText, authorize::MAX_USES, parse_binding};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;

use super::{fetch_required, secrets};
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Connection},
};

/// Longest life of a token.
const MAX_TTL: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Life of a token for a machine of `mco up`.
const OWN_TTL: SignedDuration = SignedDuration::from_hours(24);

/// Make a token and print it; it cannot be shown again
#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    /// Pool of the machines that join
    #[arg(long, value_name = "POOL")]
    pool: String,
    /// Time until the token expires, such as 30m, 24h or 72h
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    ttl: DurationText,
    /// Number of machines that may join with the token
    #[arg(long, default_value_t = 1, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_USES)))]
    uses: u32,
    /// Only for the machine with this /etc/machine-id
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ID")]
    bind_machine_id: String,
    /// Only for the machine with an interface of this MAC address
    #[arg(long, default_value = "", hide_default_value = true, value_name = "MAC")]
    bind_mac: String,
    /// Only for machines that connect from this address, or range in CIDR notation
    #[arg(long, default_value = "", hide_default_value = true, value_name = "ADDRESS")]
    bind_address: String,
    /// Only for the machine whose TPM endorsement key has this SHA-256
    #[arg(long, default_value = "", hide_default_value = true, value_name = "SHA256")]
    bind_tpm_ek: String,
    /// Only for the machine that becomes this node
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    node: String,
    /// Text for `mco token list`
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    description: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Output of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// The token alone
    Text,
    /// An object with the token and its properties
    Json,
}

pub(super) fn run(args: &CreateArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let ttl = SignedDuration::try_from(args.ttl.0).unwrap_or(SignedDuration::MAX);
    if ttl.is_zero() || ttl > MAX_TTL {
        return Err(error_with_hint(
            format!("--ttl {} is not between 1s and 2160h", args.ttl),
            "a token is for a machine that is about to boot; make another one for the next",
        ));
    }
    let stored = |now: jiff::Timestamp, token: &TokenText| {
        anyhow::Ok(StoredToken {
            id: token.id().to_owned(),
            token: JoinToken {
                pool: args.pool.clone(),
                secret_sha256: token.secret_sha256(),
                created: Time(now),
                expires: Time(now.saturating_add(ttl).unwrap_or(now)),
                uses: args.uses,
                binding: binding(args)?,
                description: args.description.clone(),
            },
            joins: Vec::new(),
        })
    };
    let token = generate()?;
    let stored = stored(Clock::System.now(), &token)?;
    remote::block_on(async {
        let client = args.connection.writer().await?;
        check_pool(&client, &args.pool).await?;
        create(&client, &stored).await?;
        print_token(args, &token, &stored, screen)?;
        if !fetch_required(&client).await? {
            print::note(
                "join tokens are not required: every machine gets the config of its pool; \
                 `mco token --help` shows how to require them",
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Makes and stores a token for the machine of `mco up` that becomes this node.
pub(crate) async fn issue(
    client: &Client,
    pool: &str,
    node: &str,
) -> anyhow::Result<config_server::JoinToken> {
    let (token, now) = (generate()?, Clock::System.now());
    let stored = StoredToken {
        id: token.id().to_owned(),
        token: JoinToken {
            pool: pool.to_owned(),
            secret_sha256: token.secret_sha256(),
            created: Time(now),
            expires: Time(now.saturating_add(OWN_TTL).unwrap_or(now)),
            uses: 1,
            binding: Binding { node: node.to_owned(), ..Binding::default() },
            description: "machine of mco up".to_owned(),
        },
        joins: Vec::new(),
    };
    create(client, &stored).await?;
    Ok(config_server::JoinToken::new(&token.reveal()))
}

fn generate() -> anyhow::Result<TokenText> {
    let random = SystemRandom::new();
    let token = TokenText::generate(|bytes| random.fill(bytes));
    token.ok().context("the system has no random numbers")
}

fn binding(args: &CreateArgs) -> anyhow::Result<Binding> {
    Ok(parse_binding(&Binding {
        machine_id: args.bind_machine_id.clone(),
        mac: args.bind_mac.clone(),
        address: args.bind_address.clone(),
        tpm_ek: args.bind_tpm_ek.clone(),
        node: args.node.clone(),
    })?)
}

async fn check_pool(client: &Client, pool: &str) -> anyhow::Result<()> {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    if pools.get_opt(pool).await.map_err(remote::call_error)?.is_none() {
        return Err(error_with_hint(
            format!("there is no pool {pool}"),
            "list the pools with `mco get mcp`",
        ));
    }
    Ok(())
}

/// Stores the token. The namespace is created by the operator; a cluster without one gets it here.
async fn create(client: &Client, stored: &StoredToken) -> anyhow::Result<()> {
    let api = secrets(client);
    let secret = stored.secret();
    let first = api.create(&PostParams::default(), &secret).await;
    let Err(kube::Error::Api(status)) = &first else {
        first.map_err(remote::call_error)?;
        return Ok(());
    };
    if !status.is_not_found() {
        first.map_err(remote::call_error)?;
    }
    let metadata =
        ObjectMeta { name: Some(join_token::NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    apply::create(&Api::all(client.clone()), &namespace).await?;
    api.create(&PostParams::default(), &secret).await.map_err(remote::call_error)?;
    Ok(())
}

fn print_token(
    args: &CreateArgs,
    token: &TokenText,
    stored: &StoredToken,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let StoredToken { id, token: JoinToken { pool, expires, uses, .. }, .. } = stored;
    if args.output == Output::Json {
        let shown = json!({"token": token.reveal(), "id": id, "pool": pool, "uses": uses,
            "expires": expires});
        writeln!(screen, "{}", serde_json::to_string_pretty(&shown)?)?;
        return Ok(());
    }
    writeln!(screen, "{}", token.reveal())?;
    let machines = if *uses == 1 { "one machine".to_owned() } else { format!("{uses} machines") };
    let until = expires.0;
    print::note(&format!(
        "for {machines} of pool {pool}, until {until:.0}; it is not shown again. The pointer config: \
         mco pointer --pool {pool} --token TOKEN"
    ));
    Ok(())
}
