//! Random mixes of several faults, by seed.

use mco_testkit::chaos::Plan;

use crate::enumerate::expect_all;

/// Number of seeds, unless the environment gives another number.
const SEEDS: u64 = 20;

/// Number of requests of a rollout, roughly: the range of the faults.
const REQUESTS: usize = 400;

#[test]
#[expect(clippy::disallowed_methods, reason = "`make soak` sets the seeds")]
fn random_mixes_of_faults_are_survived() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, seeds) =
        (number("MCO_CHAOS_SEED").unwrap_or(0), number("MCO_CHAOS_SEEDS").unwrap_or(SEEDS));
    let plans: Vec<Plan> =
        (first..first + seeds).map(|seed| Plan::random(seed, REQUESTS)).collect();
    expect_all(&format!("random mixes from seed {first}"), &plans);
}
