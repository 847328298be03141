//! Checks of a ContainerRuntimeConfig.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mco_api::{
    container_runtime_config::{ContainerRuntimeSettings, DefaultRuntime, Store},
    quantity::{Quantity, QuantityError},
};

use super::crio;
use crate::status::quote::quoted;

/// Smallest number of processes that a container can do with.
const MIN_PIDS: i64 = 20;
/// Size of a log that is too small.
const MIN_LOG_SIZE: i64 = 8192;
const LEVELS: [&str; 7] = ["error", "fatal", "panic", "warn", "info", "debug", "trace"];

/// A setting that cannot be applied.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsFault {
    /// The limit of processes is too small.
    #[error("invalid PidsLimit {0}")]
    PidsLimit(i64),
    /// The maximum size of a log is too small.
    #[error("invalid LogSizeMax {}, cannot be less than 8kB", quoted(.0))]
    LogSizeMax(String),
    /// The maximum size of a layer is negative.
    #[error("invalid overlaySize {}, cannot be less than 0", quoted(.0))]
    OverlaySize(String),
    /// A size is no quantity.
    #[error("invalid {member} {}: {fault}", quoted(value))]
    Quantity {
        /// Member of the settings.
        member: &'static str,
        /// Its value.
        value: String,
        /// The fault.
        fault: QuantityError,
    },
    /// The log level is unknown.
    #[error(
        "invalid LogLevel {}, must be one of error, fatal, panic, warn, info, debug, or trace",
        quoted(.0)
    )]
    LogLevel(String),
    /// The runtime is unknown.
    #[error("invalid DefaultRuntime {}, must be one of crun, runc", quoted(.0))]
    DefaultRuntime(String),
    /// Paths of stores are invalid; one line for each.
    #[error("{0}")]
    Stores(String),
}

/// Checks the settings.
pub fn check(settings: &ContainerRuntimeSettings) -> Result<(), SettingsFault> {
    if let Some(limit) = settings.pids_limit.filter(|limit| *limit != 0 && *limit < MIN_PIDS) {
        return Err(SettingsFault::PidsLimit(limit));
    }
    if let Some(size) = quantity("LogSizeMax", settings.log_size_max.as_ref())?
        && size.value() > 0
        && size.value() <= MIN_LOG_SIZE
    {
        return Err(SettingsFault::LogSizeMax(size.to_string()));
    }
    if let Some(size) = quantity("overlaySize", settings.overlay_size.as_ref())?
        && size.value() < 0
    {
        return Err(SettingsFault::OverlaySize(size.to_string()));
    }
    let level = &settings.log_level;
    if !level.is_empty() && !LEVELS.contains(&level.as_str()) {
        return Err(SettingsFault::LogLevel(level.clone()));
    }
    if let Some(runtime) = crio::default_runtime(settings)
        && !DefaultRuntime::WORDS.contains(&runtime)
    {
        return Err(SettingsFault::DefaultRuntime(runtime.to_owned()));
    }
    let lists = [
        ("AdditionalLayerStores", &settings.additional_layer_stores),
        ("AdditionalImageStores", &settings.additional_image_stores),
        ("AdditionalArtifactStores", &settings.additional_artifact_stores),
    ];
    let faults = lists.into_iter().flat_map(|(list, stores)| {
        stores.iter().filter_map(move |Store { path }| store_fault(list, path))
    });
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(SettingsFault::Stores(faults.join("\n"))) }
}

fn quantity(
    member: &'static str,
    value: Option<&IntOrString>,
) -> Result<Option<Quantity>, SettingsFault> {
    let Some(value) = value else { return Ok(None) };
    Quantity::of(value).map(Some).map_err(|fault| {
        let value = match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        SettingsFault::Quantity { member, value, fault }
    })
}

fn store_fault(list: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(format!("invalid {list}: path must not be empty"));
    }
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-');
    if !path.starts_with('/') || path.len() < 2 || !path.bytes().all(is_allowed) {
        return Some(format!(
            "invalid {list} path {}: must be an absolute path containing only alphanumeric \
             characters, '/', '.', '_', and '-'",
            quoted(path)
        ));
    }
    let twice = path.contains("//");
    twice.then(|| {
        format!(
            "invalid {list} path {}: must not contain consecutive forward slashes",
            quoted(path)
        )
    })
}
