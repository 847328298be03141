//! The numbers of replicas of the revisions of a Deployment.

/// Replicas of a ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) name: String,
    /// Replicas of the spec.
    pub(super) wanted: i32,
    /// Pods that exist.
    pub(super) present: i32,
    pub(super) available: i32,
}

/// Limits of a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) desired: i32,
    /// Pods that may exist above the desired number.
    pub(super) surge: i32,
    /// Pods below the desired number that may be missing.
    pub(super) unavailable: i32,
}

/// Scales one ReplicaSet to a number.
pub(super) fn resize(desired: i32, set: Option<&Counts>) -> Vec<(String, i32)> {
    let set = set.filter(|set| set.wanted != desired);
    set.map(|set| (set.name.clone(), desired)).into_iter().collect()
}

/// Removes all pods of the old revisions, then creates those of the new one.
pub(super) fn recreate(desired: i32, new: Option<&Counts>, old: &[Counts]) -> Vec<(String, i32)> {
    let down: Vec<_> = old.iter().flat_map(|set| resize(0, Some(set))).collect();
    let is_over = old.iter().all(|set| set.wanted == 0 && set.present == 0);
    if !down.is_empty() || !is_over {
        return down;
    }
    resize(desired, new)
}

/// Plans the next step of a rolling update. `old` has the oldest revision first.
pub(super) fn next(limits: Limits, new: &Counts, old: &[Counts]) -> Vec<(String, i32)> {
    let Limits { desired, surge, unavailable } = limits;
    if new.wanted > desired {
        return vec![(new.name.clone(), desired)];
    }
    let total = old.iter().map(|set| set.wanted).sum::<i32>().saturating_add(new.wanted);
    let room = desired.saturating_add(surge).saturating_sub(total);
    if new.wanted < desired && room > 0 {
        let wanted = new.wanted.saturating_add(room).min(desired);
        return vec![(new.name.clone(), wanted)];
    }
    let least = desired.saturating_sub(unavailable).max(0);
    let missing = new.wanted.saturating_sub(new.available).max(0);
    let mut removable = total.saturating_sub(least).saturating_sub(missing);
    let mut left: Vec<i32> = old.iter().map(|set| set.wanted).collect();
    // Pods of old revisions that are not available serve no client.
    for (wanted, set) in left.iter_mut().zip(old) {
        let broken = set.wanted.saturating_sub(set.available).clamp(0, removable.max(0));
        *wanted = wanted.saturating_sub(broken);
        removable = removable.saturating_sub(broken);
    }
    let available = old.iter().map(|set| set.available.min(set.wanted)).sum::<i32>();
    let mut spare = available.saturating_add(new.available).saturating_sub(least).min(removable);
    for wanted in &mut left {
        let taken = (*wanted).clamp(0, spare.max(0));
        *wanted = wanted.saturating_sub(taken);
        spare = spare.saturating_sub(taken);
    }
    let changed = left.iter().zip(old).filter(|(wanted, set)| **wanted != set.wanted);
    changed.map(|(wanted, set)| (set.name.clone(), *wanted)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `wanted/available`, as in `3/2`; all pods exist.
    fn set(name: &str, text: &str) -> Counts {
        let (wanted, available) = text.split_once('/').unwrap();
        let (wanted, available) = (wanted.parse().unwrap(), available.parse().unwrap());
        Counts { name: name.to_owned(), wanted, present: wanted, available }
    }

    fn shown(steps: Vec<(String, i32)>) -> String {
        let steps = steps.into_iter().map(|(name, wanted)| format!("{name}={wanted}"));
        steps.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_rolling_update_stays_within_its_limits() {
        for (case, (desired, surge, unavailable), new, old, want) in [
            ("the surge is created first", (3, 1, 0), "0/0", "3/3", "new=1"),
            ("nothing is removed before that pod is available", (3, 1, 0), "1/0", "3/3", ""),
            ("then one old pod goes", (3, 1, 0), "1/1", "3/3", "old0=2"),
            ("and so on", (3, 1, 0), "1/1", "2/2", "new=2"),
            ("without a surge an old pod goes first", (3, 0, 1), "0/0", "3/3", "old0=2"),
            ("old pods that fail go at once", (3, 1, 1), "1/0", "3/2", "old0=2"),
            ("the oldest revision goes first", (3, 1, 1), "2/2", "1/1 1/1", "old0=0 old1=0"),
            ("a smaller number of the new one", (2, 1, 0), "3/3", "0/0", "new=2"),
            ("complete", (3, 1, 0), "3/3", "0/0", ""),
        ] {
            let old: Vec<Counts> = old
                .split(' ')
                .enumerate()
                .map(|(index, text)| set(&format!("old{index}"), text))
                .collect();
            let limits = Limits { desired, surge, unavailable };
            assert_eq!(shown(next(limits, &set("new", new), &old)), want, "{case}");
        }
    }

    #[test]
    fn a_recreated_deployment_has_one_revision_at_a_time() {
        let old = [set("old", "2/2")];
        assert_eq!(shown(recreate(2, Some(&set("new", "0/0")), &old)), "old=0");
        let ending = [Counts { present: 1, ..set("old", "0/0") }];
        assert_eq!(shown(recreate(2, Some(&set("new", "0/0")), &ending)), "");
        assert_eq!(shown(recreate(2, Some(&set("new", "0/0")), &[])), "new=2");
    }
}
