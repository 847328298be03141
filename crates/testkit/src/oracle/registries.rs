//! Suite: two registries configurations, and the reference's decision to skip the drain when one
//! replaces the other.

use std::fmt::Write as _;

use mco_core::{machine::Machine, plan::registries};
use mco_ignition::config::File;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, text};

#[derive(Deserialize)]
struct Input {
    old: Option<String>,
    new: Option<String>,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { old, new } = parsed(input)?;
    match registries::unsafe_change(&with(old.as_deref()), &with(new.as_deref())) {
        Ok(danger) => {
            let seen = json!({"safe": danger.is_none()});
            difference(expect, &seen)
                .map_or(Ok(()), |line| Err(format!("{line} ({})", danger.unwrap_or_default())))
        }
        // The text for an unparsable list depends on the decoder.
        Err(_) if text(expect, "error").is_some() => Ok(()),
        Err(error) => Err(format!("rejected: {error}")),
    }
}

/// Builds a config with this list of registries.
fn with(list: Option<&str>) -> Machine {
    let mut machine = Machine::blank();
    if let Some(text) = list {
        let mut source = "data:,".to_owned();
        for byte in text.bytes() {
            write!(source, "%{byte:02x}").expect("writing to a String does not fail");
        }
        let mut file = File { path: registries::PATH.to_owned(), ..File::default() };
        file.contents.source = Some(source);
        machine.config.storage.files.push(file);
    }
    machine
}
