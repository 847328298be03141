//! The requests of a watch.

use http::{HeaderValue, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client,
    api::{ListParams, Request},
    client::Body,
};

use super::{
    WatchError,
    text::{self, Lines, MAX_LINE, MAX_PAGE, Page},
};
use crate::{Api, Health, Object, health::Presence};

/// Page size if none is set.
const PAGE_SIZE: u32 = 500;

/// The objects that a watch selects, and the way it delivers them.
#[derive(Clone, Debug)]
pub struct Config {
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
    pub(super) page_size: u32,
    pub(super) health: Health,
    pub(super) presence: Presence,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            labels: None,
            fields: None,
            metadata_only: false,
            page_size: PAGE_SIZE,
            health: Health::default(),
            presence: Presence::Required,
        }
    }
}

impl Config {
    /// Selects objects by their labels.
    #[must_use]
    pub fn labels(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// Selects objects by their fields.
    #[must_use]
    pub fn fields(self, selector: &str) -> Self {
        Self { fields: Some(selector.to_owned()), ..self }
    }

    /// Selects the object of that name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.fields(&format!("metadata.name={name}"))
    }

    /// Fetches only the metadata of objects.
    #[must_use]
    pub fn metadata_only(self) -> Self {
        Self { metadata_only: true, ..self }
    }

    /// Sets the number of objects in a page of a list.
    #[must_use]
    pub fn page_size(self, size: u32) -> Self {
        Self { page_size: size.max(1), ..self }
    }

    /// Reports the activity of the watch to `health`.
    #[must_use]
    pub fn health(self, health: &Health) -> Self {
        Self { health: health.clone(), ..self }
    }

    /// Does not require the API server to serve the kind.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { presence: Presence::Optional, ..self }
    }
}

/// The source of a watch: a client, a path and a selection.
pub(super) struct Source {
    client: Client,
    request: Request,
    params: ListParams,
    metadata_only: bool,
}

impl Source {
    pub(super) fn new<K: Object>(api: &Api<K>, config: &Config) -> Self {
        let params = ListParams {
            label_selector: config.labels.clone(),
            field_selector: config.fields.clone(),
            ..ListParams::default()
        };
        let (client, request) = api.parts();
        Self { client, request, params, metadata_only: config.metadata_only }
    }

    /// Fetches a page of a consistent list.
    pub(super) async fn fetch_page(
        &self,
        token: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Page, ListMeta), WatchError> {
        let continue_token = token.map(str::to_owned);
        let params = ListParams { limit, continue_token, ..self.params.clone() };
        let request = self.list(&params, "PartialObjectMetadataList")?;
        let response = text::check(self.send(request).await?).await?;
        Page::read(text::read_page(response, MAX_PAGE).await?)
    }

    /// Opens a watch of the changes after a version.
    pub(super) async fn open(&self, version: &str, seconds: u64) -> Result<Lines, WatchError> {
        let mut request = self.list(&self.params, "PartialObjectMetadata")?;
        let version = encoded(version);
        let uri = format!(
            "{}&watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
            request.uri()
        );
        let uri = uri.parse().map_err(|error: http::uri::InvalidUri| {
            let error = kube::core::request::Error::BuildRequest(error.into());
            WatchError::Connection(kube::Error::BuildRequest(error).into())
        })?;
        *request.uri_mut() = uri;
        // Events must not wait in a compressor until it has enough of them.
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(header::ACCEPT_ENCODING, identity);
        let response = text::check(self.send(request).await?).await?;
        Ok(Lines::new(response, MAX_LINE))
    }

    fn list(
        &self,
        params: &ListParams,
        metadata_kind: &'static str,
    ) -> Result<http::Request<Vec<u8>>, WatchError> {
        let request = self.request.list(params);
        let mut request = request
            .map_err(|error| WatchError::Connection(kube::Error::BuildRequest(error).into()))?;
        if self.metadata_only {
            let accept = format!("application/json;as={metadata_kind};g=meta.k8s.io;v=v1");
            if let Ok(accept) = HeaderValue::from_str(&accept) {
                request.headers_mut().insert(header::ACCEPT, accept);
            }
        }
        Ok(request)
    }

    async fn send(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Body>, WatchError> {
        let sent = self.client.send(request.map(Body::from)).await;
        sent.map_err(|error| {
            let is_refusal = matches!(error, kube::Error::Api(_));
            let error = error.into();
            if is_refusal { WatchError::Refused(error) } else { WatchError::Connection(error) }
        })
    }
}

/// Returns the text for use in a query. Versions are numbers in practice and opaque by contract.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes();
    bytes
        .map(
            |byte| {
                if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_versions_are_encoded() {
        assert_eq!(encoded("17"), "17");
        assert_eq!(encoded("a/b&c"), "a%2Fb%26c");
    }
}
