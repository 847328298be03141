//! A client that is moved from one API server to another, as clients are when etcd is restored from a
//! backup: the same objects, at lower resource versions.

use std::future;

use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::{Client, client::Body};
use tokio::sync::watch;

/// Returns a client of the first server, and from the switch on of the second. The switch ends all
/// answers of the first.
#[must_use]
pub fn switching([first, second]: [Client; 2], switched: &watch::Receiver<bool>) -> Client {
    let switched = switched.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let mut switched = switched.clone();
        let is_second = *switched.borrow_and_update();
        let client = if is_second { second.clone() } else { first.clone() };
        async move {
            let response = client.send(request).await?;
            let ended = async move {
                if switched.changed().await.is_err() {
                    future::pending::<()>().await;
                }
            };
            let frames = |body: Body| {
                let frames = body.into_data_stream().map(|data| data.map(Frame::data));
                StreamBody::new(frames.take_until(Box::pin(ended)))
            };
            Ok::<_, kube::Error>(response.map(frames))
        }
    });
    Client::new(service, "default")
}
