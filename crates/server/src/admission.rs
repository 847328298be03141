//! Admission of new machines by join tokens.
//!
//! observe (tokens and ControllerConfig from watches, headers) -> `mco_core::join::authorize` (pure)
//! -> record the use in the token's Secret, with the version that the decision was made on -> serve.
//! The record comes before the response, so two servers cannot give one use to two machines. Every
//! request is reported: log line, metric, event.

mod audit;
mod limit;
mod record;
mod report;
mod response;

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use http::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use mco_api::{ControllerConfig, annotation, join_token, label};
use mco_cluster::{
    Api, Cache, Clock, Health, NoteCount, Reporter, Shutdown, admin::Registry, cache::trim,
    report::chain, watch,
};
use mco_core::join::{
    MachineFacts, Refusal, StoredToken, TokenText,
    authorize::{Known, authorize},
    token,
};
use tokio::{sync::Mutex as Turn, time::Instant};
use tracing::warn;

pub(crate) use self::report::is_report;
use self::{
    audit::{Audit, Outcome},
    limit::RateLimit,
};
use crate::service::HttpResponse;

/// When machines need a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Always.
    Always,
    /// If the ControllerConfig says so.
    ByControllerConfig,
}

/// Settings of the admission.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// When machines need a token.
    pub requirement: Requirement,
    /// Source of the current time.
    pub clock: Clock,
    /// Number of published events.
    pub notes: NoteCount,
}

impl AdmissionSettings {
    /// Returns settings with the machine's clock.
    #[must_use]
    pub fn new(requirement: Requirement) -> Self {
        Self { requirement, clock: Clock::System, notes: NoteCount::default() }
    }
}

/// Decides which machines get the config of their pool.
pub struct Admission {
    secrets: Api<Secret>,
    tokens: Arc<Cache<Secret>>,
    controllers: Arc<Cache<ControllerConfig>>,
    requirement: Requirement,
    clock: Clock,
    audit: Audit,
    /// Refused requests of each address.
    refusals: RateLimit,
    /// Reports of each address.
    reports: RateLimit,
    /// One lock for each token, so that the requests of one server do not conflict.
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("requirement", &self.requirement).finish_non_exhaustive()
    }
}

