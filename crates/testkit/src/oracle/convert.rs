//! Suite: a config and a version, and the bytes the reference serves.

use mco_ignition::{ConvertError, Document, Spec, TargetVersion, convert_raw, read};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{parse::is_type_fault_of_v2, parsed, text};

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    config: &'a RawValue,
    version: String,
}

/// Checks for the same body, byte for byte, or an error.
pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { config, version: wanted } = parsed(input)?;
    let Ok(to) = wanted.parse::<TargetVersion>() else {
        return match text(expect, "error") {
            Some(_) => Ok(()),
            None => Err(format!("{wanted} is not a known target, expected {expect}")),
        };
    };
    let ours = convert_raw(config.get().as_bytes(), to).map_err(|error| error.to_string());
    check_body(input, expect, &ours)
}

/// Checks a body that was served, or the reason for which none was.
///
/// The version in `input` must be one that a client can ask for.
pub fn check_body(
    input: &str,
    expect: &Value,
    ours: &Result<Vec<u8>, String>,
) -> Result<(), String> {
    let Input { config, version: wanted } = parsed(input)?;
    let raw = config.get().as_bytes();
    let to = wanted.parse::<TargetVersion>().map_err(|error| error.to_string())?;
    if is_silent_loss(raw, to) {
        return keeps_or_refuses(ours.as_deref().ok(), to, input, expect);
    }
    let agree = match (ours, text(expect, "error")) {
        (Ok(body), _) => text(expect, "json").map(str::as_bytes) == Some(body.as_slice()),
        (Err(_), error) => error.is_some(),
    };
    if agree {
        return Ok(());
    }
    let ours = ours.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
    Err(format!("{input}: expected {expect}, got {ours:?}"))
}

/// Checks more than is promised: the first line of an error is the same.
pub(super) fn check_words(input: &str, expect: &Value) -> Result<(), String> {
    let Input { config, version } = parsed(input)?;
    let (Ok(to), Some(words)) = (version.parse::<TargetVersion>(), text(expect, "error")) else {
        return Ok(());
    };
    let raw = config.get().as_bytes();
    if is_silent_loss(raw, to) {
        return Ok(());
    }
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match convert_raw(raw, to) {
        Err(ConvertError::Read(error)) if is_type_fault_of_v2(&error, words) => Ok(()),
        Err(error) if first_line(words) != first_line(&error.to_string()) => {
            Err(format!("expected {words:?}, found {error}"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns true if the reference would silently drop a setting that is needed to unlock a volume:
/// the crypto card below 3.5, or the advertisement of a Tang server, which even 3.4 supports.
fn is_silent_loss(raw: &[u8], to: TargetVersion) -> bool {
    let Ok(Document::V3(document)) = read(raw) else {
        return false;
    };
    to < TargetVersion::V3(Spec::V3_5)
        && document.config.storage.luks.iter().any(|volume| {
            let mut servers = volume.clevis.tang.iter();
            volume.cex.enabled == Some(true)
                || servers
                    .any(|server| server.advertisement.as_deref().is_some_and(|it| !it.is_empty()))
        })
}

/// Checks the result of `mco` where the reference drops a setting: 3.4 keeps the advertisement, all
/// else is an error.
fn keeps_or_refuses(
    ours: Option<&[u8]>,
    to: TargetVersion,
    input: &str,
    expect: &Value,
) -> Result<(), String> {
    let Some(body) = ours else {
        return Ok(());
    };
    let body = String::from_utf8_lossy(body);
    let is_kept = to == TargetVersion::V3(Spec::V3_4) && body.contains("\"advertisement\"");
    if is_kept && text(expect, "error").is_none() {
        return Ok(());
    }
    Err(format!("{input}: a setting is lost, expected {expect}, got {body}"))
}
