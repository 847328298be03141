//! The config server's authority and certificate: made, renewed in time, and told to those who trust.
//!
//! observe (Secrets, ConfigMap, ControllerConfig) -> `mco_core::certs` (pure) -> write what is due.
//! The authority is known before anything that it signed is shown: first the Secret with its key,
//! then the bundle, then the certificate, then the first configs of machines that the cluster orders.

mod issue;
mod objects;
mod user_data;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Node, Secret},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::{Api, ResourceExt as _, api::ListParams, runtime::watcher};
use mco_api::{ControllerConfig, label};
use mco_cluster::{
    Cache, CallError, Note, Queue, Reporter, Shutdown, cache::Change, queue::Next, report::chain,
};
use mco_core::certs::{self, Life, Reason, Verdict, Wanted};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use self::issue::{Found, Pair};
use crate::Context;

/// What the names of our authorities begin with; the time they were made follows.
const SIGNER: &str = "machine-config.machine-config-server-signer";

/// Certificates are looked at when they are due; a clock that was set is noticed within this time.
const AT_LEAST_EVERY: Duration = Duration::from_hours(24);

/// Why certificates are not in order.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("cannot read {kind} {name}")]
    Read { kind: &'static str, name: String, source: CallError },
    #[error("cannot write {kind} {name}")]
    Write { kind: &'static str, name: String, source: CallError },
    #[error("cannot make a certificate for {name}")]
    Issue { name: String, source: rcgen::Error },
}

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    let mut watches = JoinSet::new();
    listen(&context, &queue, &shutdown, &mut watches);
    queue.add(());
    let reporter = context.reporter("certrotationcontroller");
    let machines = user_data::Machines::new(queue.clone(), context.settle.render);
    let look = |()| {
        let (context, reporter, machines) = (&context, &reporter, &machines);
        async move { sync(context, reporter, machines).await }
    };
    tokio::select! {
        () = queue.run(1, &shutdown, look) => {}
        () = machines.watch(&context, &shutdown) => {}
    }
}

fn listen(
    context: &Context,
    queue: &Arc<Queue<()>>,
    shutdown: &Shutdown,
    watches: &mut JoinSet<()>,
) {
    let delay = context.settle.render;
    let again = || {
        let queue = queue.clone();
        move || queue.settle((), delay)
    };
    let cluster = again();
    context.caches.cluster.on_change(move |_| cluster());
    let nodes = again();
    context.caches.nodes.on_change(move |change| {
        if moves_the_control_plane(&change) {
            nodes();
        }
    });
    let namespaced = || Api::namespaced(context.client.clone(), label::NAMESPACE);
    for name in [label::SERVER_CA, label::SERVER_TLS] {
        let again = again();
        let cache = Cache::<Secret>::new(forget_secret);
        cache.on_change(move |_| again());
        let (api, shutdown, only) = (namespaced(), shutdown.clone(), only(name));
        watches.spawn(async move { cache.run(api, only, &shutdown).await });
    }
    let bundle = again();
    let cache = Cache::<ConfigMap>::new(forget_map);
    cache.on_change(move |_| bundle());
    let api = Api::namespaced(context.client.clone(), label::NAMESPACE);
    let (shutdown, only) = (shutdown.clone(), only(label::SERVER_CA));
    watches.spawn(async move { cache.run(api, only, &shutdown).await });
}

fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Keys are read when they are needed, not kept.
fn forget_secret(secret: &mut Secret) {
    (secret.data, secret.string_data) = (None, None);
    secret.metadata.managed_fields = None;
}

fn forget_map(map: &mut ConfigMap) {
    (map.data, map.binary_data) = (None, None);
    map.metadata.managed_fields = None;
}

/// Whether a node of the control plane, where the config server runs, came or went.
fn moves_the_control_plane(change: &Change<'_, Node>) -> bool {
    let is_one = |node: Option<&Arc<Node>>| {
        node.is_some_and(|node| {
            let roles =
                node.labels().keys().filter_map(|key| key.strip_prefix(label::NODE_ROLE_PREFIX));
            roles.into_iter().any(|role| ["control-plane", "master"].contains(&role))
        })
    };
    is_one(change.before) != is_one(change.after)
}

