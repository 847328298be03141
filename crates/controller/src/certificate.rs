//! Issues and renews the config server's CA and serving certificate, and distributes the CA bundle.
//!
//! observe (Secrets, ConfigMap, ControllerConfig) -> `mco_core::certs` (pure) -> write what is due.
//! A CA is trusted before any certificate that it signed is served: first the Secret with the CA
//! key, then the bundle, then the serving certificate, then the user data of machines that the
//! cluster creates.

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
use kube::{ResourceExt as _, api::ListParams};
use mco_api::{ControllerConfig, label};
use mco_cluster::{
    Api, Cache, CallError, Note, Queue, Reporter, Shutdown, cache::Change, client::namespace,
    health::Work, queue::Reconciled, report::chain, watch,
};
use mco_core::{
    certs::{self, CertificateLifetime, CertificateSpec, RotationDecision, RotationReason},
    takeover::check::{Certificate, KeyUse},
};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use self::issue::{Pair, ParsedCertificate};
use crate::Context;

/// Common name prefix of the CAs that the controller issues; the time of issue follows.
const SIGNER: &str = "machine-config.machine-config-server-signer";

/// Maximum time between two reconciles. Certificates are reconciled when they are due; a clock that
/// was set is noticed within this time.
const MAX_RESYNC: Duration = Duration::from_hours(24);

/// An error while certificates are renewed.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("failed to read {kind} {name}")]
    Read { kind: &'static str, name: String, source: CallError },
    #[error("failed to write {kind} {name}")]
    Write { kind: &'static str, name: String, source: CallError },
    #[error("failed to issue a certificate for {name}")]
    Issue { name: String, source: rcgen::Error },
    #[error(
        "the key in Secret {} cannot be used, and is kept; delete the Secret to have a new CA issued",
        label::SERVER_CA
    )]
    UnusableKey,
}

/// Describes the certificate in a Secret of the config server; `None` if there is none.
#[must_use]
pub fn inspect_certificate(secret: &Secret) -> Option<Certificate> {
    let found = issue::parse(objects::chain(secret)?)?;
    let key = objects::pair(secret).map(|pair| pair.key).unwrap_or_default();
    Some(Certificate {
        name: secret.name_any(),
        issuer: found.view.signer,
        not_after: found.view.not_after,
        key: if issue::is_key(&key) { KeyUse::Usable } else { KeyUse::Unreadable },
    })
}

/// Runs the certificate controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    let mut watches = JoinSet::new();
    subscribe(&context, &queue, &shutdown, &mut watches);
    queue.add(());
    context.health.queue("certificates", &queue, Work::Short);
    let reporter = context.reporter("certrotationcontroller");
    let machines = user_data::Machines::new(queue.clone(), context.delays.render);
    let reconcile_all = |()| {
        let (context, reporter, machines) = (&context, &reporter, &machines);
        async move { reconcile(context, reporter, machines).await }
    };
    tokio::select! {
        () = queue.run(1, &shutdown, reconcile_all) => {}
        () = machines.watch(&context, &shutdown) => {}
    }
}

fn subscribe(
    context: &Context,
    queue: &Arc<Queue<()>>,
    shutdown: &Shutdown,
    watches: &mut JoinSet<()>,
) {
    let delay = context.delays.render;
    let again = || {
        let queue = queue.clone();
        move || queue.add_debounced((), delay)
    };
    let controller_configs = again();
    context.caches.controller_configs.on_change(move |_| controller_configs());
    let pools = again();
    context.caches.pools.on_change(move |change| {
        // Each pool has user data.
        if change.before.is_none() || change.after.is_none() {
            pools();
        }
    });
    let nodes = again();
    context.caches.nodes.on_change(move |change| {
        if changes_control_plane(&change) {
            nodes();
        }
    });
    let namespaced = || Api::own(context.client.clone());
    for name in [label::SERVER_CA, label::SERVER_TLS] {
        let again = again();
        let cache = Cache::<Secret>::new(trim_secret);
        cache.on_change(move |_| again());
        let (api, shutdown, only) = (namespaced(), shutdown.clone(), only(name));
        watches.spawn(async move { cache.run(api, only, &shutdown).await });
    }
    let bundle = again();
    let cache = Cache::<ConfigMap>::new(trim_config_map);
    cache.on_change(move |_| bundle());
    let api = Api::own(context.client.clone());
    let (shutdown, only) = (shutdown.clone(), only(label::SERVER_CA));
    watches.spawn(async move { cache.run(api, only, &shutdown).await });
}

fn only(name: &str) -> watch::Config {
    watch::Config::default().named(name)
}

/// Drops the data of a Secret: keys are read when they are needed, not cached.
fn trim_secret(secret: &mut Secret) {
    (secret.data, secret.string_data) = (None, None);
    secret.metadata.managed_fields = None;
}

