//! The recordings of the reference, replayed over HTTP.
//!
//! The corpus of this repository is always replayed, the larger recordings where they exist.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use mco_api::{MachineConfig, MachineConfigSpec, RawConfig};
use mco_ignition::{Document, TargetVersion, read};
use mco_server::FixedSource;
use mco_testkit::oracle::{RecordedCase, cases, convert::check_body, corpus};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    client::{Reply, plain, request},
    fixture::{Running, source, start},
};

/// Returns the folders with recordings. `MCO_ORACLE_DIR` is that of the larger ones.
fn folders() -> Vec<PathBuf> {
    let given = std::env::var_os("MCO_ORACLE_DIR").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle");
    let larger = given.unwrap_or(beside);
    if !larger.is_dir() {
        eprintln!("skipped: {} does not exist; only the corpus is replayed", larger.display());
        return vec![corpus()];
    }
    vec![corpus(), larger]
}

async fn ask(server: &Running, pool: &str, accept: &HeaderValue) -> Reply {
    let mut asked = request("GET", &format!("/config/{pool}"), &[]);
    asked.headers_mut().insert("accept", accept.clone());
    plain(server.plain, asked).await
}

// covers: S16, S17, S18, S19, S20, S21, S22, S23
#[tokio::test]
async fn every_recorded_accept_header_gets_the_recorded_version() {
    #[derive(Deserialize)]
    struct Input {
        accept: String,
    }
    let server = start(source(), |_| {}).await;
    for folder in folders() {
        let (mut replayed, mut not_sendable) = (0, 0);
        for RecordedCase { id, input, expect } in cases(&folder, "accept").unwrap() {
            let Input { accept } = serde_json::from_str(&input).unwrap();
            // The recordings call the parser directly; some texts cannot be sent in a header, and the
            // white space around others is no part of it.
            let sendable = HeaderValue::from_bytes(accept.as_bytes());
            let Some(header) = sendable.ok().filter(|_| accept.trim_ascii() == accept) else {
                not_sendable += 1;
                continue;
            };
            let reply = ask(&server, "empty", &header).await;
            let expected = match expect["version"].as_str() {
                // Compat: negotiated, though no config can be converted to it.
                Some("3.0.0") => (500, Value::Null),
                Some(version) => (200, version.into()),
                None => (400, Value::Null),
            };
            let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let version = body["ignition"]["version"].clone();
            assert_eq!((reply.status.as_u16(), version), expected, "{id}: {accept:?}");
            replayed += 1;
        }
        assert!(replayed > 10 && not_sendable < replayed, "{replayed} of {}", folder.display());
    }
    server.stop().await;
}

// covers: S12, S24, S25, S37
#[tokio::test]
async fn every_recorded_config_has_the_recorded_body() {
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow)]
        config: &'a RawValue,
        version: String,
    }
    for folder in folders() {
        let recorded = cases(&folder, "convert").unwrap();
        let mut pools = FixedSource::default();
        for (at, case) in recorded.iter().enumerate() {
            let Input { config, .. } = serde_json::from_str(&case.input).unwrap();
            let raw = RawConfig::from_json(config.get().to_owned()).unwrap();
            let spec = MachineConfigSpec { config: Some(raw), ..MachineConfigSpec::default() };
            pools = pools.with(&format!("case-{at}"), MachineConfig::new("rendered", spec));
        }
        let server = start(pools, |_| {}).await;
        let mut replayed = 0;
        for (at, RecordedCase { id, input, expect }) in recorded.iter().enumerate() {
            let Input { version, config } = serde_json::from_str(input).unwrap();
            // The recordings call the converter, which refuses spec 2; the server upgrades it before.
            let is_spec_2 = matches!(read(config.get().as_bytes()), Ok(Document::V2(_)));
            if version.parse::<TargetVersion>().is_err() || is_spec_2 {
                continue;
            }
            let accept = format!("application/vnd.coreos.ignition+json;version={version}");
            let Ok(accept) = HeaderValue::from_str(&accept) else { continue };
            let reply = ask(&server, &format!("case-{at}"), &accept).await;
            let outcome = match reply.status.as_u16() {
                200 => Ok(reply.body.to_vec()),
                500 => Err(reply.header("mco-reason").unwrap().to_owned()),
                other => panic!("{id}: {other}"),
            };
            check_body(input, expect, &outcome)
                .unwrap_or_else(|difference| panic!("{id}: {difference}"));
            replayed += 1;
        }
        assert!(replayed > 10, "{replayed} of {}", folder.display());
        server.stop().await;
    }
}
