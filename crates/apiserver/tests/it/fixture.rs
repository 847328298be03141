//! A fresh API, bounded waits and refusals.

use std::{future::Future, time::Duration};

use kube::Client;
use mco_apiserver::{ApiServer, Settings};

/// A client of a fresh API in memory.
pub(crate) async fn client() -> Client {
    client_of(Settings::default()).await
}

/// A client of a fresh API with these settings.
pub(crate) async fn client_of(settings: Settings) -> Client {
    Client::new(ApiServer::in_memory(settings).await.unwrap(), "default")
}

/// Waits for something that must happen soon, and says what did not.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_mins(5), wait).await;
    done.unwrap_or_else(|_| panic!("did not happen: {what}"))
}

/// The `Status` a call was refused with.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}
