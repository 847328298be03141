//! The wait for a slot of `maxUnavailable`: the nodes that occupy the slots, and whether they can
//! continue by themselves.

use super::{Member, NodeProgress, Phase};

/// Maximum number of nodes named in one sentence.
const NAMED: usize = 3;

/// The reason why nodes wait for a slot.
pub(super) struct SlotWait {
    pub(super) cause: String,
    pub(super) next: String,
    /// True if no slot becomes free without the administrator.
    pub(super) stuck: bool,
}

/// A node that occupies a slot.
struct Holder<'n> {
    node: &'n NodeProgress,
    state: &'static str,
}

/// Explains the wait of the nodes of a pool that get no slot.
pub(super) fn wait(limit: i64, members: &[Member<'_>], nodes: &[NodeProgress]) -> SlotWait {
    let holders: Vec<Holder<'_>> = members
        .iter()
        .zip(nodes)
        .filter(|(member, node)| occupies(member, node))
        .map(|(member, node)| Holder { node, state: state(member, node) })
        .collect();
    let mut details = vec![format!("maxUnavailable {limit}")];
    for state in ["updating", BLOCKED, "degraded", "unavailable"] {
        let of_state = holders.iter().filter(|holder| holder.state == state);
        let names: Vec<&str> = of_state.map(|holder| holder.node.name.as_str()).collect();
        details.extend((!names.is_empty()).then(|| format!("{} {state}", subject(&names))));
    }
    let is_holder = |node: &NodeProgress| holders.iter().any(|it| it.node.name == node.name);
    let next = nodes.iter().filter(|node| node.phase == Phase::Starting && !is_holder(node));
    let next: Vec<&str> = next.map(|node| node.name.as_str()).collect();
    details.extend((!next.is_empty()).then(|| format!("{} next", subject(&next))));
    let cause = format!("a free slot ({})", details.join(", "));
    let moves = !next.is_empty() || holders.iter().any(|holder| holder.state == "updating");
    match holders.first().filter(|_| !moves) {
        Some(first) => SlotWait { cause, next: first_fix(first.node), stuck: true },
        None => SlotWait { cause, next: "no action needed".to_owned(), stuck: false },
    }
}

const BLOCKED: &str = "draining and blocked";

/// Returns the remedy for the node that occupies the slot.
fn first_fix(node: &NodeProgress) -> String {
    let fix = node.next.as_deref().unwrap_or("make it ready, or uncordon it");
    format!("fix node {} first: {fix}", node.name)
}

fn occupies(member: &Member<'_>, node: &NodeProgress) -> bool {
    node.phase == Phase::Degraded || member.view.is_updating() || member.view.is_unavailable()
}

/// Returns the state of a node that occupies a slot; only an update ends by itself.
fn state(member: &Member<'_>, node: &NodeProgress) -> &'static str {
    match (node.phase, node.stuck) {
        (Phase::Degraded, _) => "degraded",
        (Phase::Draining, true) => BLOCKED,
        (_, false) if member.view.is_updating() => "updating",
        (_, _) => "unavailable",
    }
}

/// Joins names with the verb: `a is`, `a, b are`, `a, b, c and 2 more are`.
pub(super) fn subject(names: &[&str]) -> String {
    let listed = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 | 1 => format!("{listed} is"),
        count if count <= NAMED => format!("{listed} are"),
        count => format!("{listed} and {} more are", count - NAMED),
    }
}
