//! Manifests at a URL, fetched over HTTPS or HTTP within limits of time, size and redirects.

use std::path::Path;

use mco_api::{ControllerConfig, controller_config::ControllerConfigSpec};
use mco_cluster::report;
use mco_controller::remote::{FetchError, Fetcher};
use mco_core::render::remote::{MAX_CONTENTS, Source, address::AddressPolicy};

use crate::{error::error_with_hint, remote};

/// Returns the URL that a path stands for; `None` for a path of a file.
pub(super) fn of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"))
}

/// Fetches the manifests at a URL.
pub(super) fn fetch(url: &str) -> anyhow::Result<Vec<u8>> {
    let fetched = remote::block_on(async {
        // The CAs of this machine are trusted, and the user may name any address.
        let settings = ControllerConfig::new("", ControllerConfigSpec::default());
        let fetcher = Fetcher::for_cluster(&settings, AddressPolicy::AllowLocal).await;
        Ok(fetcher.fetch(&Source::at(url)).await)
    });
    fetched?.map_err(|error| {
        if matches!(error, FetchError::TooLarge) {
            let message = format!("{url} has more than {MAX_CONTENTS} bytes");
            let hint = format!("download the file: curl -fsSL {url} | mco apply -f -");
            return error_with_hint(message, hint);
        }
        let hint = if matches!(error, FetchError::Tls { .. }) {
            "add the CA of the server to the trusted ones of this machine, or name it with the \
             variable SSL_CERT_FILE"
        } else {
            "check the URL, or download the file and name it with -f"
        };
        error_with_hint(format!("failed to fetch {url}: {}", report::chain(&error)), hint)
    })
}
