//! Approves the certificate requests of new nodes, if the administrator lets the controller do so.
//!
//! A request that does not pass its checks is never denied: it stays pending, an event on it says why,
//! and `mco node approve` shows the same. It is checked again when nodes or tokens change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use mco_api::annotation;
use mco_cluster::{
    Api, Cache, Note, Queue, Reporter, Shutdown, cache::trim, error::Rejection, health::Work,
    queue::Reconciled, report::chain, watch,
};
use mco_core::join::approval::Verdict;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{
    Context,
    approval::{self, Checked, is_pending},
    error::ActError,
};

/// Time after which a pending request is checked again without a change.
const RETRY: Duration = Duration::from_secs(30);

/// State of the approver.
struct Approver {
    context: Arc<Context>,
    requests: Arc<Cache<CertificateSigningRequest>>,
    reporter: Reporter,
    /// Approves whatever the ControllerConfig says.
    always: bool,
    /// Last reported reason for each pending request.
    reported: Mutex<HashMap<String, String>>,
}

/// Runs the approver until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, always: bool, shutdown: Shutdown) {
    let approver = Arc::new(Approver {
        requests: Arc::new(Cache::new(trim::metadata)),
        reporter: context.reporter("approvecontroller"),
        always,
        reported: Mutex::default(),
        context,
    });
    tokio::select! {
        () = shutdown.requested() => return,
        () = approver.wait_until_enabled() => {}
    }
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    approver.subscribe(&queue);
    let context = &approver.context;
    let config = watch::Config::default().health(&context.health).optional();
    let api = Api::all(context.client.clone());
    context.health.queue("certificate-requests", &queue, Work::Short);
    let reconcile = |name: String| {
        let approver = approver.clone();
        async move { approver.reconcile(&name).await }
    };
    // One at a time: two requests must not use up the same join.
    tokio::join!(approver.requests.run(api, config, &shutdown), queue.run(1, &shutdown, reconcile),);
}

impl Approver {
    fn is_enabled(&self) -> bool {
        let config = self.context.caches.controller_config();
        let by_annotation = config
            .and_then(|config| annotation::APPROVE_JOINS.get(config.annotations()).ok().flatten());
        self.always || by_annotation == Some(true)
    }

    async fn wait_until_enabled(&self) {
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        self.context.caches.controller_configs.on_change(move |_| notify.notify_one());
        while !self.is_enabled() {
            changed.notified().await;
        }
    }

    fn subscribe(self: &Arc<Self>, queue: &Arc<Queue<String>>) {
        let added = queue.clone();
        let this = Arc::downgrade(self);
        self.requests.on_change(move |change| {
            let Some(request) = change.object() else { return };
            if change.after.is_some_and(|request| is_pending(request)) {
                added.add(request.name_any());
            } else if let Some(this) = this.upgrade() {
                this.lock().remove(&request.name_any());
            }
        });
        let again = || {
            let (queue, requests) = (queue.clone(), self.requests.clone());
            move || {
                let pending = requests.list().into_iter().filter(|request| is_pending(request));
                pending.for_each(|request| queue.add(request.name_any()));
            }
        };
        let caches = &self.context.caches;
        let tokens = again();
        caches.join_tokens.on_change(move |_| tokens());
        let configs = again();
        caches.controller_configs.on_change(move |_| configs());
        let nodes = again();
        caches.nodes.on_change(move |change| {
            if change.before.is_none() || change.after.is_none() {
                nodes();
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reconcile(&self, name: &str) -> Reconciled {
        let Some(request) = self.requests.get(name) else { return Reconciled::Done };
        if !is_pending(&request) || !self.is_enabled() {
            return Reconciled::Done;
        }
        match self.decide(&request).await {
            Ok(again) => again,
            Err(error) => {
                warn!(error = chain(&error), "Failed to approve a certificate request");
                Reconciled::Retry
            }
        }
    }

    async fn decide(&self, request: &CertificateSigningRequest) -> Result<Reconciled, ActError> {
        let client = &self.context.client;
        let now = self.context.clock.now();
        let name = request.name_any();
        let checked = approval::check(client, request, now).await;
        let named = |source| ActError::CheckRequest { name: name.clone(), source };
        let Some(checked) = checked.map_err(named)? else { return Ok(Reconciled::Done) };
        if !checked.verdict.is_approved() {
            self.report_pending(request, &checked.verdict).await;
            return Ok(Reconciled::RequeueAfter(RETRY));
        }
        let text = describe(&checked);
        match approval::approve(client, &checked, &text, now).await {
            Ok(_) => {
                info!(request = name, node = checked.verdict.node, "Approved certificate request");
                self.reporter.publish(&Note::normal(request, "JoinApproved", text)).await;
                Ok(Reconciled::Done)
            }
            // The request or its token changed since it was read.
            Err(error) if error.rejection() == Some(Rejection::Conflict) => Ok(Reconciled::Retry),
            Err(error) if error.is_not_found() => Ok(Reconciled::Done),
            Err(source) => Err(ActError::ApproveRequest { name, source }),
        }
    }

    /// Reports why a request stays pending, once for each reason.
    async fn report_pending(&self, request: &CertificateSigningRequest, verdict: &Verdict) {
        let (name, faults) = (request.name_any(), verdict.text());
        let before = self.lock().insert(name, faults.clone());
        if before.as_ref() == Some(&faults) {
            return;
        }
        let hint = if verdict.node.is_empty() { "NODE" } else { &verdict.node };
        let text = format!("Not approved: {faults}. To decide by hand: mco node approve {hint}");
        self.reporter.publish(&Note::warning(request, "JoinNotApproved", text)).await;
    }
}

/// Describes an approval.
fn describe(checked: &Checked) -> String {
    let node = &checked.verdict.node;
    match &checked.verdict.claim {
        Some(claim) => format!(
            "Approved for node {node}, which joined pool {} with join token {}",
            claim.pool, claim.token
        ),
        None => format!("Approved for node {node}"),
    }
}
