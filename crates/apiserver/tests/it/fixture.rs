//! Clients of a new API server, waits with a timeout, and rejected requests.

use std::{future::Future, time::Duration};

use kube::Client;
use mco_apiserver::{ApiServer, Settings};

/// Returns a client of a new API server in memory.
pub(crate) async fn client() -> Client {
    client_of(Settings::default()).await
}

/// Returns a client of a new API server with these settings.
pub(crate) async fn client_of(settings: Settings) -> Client {
    Client::new(ApiServer::in_memory(settings).await.unwrap(), "default")
}

/// Waits for `wait`. Panics with `what` when the wait times out.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_mins(5), wait).await;
    done.unwrap_or_else(|_| panic!("did not happen: {what}"))
}

/// Returns the code and message of the `Status` of a failed request.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("expected a failed request, got {other:?}"),
    }
}
