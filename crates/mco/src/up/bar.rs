//! Progress of a pool in one line: a bar on a terminal, words otherwise.

use mco_core::progress::{PaceOf, PoolProgress};

use crate::duration::HumanDuration;

/// Widths of a bar, in characters.
const WIDTHS: std::ops::RangeInclusive<usize> = 10..=40;

/// Returns the line of a pool that is not done; `None` for any other pool.
///
/// With the columns of a terminal the line has a bar, which takes the space that the words leave. Without
/// that space, or without a terminal, the line has words only.
pub(super) fn line(pool: &PoolProgress, columns: Option<usize>) -> Option<String> {
    if pool.machines == 0 || pool.done == pool.machines || pool.target.is_empty() {
        return None;
    }
    let words = words(pool);
    let plain = format!("pool {}: {words}", pool.name);
    let brackets = "pool :  []".len();
    let taken = pool.name.chars().count() + brackets + words.chars().count();
    let space = columns.map(|columns| columns.saturating_sub(taken)).unwrap_or_default();
    if space < *WIDTHS.start() {
        return Some(plain);
    }
    let width = space.min(*WIDTHS.end());
    let filled = width * pool.done / pool.machines;
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(width - filled));
    Some(format!("pool {}: [{bar}] {words}", pool.name))
}

fn words(pool: &PoolProgress) -> String {
    let mut words = vec![format!("{} of {} nodes done", pool.done, pool.machines)];
    let counts = [(pool.updating, "updating"), (pool.degraded, "degraded")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    words.extend(counts.map(|(count, word)| format!("{count} {word}")));
    words.extend(pool.paused.then(|| "paused".to_owned()));
    words.extend(pool.left.map(|left| {
        let time = HumanDuration(left.seconds);
        match left.pace_of {
            PaceOf::ThisUpdate => format!("about {time} left"),
            PaceOf::LastUpdate => format!("about {time} left at the pace of the last update"),
        }
    }));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use mco_core::progress::TimeLeft;

    use super::*;

    fn pool(done: usize) -> PoolProgress {
        let left = Some(TimeLeft { seconds: 240, pace_of: PaceOf::ThisUpdate });
        PoolProgress {
            name: "worker".to_owned(),
            target: "rendered-b".to_owned(),
            paused: false,
            machines: 4,
            done,
            ready: done,
            degraded: 0,
            updating: 1,
            left,
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_bar_takes_the_space_that_the_words_leave() {
        let words = "1 of 4 nodes done, 1 updating, about 4m left";
        let plain = format!("pool worker: {words}");
        assert_eq!(line(&pool(1), None), Some(plain.clone()), "no terminal");
        assert_eq!(line(&pool(1), Some(60)), Some(plain), "no space");
        let bar = format!("pool worker: [####..............] {words}");
        assert_eq!(line(&pool(1), Some(78)), Some(bar));
        for columns in [80, 100, 160] {
            let line = line(&pool(3), Some(columns)).unwrap();
            assert!(line.len() <= columns && line.contains('#'), "{columns}: {line}");
        }
        assert_eq!(line(&pool(1), Some(400)).unwrap().matches(['#', '.']).count(), 40);
        assert_eq!(line(&pool(4), Some(80)), None, "the pool is done");
    }
}
