//! Metrics of watches and queues.

use std::{collections::BTreeMap, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

use super::{Health, lock};
use crate::watch::Relist;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelistLabel {
    kind: String,
    reason: &'static str,
}

/// Counters that watches increment.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    failures: Family<KindLabel, Counter>,
    relists: Family<RelistLabel, Counter>,
    unreadable: Family<KindLabel, Gauge>,
}

impl Counters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "mco_watch_failures",
            "failures of watches, by kind",
            self.failures.clone(),
        );
        registry.register(
            "mco_watch_relists",
            "lists that were started over, by kind and reason",
            self.relists.clone(),
        );
        registry.register(
            "mco_watch_undecodable_objects",
            "objects that are left out because they cannot be decoded, by kind",
            self.unreadable.clone(),
        );
    }

    pub(super) fn failed(&self, kind: &str) {
        self.failures.get_or_create(&KindLabel { kind: kind.to_owned() }).inc();
    }

    pub(super) fn relist(&self, kind: &str, reason: Relist) {
        let label = RelistLabel { kind: kind.to_owned(), reason: reason.as_str() };
        self.relists.get_or_create(&label).inc();
    }

    pub(super) fn set_unreadable(&self, kind: &str, count: usize) {
        let label = KindLabel { kind: kind.to_owned() };
        self.unreadable.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Gauges that are computed when they are read.
pub(super) struct WatchMetrics(pub(super) Health);

impl fmt::Debug for WatchMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchMetrics")
    }
}

/// A gauge with one label: its values by the value of the label.
struct LabelledGauge<'a> {
    name: &'a str,
    help: &'a str,
    label: &'a str,
    values: BTreeMap<String, f64>,
}

impl LabelledGauge<'_> {
    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(0_f64);
        let mut metrics =
            encoder.encode_descriptor(self.name, self.help, None, gauge.metric_type())?;
        for (label, value) in self.values {
            let label = [(self.label, label.as_str())];
            ConstGauge::new(value).encode(metrics.encode_family(&label)?)?;
        }
        Ok(())
    }
}

impl Collector for WatchMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = Instant::now();
        let (mut stale, mut silent) = (BTreeMap::new(), BTreeMap::new());
        for watch in self.0.watches() {
            let age = now.saturating_duration_since(lock(&watch.times).heard).as_secs_f64();
            let is_stale = if watch.staleness(now).is_some() { 1.0 } else { 0.0 };
            // Of several watches of one kind, the worst counts.
            let worst = |known: &mut f64, new: f64| *known = known.max(new);
            worst(stale.entry(watch.kind.clone()).or_default(), is_stale);
            worst(silent.entry(watch.kind.clone()).or_default(), age);
        }
        let (mut depth, mut oldest) = (BTreeMap::new(), BTreeMap::new());
        for (name, _, load) in self.0.loads() {
            let entries = u32::try_from(load.depth).unwrap_or(u32::MAX);
            depth.insert(name.to_owned(), f64::from(entries));
            oldest.insert(name.to_owned(), load.oldest_due.as_secs_f64());
        }
        let gauges = [
            ("mco_watch_stale", "1 if the watch of the kind is stale", "kind", stale),
            (
                "mco_watch_silent_seconds",
                "time since the API server sent an event, bookmark or list of the kind",
                "kind",
                silent,
            ),
            ("mco_queue_depth", "entries in the queue, due or not", "queue", depth),
            (
                "mco_queue_oldest_due_seconds",
                "time since which the oldest entry of the queue is due",
                "queue",
                oldest,
            ),
        ];
        for (name, help, label, values) in gauges {
            LabelledGauge { name, help, label, values }.encode(&mut encoder)?;
        }
        Ok(())
    }
}