/// A request that is not admitted.
#[derive(Debug)]
enum Denied {
    /// The decision.
    Refused(Refusal),
    /// The use cannot be recorded now; the machine retries.
    Unavailable(String),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Admission {
    /// Starts the watches and the publication of events, which run until `shutdown`.
    pub fn watch(
        client: &Client,
        settings: AdmissionSettings,
        health: &Health,
        shutdown: &Shutdown,
    ) -> Arc<Self> {
        let secrets = Api::<Secret>::namespaced(client.clone(), join_token::NAMESPACE);
        let tokens = Arc::new(Cache::new(trim::metadata));
        let controllers = Arc::new(Cache::new(trim::metadata));
        let config = watch::Config::default().health(health);
        let of_type = format!("type={}", join_token::SECRET_TYPE);
        // Without the Role in the namespace, machines without tokens are still served.
        let (of_tokens, stop) = (config.clone().optional().fields(&of_type), shutdown.clone());
        let (api, running) = (secrets.clone(), Arc::clone(&tokens));
        tokio::spawn(async move { running.run(api, of_tokens, &stop).await });
        let (one, stop) = (config.named(label::CONTROLLER_CONFIG), shutdown.clone());
        let (api, running) = (Api::all(client.clone()), Arc::clone(&controllers));
        tokio::spawn(async move { running.run(api, one, &stop).await });
        let AdmissionSettings { requirement, clock, notes } = settings;
        let reporter = Reporter::with_clock(client.clone(), "machineconfigserver", notes, clock);
        Arc::new(Self {
            secrets,
            tokens,
            controllers,
            requirement,
            clock,
            audit: Audit::start(reporter, shutdown),
            refusals: RateLimit::refusals(),
            reports: RateLimit::reports(),
            turns: Mutex::default(),
        })
    }

    /// Waits until tokens and mode are known.
    pub async fn ready(&self) {
        self.controllers.ready().await;
        self.tokens.ready_or_absent().await;
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.audit.register(registry);
    }

    /// Returns true if machines need a token now.
    #[must_use]
    pub fn is_required(&self) -> bool {
        if self.requirement == Requirement::Always {
            return true;
        }
        let config = self.controllers.get(label::CONTROLLER_CONFIG);
        let mode = config
            .and_then(|config| annotation::JOIN_TOKENS.get(config.annotations()).ok().flatten());
        mode.is_some_and(|mode| mode.are_required())
    }

    /// Decides about a request for the config of `pool`; returns the response to a refused one.
    pub(crate) async fn admit(
        &self,
        pool: &str,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Result<(), HttpResponse> {
        let is_required = self.is_required();
        if !is_required && !headers.contains_key(AUTHORIZATION) {
            return Ok(());
        }
        let presented = presented(headers);
        let id = presented.as_ref().map(|token| token.id().to_owned()).unwrap_or_default();
        let decided = match presented {
            Ok(token) => self.decide(&token, pool, headers, peer.ip()).await,
            Err(refusal) => Err(refusal.into()),
        };
        match decided {
            Ok(outcome) => {
                self.audit.admitted(pool, &id, peer, &outcome);
                Ok(())
            }
            // A token that is not required is recorded if it can be, and stops no machine.
            Err(_) if !is_required => Ok(()),
            Err(denied) => Err(self.refuse(pool, &id, peer, &denied)),
        }
    }

    /// Decides about a token and records its use.
    async fn decide(
        &self,
        token: &TokenText,
        pool: &str,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Outcome, Denied> {
        let text = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
        let machine = MachineFacts::read(address, text).map_err(Refusal::from)?;
        if !self.knows_tokens().await {
            let cause =
                format!("the Secrets in namespace {} cannot be read", join_token::NAMESPACE);
            return Err(Denied::Unavailable(cause));
        }
        let decide = |stored: Option<&StoredToken>| {
            authorize(token, stored, pool, &machine, self.clock.now())
        };
        // Before the lock, so that only holders of a token wait for it.
        decide(self.find(token.id()).map(|(stored, _)| stored).as_ref())?;
        let turn = self.turn(token.id());
        let turn = turn.lock().await;
        let decided = self.record(token.id(), decide).await;
        drop(turn);
        let (known, recorded) = decided?;
        let is_new = known == Known::New;
        Ok(Outcome { is_new, recorded, node: machine.node })
    }

    /// Returns false if the server may not read the tokens. It then cannot tell a token that does not
    /// exist from one that does.
    async fn knows_tokens(&self) -> bool {
        tokio::select! {
            biased;
            () = self.tokens.ready() => true,
            () = std::future::ready(()) => false,
        }
    }

    /// Returns a token from the cache, with its version.
    fn find(&self, id: &str) -> Option<(StoredToken, String)> {
        let secret =
            self.tokens.get(&format!("{}/{}", join_token::NAMESPACE, token::secret_name(id)))?;
        read(&secret)
    }

    fn turn(&self, id: &str) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(id.to_owned()).or_default().clone()
    }

    /// Returns the response to a request that is not admitted, and reports it. After a number of
    /// refusals from one address, further ones are only counted.
    fn refuse(&self, pool: &str, id: &str, peer: SocketAddr, denied: &Denied) -> HttpResponse {
        match denied {
            Denied::Refused(_) if !self.refusals.allow(peer.ip(), Instant::now()) => {
                self.audit.limited();
                response::too_many()
            }
            Denied::Refused(refusal) => {
                self.audit.refused(pool, id, peer, refusal);
                response::refused(refusal)
            }
            Denied::Unavailable(cause) => {
                self.audit.unavailable(pool, id, peer, cause);
                response::unavailable()
            }
        }
    }
}

/// Reads a Secret, with its version. One that cannot be read is logged and admits no machine.
fn read(secret: &Secret) -> Option<(StoredToken, String)> {
    match StoredToken::read(secret) {
        Ok(stored) => Some((stored, secret.resource_version().unwrap_or_default())),
        Err(error) => {
            warn!(error = chain(&error), "Ignored a Secret in the namespace of join tokens");
            None
        }
    }
}

/// Returns the token of the `Authorization` header.
fn presented(headers: &HeaderMap) -> Result<TokenText, Refusal> {
    let value = headers.get(AUTHORIZATION).ok_or(Refusal::NoToken)?;
    let text = value.to_str().map_err(|_| Refusal::Unknown)?;
    let (scheme, text) = text.trim().split_once(' ').ok_or(Refusal::Unknown)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Refusal::NoToken);
    }
    TokenText::parse(text.trim()).map_err(|_| Refusal::Unknown)
}
