//! Suggestions for misspelled names ("did you mean").

/// Returns the candidate closest to `wanted`, if the difference may be a typo.
#[must_use]
pub fn closest<'c>(wanted: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // Up to a third of the letters may differ; beyond that the candidate is another word.
    let allowed = (wanted.chars().count() / 3).clamp(1, 5);
    candidates
        .into_iter()
        .map(|candidate| (distance(wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of letters to insert, delete, replace or swap.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = (0..=right.len()).collect();
    let mut before_that: Vec<usize> = Vec::new();
    let mut last = None;
    for (row, letter) in left.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let at =
                |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let changed = at(&before, column) + usize::from(letter != *other);
            let mut best = changed.min(at(&before, column + 1) + 1).min(at(&current, column) + 1);
            let swapped =
                column > 0 && last == Some(*other) && right.get(column - 1) == Some(&letter);
            if swapped {
                best = best.min(at(&before_that, column - 1) + 1);
            }
            current.push(best);
        }
        before_that = std::mem::replace(&mut before, current);
        last = Some(letter);
    }
    before.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_typos_are_corrected() {
        let names = ["worker", "master", "infra", "/etc/chrony.conf", "/etc/crio/crio.conf"];
        let rows = [
            ("wroker", Some("worker")),
            ("workers", Some("worker")),
            ("infr", Some("infra")),
            ("etc/chrony.conf", Some("/etc/chrony.conf")),
            ("/etc/chroni.conf", Some("/etc/chrony.conf")),
            ("gpu", None),
            ("/usr/lib/x", None),
        ];
        for (wanted, want) in rows {
            assert_eq!(closest(wanted, names), want, "{wanted}");
        }
        assert_eq!(distance("ca", "ac"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
