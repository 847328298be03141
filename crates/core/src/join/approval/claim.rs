//! The join that the first certificate of a node uses up.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mco_api::join_token::Join;

use super::{ApprovalFault, Evidence, NodeFacts};
use crate::join::token::StoredToken;

/// Time after a machine's last request in which its join may become a node. Images are pulled and
/// machines reboot in between.
pub const CLAIM_LIMIT: SignedDuration = SignedDuration::from_hours(24);

/// Time after its creation in which a node that is not ready may get a second certificate for its
/// join: its machine lost power before the first one was on its disk.
pub const RECOVERY_LIMIT: SignedDuration = SignedDuration::from_hours(1);

/// A join that an approval uses up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Id of the token.
    pub token: String,
    /// Pool of the token.
    pub pool: String,
    /// All joins of the token, with the claimed one marked.
    pub joins: Vec<Join>,
}

/// A join with its token.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    stored: &'a StoredToken,
    index: usize,
    join: &'a Join,
}

/// Returns the join that shows that the machine may become node `name`; `Ok(None)` if none is needed.
pub(super) fn evidence(
    name: &str,
    node: Option<&NodeFacts>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Result<Option<Claim>, ApprovalFault> {
    let tokens = match evidence {
        Evidence::Joins(tokens) => return find(name, node, tokens, now).map(Some),
        Evidence::Optional(tokens) => tokens,
        Evidence::Credential => &[],
    };
    match find(name, node, tokens, now) {
        Err(ApprovalFault::NoJoin(_) | ApprovalFault::Ambiguous(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the join of the machine that becomes node `name`.
fn find(
    name: &str,
    node: Option<&NodeFacts>,
    tokens: &[StoredToken],
    now: Timestamp,
) -> Result<Claim, ApprovalFault> {
    let exists = || ApprovalFault::NodeExists(name.to_owned());
    let recent =
        |candidate: &Candidate<'_>| now.duration_since(candidate.join.last.0) < CLAIM_LIMIT;
    let all: Vec<Candidate<'_>> = tokens.iter().flat_map(candidates).filter(recent).collect();
    let free = |candidate: &&Candidate<'_>| candidate.join.approved.is_empty();
    let named = |candidate: &&Candidate<'_>| candidate.join.node == name;
    if let Some(node) = node {
        let bound = all.iter().filter(free).find(|one| one.stored.token.binding.node == name);
        let lost = || all.iter().find(|one| is_lost(one.join, node, now));
        return bound.or_else(lost).map(|one| one.claim(name)).ok_or_else(exists);
    }
    let again = || all.iter().find(|one| one.join.approved == name);
    if let Some(found) = all.iter().filter(free).find(named).or_else(again) {
        return Ok(found.claim(name));
    }
    let unnamed: Vec<&Candidate<'_>> =
        all.iter().filter(free).filter(|one| one.join.node.is_empty()).collect();
    let pools: BTreeSet<&str> = unnamed.iter().map(|one| one.stored.token.pool.as_str()).collect();
    if pools.len() > 1 {
        let pools: Vec<&str> = pools.into_iter().collect();
        return Err(ApprovalFault::Ambiguous(pools.join(", ")));
    }
    let oldest = unnamed.into_iter().min_by_key(|one| one.join.first.0);
    oldest.map(|one| one.claim(name)).ok_or_else(|| ApprovalFault::NoJoin(name.to_owned()))
}

fn candidates(stored: &StoredToken) -> impl Iterator<Item = Candidate<'_>> {
    let joins = stored.joins.iter().enumerate();
    joins.map(move |(index, join)| Candidate { stored, index, join })
}

/// Returns true if the node is the one of this join, and its machine lost the certificate.
fn is_lost(join: &Join, node: &NodeFacts, now: Timestamp) -> bool {
    let is_new = node.created.is_some_and(|created| {
        created >= join.first.0 && now.duration_since(created) < RECOVERY_LIMIT
    });
    let same = !join.machine_id.is_empty() && join.machine_id == node.machine_id;
    join.approved == node.name && same && is_new && !node.ready
}

impl Candidate<'_> {
    fn claim(&self, node: &str) -> Claim {
        let mut joins = self.stored.joins.clone();
        if let Some(join) = joins.get_mut(self.index) {
            node.clone_into(&mut join.approved);
            node.clone_into(&mut join.node);
        }
        let (token, pool) = (self.stored.id.clone(), self.stored.token.pool.clone());
        Claim { token, pool, joins }
    }
}
