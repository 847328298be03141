//! The words of a status: what each node waits for, and the sentences below the tables.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::annotation::DrainRecord;

use super::{Member, NodeProgress, Phase, Progress, drain_record, phase::is_down, slot::subject};
use crate::{
    rollout::{Hold, Readiness},
    status::explain,
};

/// Maximum number of pods named in one sentence.
const NAMED_PODS: usize = 3;

/// Fills in what a node waits for and what happens next. Nodes that wait for a slot follow later.
pub(super) fn fill(progress: &mut NodeProgress, pool: &str, member: &Member<'_>) {
    let view = &member.view;
    let (waits_for, next, stuck) = match progress.phase {
        Phase::Done => return,
        Phase::Waiting => match &member.hold {
            Some(hold) => {
                (hold.to_string(), explain::next_step(pool, &view.name, hold), is_stuck(hold))
            }
            None => return,
        },
        Phase::Starting => match &view.readiness {
            Readiness::Not(why) if !view.is_updating() => {
                (why.clone(), explain::make_ready(&view.name), true)
            }
            Readiness::Ready | Readiness::Not(_) => {
                ("its daemon".to_owned(), "a drain, if the change needs one".to_owned(), false)
            }
        },
        Phase::Draining => match drain_record(member.node).filter(|it| !it.blockers.is_empty()) {
            Some(record) => (blockers(&record), budget_fix(&record), true),
            None => (
                "the eviction of its pods".to_owned(),
                "the daemon applies the config".to_owned(),
                false,
            ),
        },
        Phase::Applying => (
            "its daemon, which applies the config".to_owned(),
            "a reboot if the change needs one, then the uncordon".to_owned(),
            false,
        ),
        Phase::Rebooting if is_down(member.node) => {
            ("its kubelet".to_owned(), "the daemon verifies the config".to_owned(), false)
        }
        Phase::Rebooting => {
            ("its daemon, which verifies the config".to_owned(), "the uncordon".to_owned(), false)
        }
        Phase::Uncordoning => {
            ("the controller, which uncordons it".to_owned(), "the node is done".to_owned(), false)
        }
        Phase::Degraded => {
            let reason =
                if view.reason.is_empty() { "the daemon gave no reason" } else { &view.reason };
            (reason.to_owned(), explain::remedy(view, Some(pool)), true)
        }
        Phase::Unknown => (
            "the first report of the daemon".to_owned(),
            "check that the daemon runs on the node: `mco doctor`".to_owned(),
            true,
        ),
    };
    progress.waits_for = Some(waits_for);
    progress.next = Some(next);
    progress.stuck = stuck;
}

/// Returns true if a node that is held for this reason never starts by itself.
fn is_stuck(hold: &Hold) -> bool {
    match hold {
        Hold::Paused
        | Hold::Deleting
        | Hold::BadLimit(_)
        | Hold::ImageMode
        | Hold::Undecodable(_)
        | Hold::NotReady(_)
        | Hold::Cordoned => true,
        Hold::NoCapacity | Hold::OperatorNode | Hold::ControlPlane => false,
    }
}

/// Names the pods that block a drain, and why.
fn blockers(record: &DrainRecord) -> String {
    let named = record.blockers.iter().take(NAMED_PODS);
    let mut pods: Vec<String> =
        named.map(|blocker| format!("pod {}: {}", blocker.pod, parts(&blocker.why).0)).collect();
    let more = record.blockers.len().saturating_sub(NAMED_PODS) + record.more;
    pods.extend((more > 0).then(|| format!("{more} more pods")));
    pods.join("; ")
}

/// Splits the reason of a blocker into the cause and the remedy, if it has one.
fn parts(why: &str) -> (&str, Option<&str>) {
    match why.split_once("; ") {
        Some((cause, remedy)) => (cause, Some(remedy)),
        None => (why, None),
    }
}

