//! A server that runs for one test.

use std::{net::SocketAddr, time::Duration};

use mco_api::{ControllerConfig, MachineConfig};
use mco_cluster::Shutdown;
use mco_server::{Certificate, FixedSource, Server, Settings, Source};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::authority::Authority;

/// Time limit of every wait in these tests, so that none hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) struct Running {
    pub(crate) secure: SocketAddr,
    pub(crate) plain: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) shutdown: Shutdown,
    pub(crate) server: JoinHandle<()>,
}

pub(crate) fn settings(certificate: Certificate) -> Settings {
    let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
    let mut settings = Settings::new(certificate);
    settings.secure = loopback;
    settings.plain = Some(loopback);
    settings
}

/// Starts a server on free ports, with settings changed by `change`.
pub(crate) async fn start(source: impl Source, change: impl FnOnce(&mut Settings)) -> Running {
    let authority = Authority::new();
    let pair = authority.pair();
    let mut settings = settings(Certificate::Inline { chain: pair.chain, key: pair.key });
    change(&mut settings);
    let server = Server::open(settings, source).await.unwrap();
    let (secure, plain) =
        (server.secure_address().unwrap(), server.plain_address().unwrap().unwrap());
    let shutdown = Shutdown::new();
    let asked = shutdown.clone();
    let server = tokio::spawn(async move { server.serve(&asked).await });
    Running { secure, plain, authority, shutdown, server }
}

impl Running {
    /// Stops the server and waits until it has stopped.
    pub(crate) async fn stop(self) {
        self.shutdown.request();
        tokio::time::timeout(PATIENCE, self.server).await.expect("the server stops").unwrap();
    }
}

pub(crate) fn config(name: &str, ignition: &Value) -> MachineConfig {
    let object = json!({"metadata": {"name": name}, "spec": {"config": ignition}});
    serde_json::from_value(object).unwrap()
}

/// Returns a config with one file of `size` bytes, none of which a data URL would escape.
pub(crate) fn with_file(size: usize) -> Value {
    let source = format!("data:,{}", "x".repeat(size));
    json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "/etc/motd", "mode": 420, "overwrite": true, "contents": {"source": source}}
    ]}})
}

/// Returns the pools `empty` (an empty config, nothing added), `worker` (one file, as in a cluster),
/// `disk` (a partition, which spec 2.2 cannot express) and `broken`.
pub(crate) fn source() -> FixedSource {
    let empty = json!({"ignition": {"version": "3.5.0"}});
    let partitions = json!([{"number": 1, "startMiB": 1, "sizeMiB": 9}]);
    let disk = json!({"ignition": {"version": "3.5.0"}, "storage": {"disks": [
        {"device": "/dev/sda", "partitions": partitions}
    ]}});
    FixedSource::default()
        .with("disk", config("rendered-disk-1", &disk))
        .with("empty", config("rendered-empty-1", &empty))
        .with("broken", config("rendered-broken-1", &json!({"ignition": {"version": "9.9.9"}})))
        .joining("worker", config("rendered-worker-1", &with_file(9)), ControllerConfig::default())
}