fn trim_config_map(map: &mut ConfigMap) {
    (map.data, map.binary_data) = (None, None);
    map.metadata.managed_fields = None;
}

/// Returns true if a control plane node, where the config server runs, was added or removed.
fn changes_control_plane(change: &Change<'_, Node>) -> bool {
    let is_one = |node: Option<&Arc<Node>>| {
        node.is_some_and(|node| {
            let roles =
                node.labels().keys().filter_map(|key| key.strip_prefix(label::NODE_ROLE_PREFIX));
            roles.into_iter().any(|role| ["control-plane", "master"].contains(&role))
        })
    };
    is_one(change.before) != is_one(change.after)
}

async fn reconcile(
    context: &Context,
    reporter: &Reporter,
    machines: &user_data::Machines,
) -> Reconciled {
    match renew(context, reporter, machines).await {
        Ok(due) => Reconciled::RequeueAfter(issue::until(due, context.clock.now()).min(MAX_RESYNC)),
        Err(error) => {
            // The operator creates the namespace, which may not exist yet.
            let missing = match &error {
                CertificateError::Read { source, .. } | CertificateError::Write { source, .. } => {
                    source.is_not_found()
                }
                CertificateError::Issue { .. } | CertificateError::UnusableKey => false,
            };
            if missing {
                debug!(error = chain(&error), "Cannot renew certificates yet");
            } else {
                warn!(error = chain(&error), "Failed to renew certificates");
            }
            Reconciled::Retry
        }
    }
}

/// Issues, renews and distributes all that is due; returns the time of the next reconcile.
async fn renew(
    context: &Context,
    reporter: &Reporter,
    machines: &user_data::Machines,
) -> Result<Timestamp, CertificateError> {
    let Some(controller_config) = context.caches.controller_config() else {
        // The server's names are unknown without the ControllerConfig; its creation enqueues a
        // reconcile.
        return Ok(Timestamp::MAX);
    };
    let now = context.clock.now();
    machines.detect(context).await?;
    let shown = objects::read_secret(context, label::SERVER_TLS).await?;
    let of_server = shown.as_ref().and_then(|secret| issue::parse(objects::chain(secret)?));
    if of_server.as_ref().is_some_and(|found| !is_ours(found)) {
        // The certificate of the administrator, or of the installer of another operator: new machines
        // trust its issuer, and only the administrator can change that.
        debug!("The config server has a certificate of another issuer; leaving it alone");
        return Ok(Timestamp::MAX);
    }
    let (signer, of_signer, signer_due) = ensure_authority(context, reporter, now).await?;
    let bundle =
        ensure_bundle(context, reporter, &signer, &of_signer, of_server.as_ref(), now).await?;
    let names = fetch_names(context, &controller_config).await?;
    let wanted = CertificateSpec {
        life: CertificateLifetime::CONFIG_SERVER,
        names,
        trusted: issue::parse_all(&bundle).into_iter().map(|(found, _)| found.subject).collect(),
        signer_since: Some(of_signer.view.not_before),
    };
    let server = Server { secret: shown, found: of_server };
    let due =
        ensure_serving(context, reporter, server, (&signer, &of_signer), &wanted, now).await?;
    machines.write_pools(context, &controller_config, &bundle).await?;
    machines.add_bundle(context, &bundle).await?;
    Ok(due.min(signer_due))
}

fn is_ours(found: &ParsedCertificate) -> bool {
    found.view.signer.starts_with(SIGNER)
}

/// Returns the CA that signs, issued or renewed if due, and the time of its next renewal.
async fn ensure_authority(
    context: &Context,
    reporter: &Reporter,
    now: Timestamp,
) -> Result<(Pair, ParsedCertificate, Timestamp), CertificateError> {
    let secret = objects::read_secret(context, label::SERVER_CA).await?;
    let pair = secret.as_ref().and_then(objects::pair);
    if pair.as_ref().is_some_and(|pair| !pair.key.is_empty() && !issue::is_key(&pair.key)) {
        // Overwritten, the key of a CA that machines trust would be lost.
        return Err(CertificateError::UnusableKey);
    }
    let found = pair.as_ref().and_then(|pair| issue::parse(pair.certificate.as_bytes()));
    let wanted = CertificateSpec {
        life: CertificateLifetime::CONFIG_SERVER,
        names: BTreeSet::new(),
        trusted: BTreeSet::new(),
        signer_since: None,
    };
    let view = found.as_ref().map(|found| &found.view);
    let reason = match (certs::decide_rotation(view, &wanted, now), pair, found) {
        (RotationDecision::Wait(due), Some(pair), Some(found)) => return Ok((pair, found, due)),
        (RotationDecision::Rotate(reason), _, _) => reason,
        (RotationDecision::Wait(_), _, _) => RotationReason::Missing,
    };
    let name = format!("{SIGNER}@{}", now.as_second());
    let made = issue::authority(&name, CertificateLifetime::CONFIG_SERVER, now);
    let made = made.map_err(|source| CertificateError::Issue { name: name.clone(), source })?;
    let written = objects::write_pair(context, label::SERVER_CA, secret, &made).await?;
    let what = "requires a new signing cert/key pair";
    publish_issued(reporter, &written, "SignerUpdateRequired", what, &reason).await;
    let found =
        issue::parse(made.certificate.as_bytes()).expect("an issued certificate is valid PEM");
    let RotationDecision::Wait(due) = certs::decide_rotation(Some(&found.view), &wanted, now)
    else {
        return Ok((made, found, now));
    };
    Ok((made, found, due))
}

