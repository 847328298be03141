use tokio::sync::Notify;

use super::*;
use crate::{Queue, Shutdown, queue::Reconciled};

#[tokio::test(start_paused = true)]
async fn a_queue_is_stuck_if_an_entry_is_due_and_no_worker_finishes() {
    let (health, queue, shutdown) = (Health::default(), Queue::new(), Shutdown::new());
    health.queue("nodes", &queue, Work::Short);
    // The queue waits for its caches and is not stuck.
    queue.add("slow");
    queue.add("next");
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(health.stuck_queues().is_empty());
    let release = Notify::new();
    let work = |_: &'static str| async {
        release.notified().await;
        Reconciled::Done
    };
    let look = async {
        tokio::time::sleep(Duration::from_mins(9)).await;
        assert!(health.stuck_queues().is_empty());
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(health.stuck_queues(), ["queue nodes has not moved for 660 s"]);
        release.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(health.stuck_queues().is_empty(), "a worker has finished");
    };
    tokio::select! {
        () = queue.run(1, &shutdown, work) => {}
        () = look => {}
    }
    drop(queue);
    assert!(health.stuck_queues().is_empty(), "the queue is gone");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_waits_for_pods_is_not_stuck_and_one_that_waits_for_a_worker_is() {
    for (width, is_stuck) in [(2, false), (1, true)] {
        let (health, queue, shutdown) = (Health::default(), Queue::new(), Shutdown::new());
        health.queue("drains", &queue, Work::Long);
        queue.add("one");
        queue.add("two");
        tokio::select! {
            () = queue.run(width, &shutdown, |_: &'static str| std::future::pending()) => {}
            () = tokio::time::sleep(Duration::from_hours(1)) => {}
        }
        assert_eq!(!health.stuck_queues().is_empty(), is_stuck, "{width}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_waits_for_its_time_is_not_stuck() {
    let (health, queue, shutdown) = (Health::default(), Queue::new(), Shutdown::new());
    health.queue("nodes", &queue, Work::Short);
    queue.add_after("later", Duration::from_hours(2));
    let work = |_: &'static str| async { Reconciled::RequeueAfter(Duration::from_hours(1)) };
    tokio::select! {
        () = queue.run(1, &shutdown, work) => {}
        () = tokio::time::sleep(Duration::from_hours(5)) => {}
    }
    assert!(health.stuck_queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_metrics_name_watches_and_queues() {
    let mut registry = Registry::default();
    let health = Health::default();
    health.register(&mut registry);
    let queue = Queue::new();
    health.queue("nodes", &queue, Work::Short);
    queue.add(1);
    queue.add_after(2, Duration::from_hours(1));
    let (pods, nodes) =
        (health.watch("Pod", Presence::Required), health.watch("Node", Presence::Optional));
    pods.synced();
    nodes.absent();
    nodes.relist(Relist::Idle);
    nodes.failed();
    tokio::time::advance(Duration::from_mins(5)).await;
    nodes.heard();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "mco_watch_stale{kind=\"Pod\"} 1.0",
        "mco_watch_stale{kind=\"Node\"} 0.0",
        "mco_watch_silent_seconds{kind=\"Pod\"} 300.0",
        "mco_watch_relists_total{kind=\"Node\",reason=\"Idle\"} 1",
        "mco_watch_failures_total{kind=\"Node\"} 1",
        "mco_queue_depth{queue=\"nodes\"} 2.0",
        "mco_queue_oldest_due_seconds{queue=\"nodes\"} 300.0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}
