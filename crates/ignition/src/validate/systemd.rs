//! Rules for units and drop-ins.

use std::collections::HashMap;

use super::{Checker, RuleResult, path, unit_file};
use crate::config::{Dropin, Systemd, Unit};

impl Checker {
    pub(super) fn systemd(&mut self, systemd: &Systemd) {
        self.templates(&systemd.units);
        self.each("units", &systemd.units, Self::unit);
        self.unique("units", &systemd.units);
    }

    /// Warns about enabled instances whose template has no `Install` section.
    fn templates(&mut self, units: &[Unit]) {
        let is_instance = |unit: &&Unit| unit.enabled == Some(true) && unit.name.contains('@');
        if !units.iter().any(|unit| is_instance(&unit)) {
            return;
        }
        let by_name: HashMap<&str, &Unit> =
            units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
        for (at, unit) in units.iter().enumerate().filter(|(_, unit)| is_instance(unit)) {
            let Some(template) = template_of(&unit.name) else { continue };
            let contents = by_name.get(template.as_str()).and_then(|unit| unit.contents.as_deref());
            let contents = contents.filter(|contents| !contents.is_empty());
            let Some(Ok(sections)) = contents.map(unit_file::parse) else { continue };
            if !sections.install {
                let path = self.path.member("units").index(at).member("contents");
                let message = format!(
                    "template unit {template:?} for {:?} doesn't have Install section",
                    unit.name
                );
                self.report.warning(path, message);
            }
        }
    }

    fn unit(&mut self, unit: &Unit) {
        self.require("name", unit_name(&unit.name));
        let contents = unit.contents.as_deref().unwrap_or_default();
        match unit_file::parse(contents) {
            Err(message) => self.error_at("contents", format!("invalid unit content: {message}")),
            Ok(sections) => {
                let does_nothing = !contents.is_empty() && !sections.install;
                if unit.enabled == Some(true) && does_nothing {
                    let message = format!(
                        "unit {:?} is enabled, but has no install section so enable does nothing",
                        unit.name
                    );
                    self.warning_at("contents", message);
                }
            }
        }
        self.each("dropins", &unit.dropins, Self::dropin);
        self.unique("dropins", &unit.dropins);
    }

    fn dropin(&mut self, dropin: &Dropin) {
        let contents = dropin.contents.as_deref().unwrap_or_default();
        if let Err(message) = unit_file::parse(contents) {
            self.error_at("contents", format!("invalid unit content: {message}"));
        }
        if path::extension(&dropin.name) != ".conf" {
            self.error_at("name", "invalid systemd drop-in extension");
        }
    }
}

pub(super) fn unit_name(name: &str) -> RuleResult {
    match path::extension(name) {
        ".service" | ".socket" | ".device" | ".mount" | ".automount" | ".swap" | ".target"
        | ".path" | ".timer" | ".snapshot" | ".slice" | ".scope" => Ok(()),
        _ => Err("invalid systemd unit extension"),
    }
}

/// Returns the name of the template that a service is an instance of.
fn template_of(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".service")?;
    // Both sides of the `@` have at least one character, and neither contains a newline.
    let at = stem.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at)?;
    let (before, instance) = stem.split_at_checked(at)?;
    let fits = instance.len() > 1 && !stem.contains('\n');
    fits.then(|| format!("{before}@.service"))
}
