//! `mco install`: prints the manifests that install `mco` into a cluster.

use std::{io::Write as _, process::ExitCode, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use mco_api::{join_token, label};
use mco_cluster::{CallError, report::chain};
use mco_core::takeover::{Evidence, Order};
use mco_operator::manifests::{self, IMAGE, ObjectName, Parameters};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::takeover::is_own;
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    process::TakeoverArgs,
    remote::{self, Connection, installation, runner},
};

/// Name of the operator's Deployment.
const OPERATOR: &str = "machine-config-operator";

/// Field manager of a dry run.
const MANAGER: &str = "mco";

/// Time that a cluster has to tell of its installation.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// Print the manifests that install mco into a cluster: kinds, namespaces and the operator, which
/// deploys everything else
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InstallArgs {
    /// Contents of the base configs: adopt leaves kubelet and container runtime alone, full installs
    /// them; adopt if omitted
    #[arg(long, value_parser = ["adopt", "full"], value_name = "PROFILE")]
    profile: Option<String>,
    /// Authentication of new machines: with required, only machines with a join token get a config; off
    /// if omitted
    #[arg(long, value_parser = ["required", "off"], value_name = "MODE")]
    join_tokens: Option<String>,
    /// Image of all processes
    #[arg(long, default_value = IMAGE, value_name = "IMAGE")]
    image: String,
    /// Namespace of all processes and of their objects. With a cluster at hand, the command fails if an
    /// installation is in another namespace
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = label::NAMESPACE,
        value_parser = parse_namespace,
        conflicts_with = "take_over"
    )]
    namespace: String,
    #[command(flatten)]
    takeover: TakeoverArgs,
    /// Format of the manifests
    #[arg(long, short, value_parser = ["yaml", "json"], default_value = "yaml", value_name = "FORMAT")]
    output: String,
    /// Send the manifests to the cluster, which checks them and stores nothing, and print the result
    #[arg(long, value_parser = ["server"], value_name = "MODE")]
    dry_run: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco install | kubectl apply -f -
  mco install --image registry.example/mco:1 --join-tokens required | kubectl apply -f -
  mco install --dry-run=server --kubeconfig admin.kubeconfig
  mco install --namespace node-config | kubectl apply -f -
  mco install --take-over --adopt-build | kubectl apply -f -

Nodes keep running as they are: nothing is drained, restarted or rebooted. docs/install.md has all steps;
docs/takeover.md has those of a cluster that another operator runs.";

