//! The mirrors of each source, merged from all mirror sets into one order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mco_api::openshift::mirror_set::{MirrorSourcePolicy, SourceMirrors};

/// The mirrors of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergedMirrors {
    pub(super) source: String,
    /// Mirrors in the order in which they are tried, without the source at the end.
    pub(super) mirrors: Vec<String>,
    pub(super) policy: MirrorSourcePolicy,
}

/// Merges rules; sources are in alphabetical order, so that the order of the rules has no effect.
///
/// A rule whose only mirror is its source is ignored, with its policy.
pub(super) fn merge<'r>(rules: impl IntoIterator<Item = &'r SourceMirrors>) -> Vec<MergedMirrors> {
    let mut by_source: BTreeMap<&str, (Vec<&[String]>, MirrorSourcePolicy)> = BTreeMap::new();
    for rule in rules {
        if rule.mirrors.iter().all(|mirror| *mirror == rule.source) {
            continue;
        }
        let (lists, policy) = by_source.entry(&rule.source).or_default();
        lists.push(&rule.mirrors);
        if rule.mirror_source_policy == MirrorSourcePolicy::NeverContactSource {
            *policy = MirrorSourcePolicy::NeverContactSource;
        }
    }
    let merged = |(source, (lists, policy)): (&str, (Vec<&[String]>, _))| {
        let mirrors = order(source, &lists);
        MergedMirrors { source: source.to_owned(), mirrors, policy }
    };
    by_source.into_iter().map(merged).collect()
}

/// A place in the order: the places that must come before and after it.
#[derive(Default)]
struct Place<'m> {
    before: BTreeSet<&'m str>,
    after: BTreeSet<&'m str>,
}

/// Merges lists of mirrors into one that keeps the order of each, with the source last.
///
/// Places without a predecessor are taken first in, first out; those that become free at once, by
/// name. If the lists contradict each other, the first place by name is taken.
fn order(source: &str, lists: &[&[String]]) -> Vec<String> {
    let mut places: BTreeMap<&str, Place<'_>> = BTreeMap::new();
    for list in lists {
        let names: Vec<&str> = list.iter().map(String::as_str).collect();
        let source = (!names.contains(&source)).then_some(source);
        let names: Vec<&str> = names.into_iter().chain(source).collect();
        for (from, to) in names.iter().zip(names.iter().skip(1)) {
            places.entry(from).or_default().after.insert(to);
            places.entry(to).or_default().before.insert(from);
        }
    }
    let free = places.iter().filter(|(_, place)| place.before.is_empty());
    let mut queue: VecDeque<&str> = free.map(|(name, _)| *name).collect();
    let mut rest: VecDeque<&str> = places.keys().copied().collect();
    let (mut used, mut sorted) = (BTreeSet::new(), Vec::new());
    while let Some(name) = queue.pop_front().or_else(|| rest.pop_front()) {
        if !used.insert(name) {
            continue;
        }
        sorted.push(name.to_owned());
        let after = places.get(name).map(|place| place.after.clone()).unwrap_or_default();
        for next in after {
            let Some(place) = places.get_mut(next) else { continue };
            place.before.remove(name);
            if place.before.is_empty() && !used.contains(next) {
                queue.push_back(next);
            }
        }
    }
    if sorted.last().is_some_and(|last| last == source) {
        sorted.pop();
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: &str, mirrors: &[&str]) -> SourceMirrors {
        SourceMirrors {
            source: source.to_owned(),
            mirrors: mirrors.iter().map(|mirror| (*mirror).to_owned()).collect(),
            ..SourceMirrors::default()
        }
    }

    // covers: REG-2
    #[test]
    fn the_order_of_the_rules_has_no_effect() {
        let rules = [
            rule("r.test/a", &["z.test", "b.test"]),
            rule("r.test/a", &["a.test"]),
            rule("r.test/a", &["b.test", "c.test"]),
            rule("q.test", &["m1.test", "q.test", "m2.test"]),
            rule("q.test", &["q.test"]),
        ];
        let expected = merge(&rules);
        let names: Vec<_> =
            expected.iter().map(|set| (set.source.as_str(), set.mirrors.join(" "))).collect();
        assert_eq!(
            names,
            [
                ("q.test", "m1.test q.test m2.test".to_owned()),
                ("r.test/a", "a.test z.test b.test c.test".to_owned()),
            ]
        );
        for turn in 0..rules.len() {
            let mut turned = rules.clone();
            turned.rotate_left(turn);
            assert_eq!(merge(&turned), expected);
            turned.reverse();
            assert_eq!(merge(&turned), expected);
        }
    }

    #[test]
    fn lists_that_contradict_each_other_have_an_order_too() {
        let rules = [rule("r", &["m1", "m2"]), rule("r", &["m2", "m1"])];
        let merged = merge(&rules);
        assert_eq!(merged[0].mirrors, ["m1", "m2"]);
    }
}