async fn sync(context: &Context, reporter: &Reporter, machines: &user_data::Machines) -> Next {
    match look(context, reporter, machines).await {
        Ok(due) => Next::After(issue::until(due, context.clock.now()).min(AT_LEAST_EVERY)),
        Err(error) => {
            // The namespace comes with the operator.
            let missing = match &error {
                CertificateError::Read { source, .. } | CertificateError::Write { source, .. } => {
                    source.is_not_found()
                }
                CertificateError::Issue { .. } => false,
            };
            if missing {
                debug!(error = chain(&error), "Certificates are not in order yet");
            } else {
                warn!(error = chain(&error), "Certificates are not in order");
            }
            Next::Retry
        }
    }
}

/// Puts everything in order; says when to look again.
async fn look(
    context: &Context,
    reporter: &Reporter,
    machines: &user_data::Machines,
) -> Result<Timestamp, CertificateError> {
    let Some(cluster) = context.caches.controller_config() else {
        // Nobody knows the server's names before; whoever makes it wakes us.
        return Ok(Timestamp::MAX);
    };
    let now = context.clock.now();
    let has_machines = machines.are_there(context).await?;
    let shown = objects::secret(context, label::SERVER_TLS).await?;
    let of_server = shown.as_ref().and_then(|secret| issue::read(objects::chain(secret)?));
    if of_server.as_ref().is_some_and(|found| !is_ours(found)) && !has_machines {
        // Somebody's own: new machines trust whoever signed it, and only that person can tell them.
        debug!("The config server has a certificate that somebody else made, which is left alone");
        return Ok(Timestamp::MAX);
    }
    let (signer, of_signer, signer_due) = authority(context, reporter, now).await?;
    let bundle = bundle(context, reporter, &signer, &of_signer, of_server.as_ref(), now).await?;
    let names = names(context, &cluster).await?;
    let wanted = Wanted {
        life: Life::CONFIG_SERVER,
        names,
        trusted: issue::read_all(&bundle).into_iter().map(|(found, _)| found.subject).collect(),
        signer_since: Some(of_signer.view.not_before),
    };
    let server = Server { shown, found: of_server };
    let due = serving(context, reporter, server, (&signer, &of_signer), &wanted, now).await?;
    machines.trust(context, &bundle).await?;
    Ok(due.min(signer_due))
}

fn is_ours(found: &Found) -> bool {
    found.view.signer.starts_with(SIGNER)
}

/// The authority that signs, made or renewed if it is time; and when it will be.
async fn authority(
    context: &Context,
    reporter: &Reporter,
    now: Timestamp,
) -> Result<(Pair, Found, Timestamp), CertificateError> {
    let secret = objects::secret(context, label::SERVER_CA).await?;
    let pair = secret.as_ref().and_then(objects::pair).filter(|pair| issue::is_key(&pair.key));
    let found = pair.as_ref().and_then(|pair| issue::read(pair.certificate.as_bytes()));
    let wanted = Wanted {
        life: Life::CONFIG_SERVER,
        names: BTreeSet::new(),
        trusted: BTreeSet::new(),
        signer_since: None,
    };
    let view = found.as_ref().map(|found| &found.view);
    let reason = match (certs::weigh(view, &wanted, now), pair, found) {
        (Verdict::Wait(due), Some(pair), Some(found)) => return Ok((pair, found, due)),
        (Verdict::Rotate(reason), _, _) => reason,
        (Verdict::Wait(_), _, _) => Reason::Missing,
    };
    let name = format!("{SIGNER}@{}", now.as_second());
    let made = issue::authority(&name, Life::CONFIG_SERVER, now);
    let made = made.map_err(|source| CertificateError::Issue { name: name.clone(), source })?;
    let written = objects::write_pair(context, label::SERVER_CA, secret, &made).await?;
    let what = "requires a new signing cert/key pair";
    say(reporter, &written, "SignerUpdateRequired", what, &reason).await;
    let found = issue::read(made.certificate.as_bytes()).expect("what was just made can be read");
    let Verdict::Wait(due) = certs::weigh(Some(&found.view), &wanted, now) else {
        return Ok((made, found, now));
    };
    Ok((made, found, due))
}