/// Prints the manifests, or the result of a dry run.
pub(crate) fn run(args: &InstallArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let parameters = Parameters {
        namespace: args.namespace.clone(),
        profile: args.profile.as_deref().map(Into::into),
        join_tokens: args.join_tokens.as_deref().map(Into::into),
        order: args.takeover.order(),
        ..Parameters::new(&args.image)
    };
    let objects = match remote::block_on(check_installation(args))? {
        Extent::All => manifests::install(&parameters),
        Extent::Operator => manifests::operator(&parameters),
    };
    if args.dry_run.is_some() {
        return remote::block_on(dry_run(args, &objects, screen));
    }
    if args.output == "json" {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        writeln!(screen, "{}", serde_json::to_string_pretty(&list)?)?;
    } else {
        write!(screen, "{}", manifests::yaml(&objects))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The manifests that a cluster gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Those that the flags give.
    All,
    /// The operator and its rights: kinds and namespace are another operator's.
    Operator,
}

/// The state of a cluster on which an installation depends.
struct Examined {
    /// Namespace of the installation that the cluster has.
    namespace: Option<String>,
    /// Sign of another operator that runs the cluster.
    other: Option<Evidence>,
    /// Whether the operator's Deployment is that of an installation.
    is_deployed: bool,
}

/// Fails if an installation is in another namespace: only one operator may lead; and if another operator
/// runs the cluster, whose objects the manifests would replace. Without a cluster that answers, nothing is
/// checked; a cluster that flags name must have a valid kubeconfig.
async fn check_installation(args: &InstallArgs) -> anyhow::Result<Extent> {
    if !args.connection.has_cluster() && !args.connection.is_given() {
        return Ok(Extent::All);
    }
    // A program that the kubeconfig names for credentials may not answer either.
    let client = timeout(CHECK_LIMIT, args.connection.client());
    let why = match client.await {
        Ok(Ok(client)) => match timeout(CHECK_LIMIT, examine_cluster(&client)).await {
            Ok(Ok(found)) => return extent(args, found),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "it does not answer".to_owned(),
        },
        Ok(Err(error)) if args.connection.is_given() => return Err(error),
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "its credentials do not arrive".to_owned(),
    };
    print::note(&format!("installations in the cluster were not checked: {why}"));
    Ok(Extent::All)
}

async fn examine_cluster(client: &Client) -> anyhow::Result<Examined> {
    let namespace = installation::find(client).await?;
    let other = runner::other(client).await.unwrap_or_else(|error| {
        let why = chain(&error);
        print::note(&format!("the operator of the cluster was not checked: {why}"));
        None
    });
    let deployments = Api::<Deployment>::namespaced(client.clone(), label::NAMESPACE);
    let deployed = match &other {
        Some(_) => deployments.get_metadata_opt(OPERATOR).await.map_err(remote::call_error)?,
        None => None,
    };
    let is_deployed = deployed.is_some_and(|found| is_own(&found.metadata));
    Ok(Examined { namespace, other, is_deployed })
}

/// Returns the manifests for a cluster.
fn extent(args: &InstallArgs, found: Examined) -> anyhow::Result<Extent> {
    check_namespace(args, found.namespace)?;
    let Some(evidence) = found.other.filter(|_| args.takeover.order() == Order::HandsOff) else {
        return Ok(Extent::All);
    };
    if found.is_deployed {
        // Without the flags the manifests end the takeover that the present ones ordered.
        return Ok(Extent::Operator);
    }
    Err(error_with_hint(
        format!(
            "another operator runs this cluster: {evidence}; the manifests would replace its operator and \
             its kinds"
        ),
        "run `mco takeover --check`, and then `mco install --take-over --adopt-build`; \
         docs/takeover.md has all steps",
    ))
}

fn check_namespace(args: &InstallArgs, found: Option<String>) -> anyhow::Result<()> {
    let Some(other) = found.filter(|found| *found != args.namespace) else { return Ok(()) };
    let hint = if other == label::NAMESPACE {
        "leave out --namespace to upgrade it, or remove it first with `mco uninstall --yes`"
            .to_owned()
    } else {
        // The label stays when the processes are removed: the namespace still has their objects.
        format!(
            "use --namespace {other} to upgrade it or to bring it back; or remove it with `mco uninstall \
             --yes`, and then the label of its namespace with `kubectl label namespace {other} {}-`",
            label::INSTALLATION
        )
    };
    Err(error_with_hint(
        format!("the cluster has an installation in namespace {other}, and can have only one"),
        hint,
    ))
}

/// Parses the name of a namespace.
fn parse_namespace(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty()
        && text.len() <= 63
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if !is_name {
        return Err(
            "a name of at most 63 lower-case letters, digits and hyphens is expected".into()
        );
    }
    let is_reserved = text == "default" || text.starts_with("kube-");
    if is_reserved || text == join_token::NAMESPACE {
        return Err("this namespace has other objects; name one of its own".into());
    }
    Ok(text.to_owned())
}

/// Sends each object as a dry run. Fails if the API server rejects one.
async fn dry_run(
    args: &InstallArgs,
    objects: &[Value],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let client = args.connection.client().await?;
    let mut code = ExitCode::SUCCESS;
    for object in objects {
        let name = ObjectName::of(object);
        let result = match check(&client, &name, object).await? {
            Ok(result) => result.to_owned(),
            Err(error) => {
                code = ExitCode::FAILURE;
                format!("rejected: {}", chain(&error))
            }
        };
        writeln!(screen, "{name} {result} (server dry run)")?;
    }
    Ok(code)
}

/// Sends an object as a dry run and returns its result; the error of the API server if that rejects it.
async fn check(
    client: &Client,
    name: &ObjectName,
    object: &Value,
) -> anyhow::Result<Result<&'static str, CallError>> {
    let api = api(client, name);
    let before = api.get_opt(&name.name).await.map_err(remote::call_error)?;
    let mut params = PatchParams::apply(MANAGER).force();
    params.dry_run = true;
    Ok(match (api.patch(&name.name, &params, &Patch::Apply(object)).await, before) {
        (Ok(_), None) => Ok("created"),
        (Ok(after), Some(before)) if contents(&after) == contents(&before) => Ok("unchanged"),
        (Ok(_), Some(_)) => Ok("configured"),
        (Err(error), None) if is_namespace_absent(name, &error) => {
            Ok("not checked: its namespace does not exist yet")
        }
        (Err(error), _) => Err(error.into()),
    })
}

/// Returns an object without the members that the API server writes.
fn contents(object: &DynamicObject) -> DynamicObject {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    object
}

/// Returns true if the object was rejected because a dry run has not created its namespace.
fn is_namespace_absent(name: &ObjectName, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    name.namespace.is_some() && status.code == 404
}

/// Returns the API of an object.
pub(crate) fn api(client: &Client, name: &ObjectName) -> Api<DynamicObject> {
    let version = name.api_version.rsplit_once('/').map_or(&*name.api_version, |(_, it)| it);
    let resource = ApiResource {
        group: name.group().to_owned(),
        version: version.to_owned(),
        api_version: name.api_version.clone(),
        kind: name.kind.clone(),
        plural: name.resource(),
    };
    match &name.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}
