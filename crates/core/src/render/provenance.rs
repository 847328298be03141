//! Origin of each part of a rendered config.
//!
//! Recorded while the configs are merged, from names only: contents are not read again. A part is
//! one entry of a keyed list (a file, a unit, a user …) or one setting. Several configs may
//! contribute to a part; for each member the last one wins, except that lists (SSH keys, groups, …)
//! are concatenated.

use std::collections::BTreeMap;

use mco_ignition::{Config, Spec, tree::Tree};

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A file, directory or link: they share one namespace.
    Path,
    /// A unit.
    Unit,
    /// A drop-in, as `unit/drop-in`.
    Dropin,
    /// A user.
    User,
    /// A group.
    Group,
    /// A disk.
    Disk,
    /// A filesystem.
    Filesystem,
    /// An encrypted volume.
    Luks,
    /// A RAID array.
    Raid,
    /// A kernel argument.
    KernelArgument,
    /// An extension.
    Extension,
    /// A single value, such as `osImageURL`.
    Setting,
}

/// A part of a rendered config.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// Kind of the part.
    pub kind: Kind,
    /// Path, name or argument.
    pub key: String,
}

/// The contribution of one config to a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// Position of the config in [`Provenance::configs`].
    pub config: usize,
    /// List that contains the part, for example `files` or `links`.
    pub list: &'static str,
    /// Members that the config sets.
    pub members: Vec<&'static str>,
}

/// The origin of each part of a rendered config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    configs: Vec<String>,
    items: BTreeMap<Item, Vec<Contribution>>,
}

impl Provenance {
    /// Returns the configs, in merge order.
    #[must_use]
    pub fn configs(&self) -> &[String] {
        &self.configs
    }

    /// Returns the contributions to one part, in merge order.
    #[must_use]
    pub fn of(&self, kind: Kind, key: &str) -> &[Contribution] {
        let item = Item { kind, key: key.to_owned() };
        self.items.get(&item).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns every part with its contributions.
    pub fn items(&self) -> impl Iterator<Item = (&Item, &[Contribution])> {
        self.items.iter().map(|(item, contributions)| (item, contributions.as_slice()))
    }

    /// Returns the config that wins one member of a part.
    #[must_use]
    pub fn winner(&self, kind: Kind, key: &str, member: &str) -> Option<&str> {
        let mut contributions = self.of(kind, key).iter().rev();
        let last = contributions.find(|contribution| contribution.members.contains(&member))?;
        self.configs.get(last.config).map(String::as_str)
    }

    pub(super) fn next_config(&mut self, name: &str) {
        self.configs.push(name.to_owned());
    }

    pub(super) fn record_setting(&mut self, name: &'static str) {
        self.record(Kind::Setting, name.to_owned(), name, Vec::new());
    }

    pub(super) fn record_kernel_argument(&mut self, argument: &str) {
        self.record(Kind::KernelArgument, argument.to_owned(), "kernelArguments", Vec::new());
    }

    pub(super) fn record_extension(&mut self, extension: &str) {
        self.record(Kind::Extension, extension.to_owned(), "extensions", Vec::new());
    }

    pub(super) fn record_ignition(&mut self, config: &Config) {
        let Tree::Object(sections) = config.tree(Spec::V3_5) else { return };
        for (section, tree) in &sections {
            let Tree::Object(lists) = tree else { continue };
            for (list, tree) in lists {
                match (keyed(section, list), tree) {
                    (Some((kind, key)), Tree::List(items)) => {
                        self.record_list(list, kind, key, items);
                    }
                    _ if *list == "version" => {}
                    _ => {
                        self.record(
                            Kind::Setting,
                            format!("{section}.{list}"),
                            section,
                            Vec::new(),
                        );
                    }
                }
            }
        }
    }

    fn record_list(&mut self, list: &'static str, kind: Kind, key: &str, items: &[Tree<'_>]) {
        for item in items {
            let Tree::Object(members) = item else { continue };
            let named = members.iter().find(|(name, _)| *name == key);
            let Some((_, Tree::Text(name))) = named else { continue };
            for (member, value) in members {
                if let ("dropins", Tree::List(dropins)) = (*member, value) {
                    self.record_dropins(name, dropins);
                }
            }
            let others = members.iter().map(|(name, _)| *name);
            let members = others.filter(|name| *name != key && *name != "dropins").collect();
            self.record(kind, (*name).to_owned(), list, members);
        }
    }

    fn record_dropins(&mut self, unit: &str, dropins: &[Tree<'_>]) {
        for dropin in dropins {
            let Tree::Object(members) = dropin else { continue };
            let named = members.iter().find(|(name, _)| *name == "name");
            let Some((_, Tree::Text(name))) = named else { continue };
            self.record(Kind::Dropin, format!("{unit}/{name}"), "dropins", vec!["contents"]);
        }
    }

    fn record(&mut self, kind: Kind, key: String, list: &'static str, members: Vec<&'static str>) {
        let config = self.configs.len().saturating_sub(1);
        let contribution = Contribution { config, list, members };
        self.items.entry(Item { kind, key }).or_default().push(contribution);
    }
}

/// Returns the kind of a list's entries and the member that names them.
fn keyed(section: &str, list: &str) -> Option<(Kind, &'static str)> {
    Some(match (section, list) {
        ("storage", "files" | "directories" | "links") => (Kind::Path, "path"),
        ("storage", "disks") => (Kind::Disk, "device"),
        ("storage", "filesystems") => (Kind::Filesystem, "device"),
        ("storage", "luks") => (Kind::Luks, "name"),
        ("storage", "raid") => (Kind::Raid, "name"),
        ("systemd", "units") => (Kind::Unit, "name"),
        ("passwd", "users") => (Kind::User, "name"),
        ("passwd", "groups") => (Kind::Group, "name"),
        _ => return None,
    })
}