/// Updates the bundle of trusted CAs: the CA that signs, and those whose certificates are still
/// served.
async fn ensure_bundle(
    context: &Context,
    reporter: &Reporter,
    signer: &Pair,
    of_signer: &ParsedCertificate,
    of_server: Option<&ParsedCertificate>,
    now: Timestamp,
) -> Result<String, CertificateError> {
    let map = objects::read_bundle(context).await?;
    let before = map.as_ref().and_then(objects::bundle_text).unwrap_or_default();
    let in_use: BTreeSet<String> =
        of_server.map(|found| found.view.signer.clone()).into_iter().collect();
    let mut wanted = signer.certificate.clone();
    for (found, text) in issue::parse_all(&before) {
        let others = found.subject != of_signer.subject;
        if others && certs::is_needed(&found.authority(), &of_signer.subject, &in_use, now) {
            wanted.push_str(&text);
        }
    }
    let blocks = |text: &str| -> BTreeSet<String> {
        issue::parse_all(text).into_iter().map(|(_, block)| block).collect()
    };
    // Another operator may have written the same CAs in another order.
    if blocks(&before) == blocks(&wanted) {
        return Ok(before);
    }
    if before != wanted {
        let written = objects::write_bundle(context, map, &wanted).await?;
        let text = format!(
            "\"{}\" in \"{}\" requires a new bundle: signer update {:?}",
            label::SERVER_CA,
            namespace(&context.client),
            of_signer.subject
        );
        reporter.publish(&Note::normal(&written, "CABundleUpdateRequired", text)).await;
    }
    Ok(wanted)
}

/// The Secret of the config server's certificate, and the parsed certificate.
struct Server {
    secret: Option<Secret>,
    found: Option<ParsedCertificate>,
}

/// Issues or renews the serving certificate if due; returns the time of its next renewal.
async fn ensure_serving(
    context: &Context,
    reporter: &Reporter,
    Server { secret, found }: Server,
    (signer, of_signer): (&Pair, &ParsedCertificate),
    wanted: &CertificateSpec,
    now: Timestamp,
) -> Result<Timestamp, CertificateError> {
    let has_key = secret.as_ref().and_then(objects::pair).is_some();
    let right_kind =
        secret.as_ref().is_some_and(|secret| secret.type_.as_deref() == Some(objects::TLS));
    let view = found.as_ref().filter(|_| has_key).map(|found| &found.view);
    let reason = match certs::decide_rotation(view, wanted, now) {
        RotationDecision::Wait(due) if right_kind => return Ok(due),
        RotationDecision::Wait(_) => RotationReason::Missing,
        RotationDecision::Rotate(reason) => reason,
    };
    let name = label::SERVER_TLS;
    let made = issue::serving(signer, &of_signer.subject, &wanted.names, wanted.life, now);
    let made = made.map_err(|source| CertificateError::Issue { name: name.to_owned(), source })?;
    let written = objects::write_pair(context, name, secret, &made).await?;
    let what = "requires a new target cert/key pair";
    publish_issued(reporter, &written, "TargetUpdateRequired", what, &reason).await;
    let found =
        issue::parse(made.certificate.as_bytes()).expect("an issued certificate is valid PEM");
    Ok(match certs::decide_rotation(Some(&found.view), wanted, now) {
        RotationDecision::Wait(due) => due,
        RotationDecision::Rotate(_) => now,
    })
}

/// Publishes an event about an issued certificate, with the reason.
///
/// Compat: reasons and texts are those of the reference's library (library-go, certrotation).
async fn publish_issued(
    reporter: &Reporter,
    object: &Secret,
    event: &'static str,
    text: &str,
    reason: &RotationReason,
) {
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    info!(name, %reason, "Issued certificate");
    let text = format!("\"{name}\" in \"{namespace}\" {text}: {reason}");
    reporter.publish(&Note::normal(object, event, text)).await;
}

/// Returns the names by which new machines reach the config server.
///
/// Without an internal API URL these are the addresses of the API servers, on whose machines the
/// config server runs; without those, too, the whole cluster runs on this machine.
async fn fetch_names(
    context: &Context,
    controller_config: &ControllerConfig,
) -> Result<BTreeSet<String>, CertificateError> {
    let mut names = certs::server_names(controller_config);
    let infra = controller_config.spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
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
