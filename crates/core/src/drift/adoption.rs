//! Adoption of drift: a MachineConfig with the present contents of the files and units that differ.

use std::collections::BTreeMap;

use mco_api::{GROUP, label};
use mco_ignition::data_url;
use serde_json::{Map, Value, json};

use super::{Drift, Expected, Observed, Want};
use crate::machine::{self, Machine};

/// Ignition version of an adopting MachineConfig.
const IGNITION_VERSION: &str = "3.2.0";

/// A difference between disk and config, with the state that the machine has instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Expected state.
    pub expected: Expected,
    /// Observed state.
    pub observed: Observed,
    /// The difference.
    pub drift: Drift,
}

/// The adoption of the differences of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adoption {
    /// MachineConfig that the pool would have to select; `None` if nothing can be adopted.
    pub config: Option<Value>,
    /// Differences that no MachineConfig can express, each with the reason.
    pub left: Vec<String>,
}

/// Builds a MachineConfig that gives every node of a pool the present state of one node's files and
/// units.
///
/// `name` has to sort after the MachineConfigs that set the same files, because the last one wins.
#[must_use]
pub fn adopt(name: &str, pool: &str, machine: &Machine, differences: &[Difference]) -> Adoption {
    let mut parts = Parts::default();
    for difference in differences {
        if let Err(why) = parts.add(machine, difference) {
            parts.left.push(format!("{}: {why}", difference.drift));
        }
    }
    let Parts { files, units, left } = parts;
    if files.is_empty() && units.is_empty() {
        return Adoption { config: None, left };
    }
    let mut config = json!({"ignition": {"version": IGNITION_VERSION}});
    if let Some(sections) = config.as_object_mut() {
        if !files.is_empty() {
            sections.insert("storage".to_owned(), json!({"files": files}));
        }
        if !units.is_empty() {
            let units: Vec<Value> = units.into_values().map(Value::Object).collect();
            sections.insert("systemd".to_owned(), json!({"units": units}));
        }
    }
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {(label::ROLE): pool}},
        "spec": {"config": config},
    });
    Adoption { config: Some(object), left }
}

/// The parts of an adopting MachineConfig.
#[derive(Default)]
struct Parts {
    files: Vec<Value>,
    units: BTreeMap<String, Map<String, Value>>,
    left: Vec<String>,
}

impl Parts {
    fn add(&mut self, machine: &Machine, difference: &Difference) -> Result<(), &'static str> {
        let path = difference.expected.path.as_str();
        match (&difference.expected.want, &difference.observed) {
            (Want::Enabled(_), Observed::Enablement(found)) => {
                let enabled = matches!(found.as_str(), "enabled" | "enabled-runtime");
                self.unit(path).insert("enabled".to_owned(), json!(enabled));
                Ok(())
            }
            (_, Observed::Missing) => {
                Err("no MachineConfig removes a file that another one sets; change that one")
            }
            (
                Want::File { .. } | Want::EmptyOrAbsent,
                Observed::Present { mode, contents, owner },
            ) => {
                let permissions = mode.permissions().ok_or("only regular files can be adopted")?;
                if machine.file(path).is_none() {
                    return self.add_unit(machine, path, permissions, contents);
                }
                let mut file = json!({
                    "path": path, "mode": permissions, "overwrite": true,
                    "contents": {"source": data_url::encode(contents)},
                });
                if let (Drift::Owner { .. }, Some(owner), Some(file)) =
                    (&difference.drift, owner, file.as_object_mut())
                {
                    file.insert("user".to_owned(), json!({"id": owner.user.id}));
                    file.insert("group".to_owned(), json!({"id": owner.group.id}));
                }
                self.files.push(file);
                Ok(())
            }
            _ => Err("only files, units and their enablement can be adopted"),
        }
    }

    /// Adds the contents of a unit or of a drop-in.
    fn add_unit(
        &mut self,
        machine: &Machine,
        path: &str,
        permissions: u32,
        contents: &[u8],
    ) -> Result<(), &'static str> {
        if permissions != machine::DEFAULT_MODE {
            return Err("the permissions of units are fixed");
        }
        let text = std::str::from_utf8(contents).map_err(|_| "units are text")?;
        for unit in &machine.config.systemd.units {
            if machine::unit_path(&unit.name) == path {
                self.unit(&unit.name).insert("contents".to_owned(), json!(text));
                return Ok(());
            }
            for dropin in &unit.dropins {
                if machine::dropin_path(&unit.name, &dropin.name) == path {
                    let entry = json!({"name": dropin.name, "contents": text});
                    let dropins = self.unit(&unit.name).entry("dropins").or_insert(json!([]));
                    dropins.as_array_mut().into_iter().for_each(|it| it.push(entry.clone()));
                    return Ok(());
                }
            }
        }
        Err("the config has no such file or unit")
    }

    fn unit(&mut self, name: &str) -> &mut Map<String, Value> {
        let unit = self.units.entry(name.to_owned()).or_default();
        unit.insert("name".to_owned(), json!(name));
        unit
    }
}

