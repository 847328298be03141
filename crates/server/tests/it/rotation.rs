//! Tests of configs and certificates that change while machines are served.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mco_api::ControllerConfig;
use mco_cluster::Shutdown;
use mco_server::{
    Certificate, Server, Source,
    document::{FirstBoot, Inputs, build},
    source::LookupError,
};
use tokio::time::timeout;

use crate::{
    authority::Authority,
    client::{leaf, request, send, tls},
    fixture::{PATIENCE, config, settings, with_file},
};

/// Number of configs, certificates and clients.
const CONFIGS: usize = 20;
const CERTIFICATES: usize = 4;
const CLIENTS: usize = 6;

/// A source whose config the test changes.
#[derive(Clone)]
struct Changing(Arc<Mutex<Inputs>>);

impl Source for Changing {
    async fn ready(&self) {}

    async fn inputs(&self, _: &str) -> Result<Inputs, LookupError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Returns a config of about a hundred kilobytes that differs from the others in each of them.
fn inputs(number: usize) -> Inputs {
    let mut text = with_file(0);
    let contents = format!("data:,{}", number.to_string().repeat(50_000));
    text["storage"]["files"][0]["contents"]["source"] = contents.into();
    let config = config("rendered-worker", &text);
    let first_boot = FirstBoot::new(Arc::new(ControllerConfig::default()), None);
    Inputs { config: Arc::new(config), first_boot: Some(first_boot) }
}

// covers: S07, S48
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_body_is_one_of_the_valid_ones_while_everything_changes() {
    let all: Vec<Inputs> = (0..CONFIGS).map(inputs).collect();
    let version = "3.2.0".parse().unwrap();
    let valid: BTreeSet<Vec<u8>> = all.iter().map(|one| build(one, version).unwrap()).collect();
    assert_eq!(valid.len(), CONFIGS);
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let pairs: Vec<_> = (0..CERTIFICATES).map(|_| authority.pair()).collect();
    let write = |pair: &crate::authority::Pair| {
        std::fs::write(&chain, &pair.chain).unwrap();
        std::fs::write(&key, &pair.key).unwrap();
    };
    write(&pairs[0]);
    let source = Changing(Arc::new(Mutex::new(all[0].clone())));
    let poll = Duration::from_millis(5);
    let files = Certificate::Files { chain: chain.clone(), key: key.clone(), poll };
    let server = Server::open(settings(files), source.clone()).await.unwrap();
    let (address, shutdown) = (server.secure_address().unwrap(), Shutdown::new());
    let serving = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { server.serve(&shutdown).await }
    });

    let (is_over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = async || {
        let mut seen = BTreeSet::new();
        while !is_over.load(Ordering::Relaxed) {
            let stream = tls(authority.roots()).connect(address).await.unwrap();
            let accept = ["application/vnd.coreos.ignition+json;version=3.2.0"];
            let reply = send(stream, request("GET", "/config/worker", &accept)).await;
            assert_eq!(reply.status.as_u16(), 200);
            let body = reply.body.to_vec();
            assert!(valid.contains(&body), "a body of {} bytes that is not valid", body.len());
            seen.insert(body);
            requests.fetch_add(1, Ordering::Relaxed);
        }
        seen
    };
    let changes = async {
        for (number, next) in all.iter().enumerate() {
            *source.0.lock().unwrap() = next.clone();
            if number % (CONFIGS / CERTIFICATES) == 0 {
                let pair = &pairs[number * CERTIFICATES / CONFIGS];
                write(pair);
                while leaf(address, authority.roots()).await != pair.leaf {}
            }
            // Each config is served for some requests before it is replaced.
            let enough = requests.load(Ordering::Relaxed) + CLIENTS;
            while requests.load(Ordering::Relaxed) < enough {
                tokio::task::yield_now().await;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let clients = futures::future::join_all((0..CLIENTS).map(|_| client()));
    let (seen, ()) = timeout(PATIENCE, async { tokio::join!(clients, changes) })
        .await
        .expect("all configs and certificates are served");
    let seen: BTreeSet<_> = seen.into_iter().flatten().collect();
    assert!(seen.len() > CONFIGS / 2, "only {} configs were served", seen.len());
    shutdown.request();
    timeout(PATIENCE, serving).await.expect("the server stops").unwrap();
}