/// The authorities to trust: the one that signs, and those whose certificates are still shown.
async fn bundle(
    context: &Context,
    reporter: &Reporter,
    signer: &Pair,
    of_signer: &Found,
    of_server: Option<&Found>,
    now: Timestamp,
) -> Result<String, CertificateError> {
    let map = objects::bundle(context).await?;
    let before = map.as_ref().and_then(objects::bundle_text).unwrap_or_default();
    let in_use: BTreeSet<String> =
        of_server.map(|found| found.view.signer.clone()).into_iter().collect();
    let mut wanted = signer.certificate.clone();
    for (found, text) in issue::read_all(&before) {
        let others = found.subject != of_signer.subject;
        if others && certs::is_needed(&found.authority(), &of_signer.subject, &in_use, now) {
            wanted.push_str(&text);
        }
    }
    if before != wanted {
        let written = objects::write_bundle(context, map, &wanted).await?;
        let text = format!(
            "\"{}\" in \"{}\" requires a new bundle: signer update {:?}",
            label::SERVER_CA,
            label::NAMESPACE,
            of_signer.subject
        );
        reporter.publish(&Note::normal(&written, "CABundleUpdateRequired", text)).await;
    }
    Ok(wanted)
}

/// The Secret that the config server shows, and what it holds.
struct Server {
    shown: Option<Secret>,
    found: Option<Found>,
}

/// The certificate that the config server shows, made or renewed if it is time; says when it will be.
async fn serving(
    context: &Context,
    reporter: &Reporter,
    Server { shown, found }: Server,
    (signer, of_signer): (&Pair, &Found),
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Timestamp, CertificateError> {
    let has_key = shown.as_ref().and_then(objects::pair).is_some();
    let right_kind =
        shown.as_ref().is_some_and(|secret| secret.type_.as_deref() == Some(objects::TLS));
    let view = found.as_ref().filter(|_| has_key).map(|found| &found.view);
    let reason = match certs::weigh(view, wanted, now) {
        Verdict::Wait(due) if right_kind => return Ok(due),
        Verdict::Wait(_) => Reason::Missing,
        Verdict::Rotate(reason) => reason,
    };
    let name = label::SERVER_TLS;
    let made = issue::serving(signer, &of_signer.subject, &wanted.names, wanted.life, now);
    let made = made.map_err(|source| CertificateError::Issue { name: name.to_owned(), source })?;
    let written = objects::write_pair(context, name, shown, &made).await?;
    let what = "requires a new target cert/key pair";
    say(reporter, &written, "TargetUpdateRequired", what, &reason).await;
    let found = issue::read(made.certificate.as_bytes()).expect("what was just made can be read");
    Ok(match certs::weigh(Some(&found.view), wanted, now) {
        Verdict::Wait(due) => due,
        Verdict::Rotate(_) => now,
    })
}

/// Says that a certificate was made, and why.
///
/// Compat: reasons and sentences are those of the reference's library (library-go, certrotation).
async fn say(
    reporter: &Reporter,
    object: &Secret,
    word: &'static str,
    what: &str,
    reason: &Reason,
) {
    let (name, namespace) = (object.name_any(), label::NAMESPACE);
    info!(name, %reason, "Made a certificate");
    let text = format!("\"{name}\" in \"{namespace}\" {what}: {reason}");
    reporter.publish(&Note::normal(object, word, text)).await;
}

/// The names that new machines reach the config server by.
///
/// A cluster that does not say has the addresses of its API servers, on whose machines the config
/// server runs; one that does not even say those is all on this machine.
async fn names(
    context: &Context,
    cluster: &ControllerConfig,
) -> Result<BTreeSet<String>, CertificateError> {
    let mut names = certs::server_names(cluster);
    let infra = cluster.spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
    if infra.is_some_and(|status| !status.api_server_internal_uri.is_empty()) {
        return Ok(names);
    }
    let api = Api::<EndpointSlice>::namespaced(context.client.clone(), "default");
    let of_api = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    match api.list(&of_api).await.map_err(CallError::from) {
        Ok(slices) => {
            let endpoints =
                slices.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
            names.extend(endpoints.flat_map(|endpoint| endpoint.addresses));
        }
        Err(error) if error.is_not_found() => {}
        Err(source) => {
            let name = "kubernetes".to_owned();
            return Err(CertificateError::Read { kind: "EndpointSlice", name, source });
        }
    }
    if names.is_empty() {
        names.extend(["localhost", "127.0.0.1"].map(str::to_owned));
    }
    Ok(names)
}
