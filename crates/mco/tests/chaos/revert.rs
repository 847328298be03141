//! A revert while a budget blocks the drain, with the daemons that ship.

use mco_testkit::chaos::Chaos;

use crate::{
    cluster::FIRST,
    run::{BOUND, start},
};

#[tokio::test(start_paused = true)]
async fn a_revert_during_a_blocked_drain_leaves_no_node_cordoned() {
    let cluster = start(&Chaos::default()).await;
    cluster.wait("the cluster to be installed", BOUND, &[]).await.unwrap();
    cluster.forbid_evictions().await;
    cluster.apply_config(FIRST).await;
    cluster.wait_for_cordon(BOUND).await.unwrap();
    cluster.delete_config(FIRST).await;
    // No node is cordoned, and the pool, the nodes and their reports have the first config.
    assert_eq!(cluster.wait("the revert", BOUND, &[]).await, Ok(()));
    cluster.stop().await.unwrap();
}
