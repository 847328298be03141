//! Reports of every request: a log line, a metric, and an event on the pool.
//!
//! Texts have pool, token id, address and result, never contents or secrets. The log of refusals is
//! limited by address before this module; events are limited in total too, because each is an
//! object in etcd, and are written in the background.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Mutex,
};

use mco_api::{MachineConfigPool, MachineConfigPoolSpec};
use mco_cluster::{Note, Reporter, Shutdown, admin::Registry};
use mco_core::join::{Refusal, machine::is_node_name};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::{sync::mpsc, time::Instant};
use tracing::{info, warn};

use super::limit::RateLimit;

/// Events that wait to be written; further ones are dropped.
const MAX_WAITING: usize = 64;

/// Label of the metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    pool: String,
    result: &'static str,
}

/// An admitted request.
#[derive(Debug)]
pub(super) struct Outcome {
    /// True if the request took a use of the token.
    pub(super) is_new: bool,
    /// True if the request was recorded in the token's Secret.
    pub(super) recorded: bool,
    /// Name of the machine's node; empty if unknown.
    pub(super) node: String,
}

/// Reports requests.
#[derive(Debug)]
pub(super) struct Audit {
    notes: mpsc::Sender<Note>,
    results: Family<ResultLabel, Counter>,
    events: RateLimit,
    /// Events that were not written since the last one.
    dropped: Mutex<u64>,
}

impl Audit {
    /// Starts to write events until `shutdown`.
    pub(super) fn start(reporter: Reporter, shutdown: &Shutdown) -> Self {
        let (notes, mut waiting) = mpsc::channel::<Note>(MAX_WAITING);
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let write = async {
                while let Some(note) = waiting.recv().await {
                    reporter.publish(&note).await;
                }
            };
            tokio::select! {
                () = shutdown.requested() => {}
                () = write => {}
            }
        });
        let (results, events) = (Family::default(), RateLimit::events());
        Self { notes, results, events, dropped: Mutex::default() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "requests for configs that were decided by join token, by pool and result";
        registry.register("mco_server_join_requests", help, self.results.clone());
    }

    pub(super) fn admitted(&self, pool: &str, token: &str, peer: SocketAddr, outcome: &Outcome) {
        let Outcome { is_new, recorded, node } = outcome;
        self.count(pool, if *is_new { "joined" } else { "repeated" });
        let result = "admitted";
        info!(pool, token, %peer, node, new = is_new, result, "Join request admitted");
        if *recorded {
            let name = if node.is_empty() { String::new() } else { format!(" (node {node})") };
            let text = format!(
                "Machine {}{name} got the config of pool {pool} with join token {token}",
                peer.ip()
            );
            self.send(pool, |pool| Note::normal(pool, "JoinTokenUsed", text));
        }
    }

    pub(super) fn refused(&self, pool: &str, token: &str, peer: SocketAddr, refusal: &Refusal) {
        // The pool of a client without a token is any text.
        let counted = if refusal.is_unauthenticated() { "" } else { pool };
        self.count(counted, refusal.word());
        let result = refusal.word();
        warn!(pool, token, %peer, result, "Join request refused: {refusal}");
        let of_token = match (refusal.is_unauthenticated(), token) {
            (_, "") => String::new(),
            (true, _) => " with a join token that is not valid".to_owned(),
            (false, id) => format!(" with join token {id}"),
        };
        let text =
            format!("Refused the config of pool {pool} to {}{of_token}: {refusal}", peer.ip());
        self.send(pool, |pool| Note::warning(pool, "JoinRefused", text));
    }

    /// Counts a refused request of an address that was refused too often.
    pub(super) fn limited(&self) {
        self.count("", "rate-limited");
    }

    pub(super) fn unavailable(&self, pool: &str, token: &str, peer: SocketAddr, cause: &str) {
        self.count(pool, "unavailable");
        warn!(pool, token, %peer, result = "unavailable", cause, "Failed to record a join");
    }

    /// Publishes the report of a machine that failed to join. Returns false if there were too many.
    pub(super) fn failed_boot(&self, pool: &str, peer: SocketAddr, text: String) -> bool {
        self.count(pool, "first-boot-failed");
        info!(pool, %peer, text, "First boot failed");
        self.send(pool, |pool| Note::warning(pool, "FirstBootFailed", text))
    }

    fn count(&self, pool: &str, result: &'static str) {
        let label = ResultLabel { pool: pool.to_owned(), result };
        self.results.get_or_create(&label).inc();
    }

    /// Sends an event about a pool, unless there were too many of them.
    fn send(&self, pool: &str, note: impl FnOnce(&MachineConfigPool) -> Note) -> bool {
        if !is_node_name(pool) {
            return false;
        }
        let everyone = IpAddr::from(Ipv6Addr::LOCALHOST);
        let mut dropped = self.dropped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut note = note(&MachineConfigPool::new(pool, MachineConfigPoolSpec::default()));
        if *dropped > 0 {
            note.text = format!("{} ({} events before were not written)", note.text, *dropped);
        }
        let sent = self.events.allow(everyone, Instant::now()) && self.notes.try_send(note).is_ok();
        *dropped = if sent { 0 } else { dropped.saturating_add(1) };
        sent
    }
}
