//! Conversion, against the reference.

use mco_ignition::{Target, convert_raw};
use serde_json::Value;

use crate::oracle;

#[test]
fn converts_as_the_reference() {
    oracle::run("convert", check_convert);
}

/// The same body byte for byte, or a refusal with the same first line.
pub(crate) fn check_convert(input: &Value, expect: &Value) -> Result<(), String> {
    let raw = serde_json::to_vec(&input["config"]).map_err(|error| error.to_string())?;
    let wanted = input["version"].as_str().unwrap_or_default();
    let Ok(to) = wanted.parse::<Target>() else {
        return match expect["error"].as_str() {
            Some(_) => Ok(()),
            None => Err(format!("{wanted} is no target here, expected {expect}")),
        };
    };
    let ours = convert_raw(&raw, to);
    if is_silent_loss(&input["config"], wanted) {
        return keeps_or_refuses(&ours, input, expect);
    }
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let agree = match &ours {
        Ok(body) => expect["json"].as_str().map(str::as_bytes) == Some(body.as_slice()),
        Err(error) => expect["error"]
            .as_str()
            .is_some_and(|text| first_line(text) == first_line(&error.to_string())),
    };
    if agree {
        return Ok(());
    }
    let ours = ours.map(|body| String::from_utf8_lossy(&body).into_owned());
    Err(format!("{input}: expected {expect}, got {ours:?}"))
}

/// Whether the reference would drop something without a word that decides how a volume unlocks:
/// the crypto card below 3.5, the advertisement of a Tang server in 3.5 configs.
fn is_silent_loss(config: &Value, wanted: &str) -> bool {
    let empty = Vec::new();
    let volumes = config["storage"]["luks"].as_array().unwrap_or(&empty);
    wanted != "3.5.0"
        && config["ignition"]["version"] == "3.5.0"
        && volumes.iter().any(|volume| {
            let servers = volume["clevis"]["tang"].as_array().unwrap_or(&empty);
            volume["cex"]["enabled"] == true
                || servers.iter().any(|server| {
                    server["advertisement"].as_str().is_some_and(|text| !text.is_empty())
                })
        })
}

/// What must happen in place of a silent loss: the config is refused, or nothing is lost.
fn keeps_or_refuses(
    ours: &Result<Vec<u8>, mco_ignition::ConvertError>,
    input: &Value,
    expect: &Value,
) -> Result<(), String> {
    let Ok(body) = ours else {
        return Ok(());
    };
    let body = String::from_utf8_lossy(body);
    let kept = body.contains("\"advertisement\"") && input["version"] == "3.4.0";
    if kept && expect["error"].is_null() {
        return Ok(());
    }
    Err(format!("{input}: something is lost, expected {expect}, got {body}"))
}