/// Returns the remedy for a blocked drain: the command that shows or changes what blocks it.
fn budget_fix(record: &DrainRecord) -> String {
    let of_reason = || {
        let remedy = record.blockers.iter().find_map(|blocker| parts(&blocker.why).1)?;
        Some(format!("{remedy}; the drain then continues by itself"))
    };
    let blocker = record.blockers.iter().find_map(|blocker| {
        let (_, rest) = blocker.why.split_once("PodDisruptionBudget ")?;
        let (namespace, name) = rest.split_whitespace().next()?.split_once('/')?;
        let owner = match blocker.owner.as_str() {
            "" => "pods".to_owned(),
            owner => format!("pods of {owner}"),
        };
        Some(format!(
            "add {owner}, or lower the budget with `kubectl -n {namespace} edit pdb {name}`; the drain \
             then continues by itself"
        ))
    });
    blocker
        .or_else(of_reason)
        .unwrap_or_else(|| "the drain continues by itself once the pods are gone".to_owned())
}

impl Progress {
    /// Returns a sentence for everything that waits or is degraded; nodes in the same situation share one.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> =
            self.pools.iter().flat_map(|pool| pool.faults.clone()).collect();
        let mut nodes: Vec<&NodeProgress> =
            self.nodes.iter().filter(|it| it.is_explained()).collect();
        nodes.sort_by_key(|node| (node.pool.is_none(), node.pool.clone(), rank(node.phase)));
        let mut groups: Vec<Vec<&NodeProgress>> = Vec::new();
        for node in nodes {
            let is_own =
                |group: &&mut Vec<&NodeProgress>| group.first().is_some_and(|it| it.is_like(node));
            match groups.iter_mut().find(is_own) {
                Some(group) => group.push(node),
                None => groups.push(vec![node]),
            }
        }
        sentences.extend(groups.iter().filter_map(|group| sentence(group)));
        sentences
    }
}

/// Orders the sentences of a pool: causes before consequences.
fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::Degraded => 0,
        Phase::Draining => 1,
        Phase::Done
        | Phase::Waiting
        | Phase::Starting
        | Phase::Applying
        | Phase::Rebooting
        | Phase::Uncordoning
        | Phase::Unknown => 2,
    }
}

impl NodeProgress {
    /// Returns true if a sentence about the node is needed.
    fn is_explained(&self) -> bool {
        self.stuck || self.phase == Phase::Waiting
    }

    /// Returns true if both nodes are in the same situation, whenever it began.
    fn is_like(&self, other: &Self) -> bool {
        let Self { name: _, since: _, current: _, target: _, pool, phase, waits_for, next, stuck } =
            self;
        (pool, phase, waits_for, next, stuck)
            == (&other.pool, &other.phase, &other.waits_for, &other.next, &other.stuck)
    }
}

fn sentence(group: &[&NodeProgress]) -> Option<String> {
    let first = group.first()?;
    let names: Vec<&str> = group.iter().map(|node| node.name.as_str()).collect();
    let noun = if names.len() == 1 { "node" } else { "nodes" };
    let since = match group.iter().filter_map(|node| node.since.as_ref()).min() {
        Some(Time(since)) => format!(" since {since:.0}"),
        None => String::new(),
    };
    let cause = first.waits_for.as_deref().unwrap_or_default();
    let state = match first.phase {
        Phase::Degraded => format!("degraded{since}: {cause}"),
        Phase::Draining => format!("draining{since}, blocked by {cause}"),
        Phase::Unknown if first.pool.is_none() => format!("not updated: {cause}"),
        Phase::Waiting if cause.starts_with("a free slot") => format!("waiting{since} for {cause}"),
        Phase::Waiting | Phase::Starting => format!("waiting{since}: {cause}"),
        Phase::Unknown => format!("waiting for {cause}"),
        Phase::Done | Phase::Applying | Phase::Rebooting | Phase::Uncordoning => {
            format!("waiting{since} for {cause}")
        }
    };
    let next = first.next.as_deref().unwrap_or("no action needed");
    Some(format!("{noun} {} {state}; {next}", subject(&names)))
}