#[cfg(test)]
mod tests {
    use mco_api::MachineConfig;

    use super::*;
    use crate::drift::{FoundAccount, FoundOwner, Mode, compare, expected};

    fn machine() -> Machine {
        let config: MachineConfig = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "a"}, "spec": {"config": {"ignition": {"version": "3.5.0"},
            "storage": {"files": [
                {"path": "/etc/a", "mode": 420, "user": {"id": 0}},
                {"path": "/etc/b", "mode": 420}]},
            "systemd": {"units": [{"name": "u.service", "contents": "[Unit]", "enabled": true,
                "dropins": [{"name": "d.conf", "contents": "x"}]}]}}},
        }))
        .unwrap();
        Machine::read(&config).unwrap()
    }

    fn present(mode: u32, contents: &str, user: u32) -> Observed {
        let account = |id| FoundAccount { id, name: None };
        let owner = Some(FoundOwner { user: account(user), group: account(0) });
        Observed::Present { mode: Mode::file(mode), contents: contents.into(), owner }
    }

    /// Adopts these observations of paths and units.
    fn adopted(found: &[(&str, Observed)]) -> Adoption {
        let machine = machine();
        let expected = expected(&machine);
        let differences: Vec<Difference> = found
            .iter()
            .map(|(path, observed)| {
                let expected = expected.iter().find(|it| it.path == *path).unwrap().clone();
                let drift = compare(&expected, observed).expect("the observation differs");
                Difference { expected, observed: observed.clone(), drift }
            })
            .collect();
        adopt("99-zz-drift-w", "worker", &machine, &differences)
    }

    #[test]
    fn the_adopting_config_has_what_the_machine_has() {
        let disabled = Observed::Enablement("disabled".to_owned());
        let found = adopted(&[
            ("/etc/a", present(0o600, "edited\n", 0)),
            ("/etc/systemd/system/u.service", present(0o644, "[Service]", 0)),
            ("/etc/systemd/system/u.service.d/d.conf", present(0o644, "y", 0)),
            ("u.service", disabled),
        ]);
        assert_eq!(found.left, [""; 0]);
        let config = found.config.unwrap();
        let labels = json!({"machineconfiguration.openshift.io/role": "worker"});
        assert_eq!(config["metadata"], json!({"name": "99-zz-drift-w", "labels": labels}));
        let file = json!({"path": "/etc/a", "mode": 0o600, "overwrite": true,
            "contents": {"source": "data:,edited%0A"}});
        assert_eq!(config["spec"]["config"]["storage"], json!({"files": [file]}));
        let unit = json!({"name": "u.service", "contents": "[Service]", "enabled": false,
            "dropins": [{"name": "d.conf", "contents": "y"}]});
        assert_eq!(config["spec"]["config"]["systemd"], json!({"units": [unit]}));
        // Applied on top, the machine has no differences left.
        let adopting: MachineConfig = serde_json::from_value(config).unwrap();
        assert!(Machine::read(&adopting).is_ok());
    }

    #[test]
    fn an_owner_is_adopted_by_its_number() {
        let config = adopted(&[("/etc/a", present(0o644, "", 7))]).config.unwrap();
        let file = &config["spec"]["config"]["storage"]["files"][0];
        assert_eq!((&file["user"]["id"], &file["group"]["id"]), (&json!(7), &json!(0)));
    }

    #[test]
    fn differences_that_no_config_expresses_are_named() {
        let link = Observed::Present {
            mode: Mode::from_kernel(0o120_777),
            contents: Vec::new(),
            owner: None,
        };
        let found = adopted(&[("/etc/a", Observed::Missing), ("/etc/b", link)]);
        assert_eq!(found.config, None);
        let [missing, link] = &found.left[..] else { panic!("{:?}", found.left) };
        assert!(missing.ends_with("removes a file that another one sets; change that one"));
        assert!(link.ends_with("only regular files can be adopted"), "{link}");
    }
}
