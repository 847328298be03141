//! The `[Install]` section of a unit file, and the links it asks for.

/// What a unit file says about starting at boot.
#[derive(Debug, Default)]
pub(super) struct Install {
    wanted_by: Vec<String>,
    required_by: Vec<String>,
    upheld_by: Vec<String>,
    alias: Vec<String>,
    pub(super) also: Vec<String>,
    default_instance: Option<String>,
}

impl Install {
    pub(super) fn parse(text: &str) -> Self {
        let mut install = Self::default();
        let mut inside = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line == "[Install]";
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            if !inside || line.starts_with(['#', ';']) {
                continue;
            }
            let list = match key.trim() {
                "WantedBy" => &mut install.wanted_by,
                "RequiredBy" => &mut install.required_by,
                "UpheldBy" => &mut install.upheld_by,
                "Alias" => &mut install.alias,
                "Also" => &mut install.also,
                "DefaultInstance" => {
                    install.default_instance = Some(value.trim().to_owned());
                    continue;
                }
                _ => continue,
            };
            // An empty value forgets what was said before.
            if value.trim().is_empty() {
                list.clear();
            }
            list.extend(value.split_whitespace().map(str::to_owned));
        }
        install
    }

    /// The links for `unit`, relative to the folder of units.
    pub(super) fn links(&self, unit: &str) -> Vec<String> {
        let Some(unit) = self.instance(unit) else { return Vec::new() };
        let folders = [
            (&self.wanted_by, "wants"),
            (&self.required_by, "requires"),
            (&self.upheld_by, "upholds"),
        ];
        let mut links = Vec::new();
        for (names, suffix) in folders {
            for name in names {
                links.push(format!("{}.{suffix}/{unit}", expand(name, &unit)));
            }
        }
        links.extend(self.alias.iter().map(|name| expand(name, &unit)));
        // A name cannot lead into another folder.
        links.retain(|link| {
            link.split('/').count() <= 2 && !link.split('/').any(|part| part == "..")
        });
        links
    }

    /// The unit itself, or for a bare template the instance it starts by default.
    fn instance(&self, unit: &str) -> Option<String> {
        match unit.split_once("@.") {
            None => Some(unit.to_owned()),
            Some((name, suffix)) => {
                let instance = self.default_instance.as_ref()?;
                Some(format!("{name}@{instance}.{suffix}"))
            }
        }
    }
}

/// The names that the file of a unit may have: its own, and for an instance its template's.
pub(super) fn file_names(unit: &str) -> Vec<String> {
    let mut names = vec![unit.to_owned()];
    if let (Some((name, _)), Some((_, suffix))) = (unit.split_once('@'), unit.rsplit_once('.')) {
        let template = format!("{name}@.{suffix}");
        if template != unit {
            names.push(template);
        }
    }
    names
}

fn expand(text: &str, unit: &str) -> String {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    text.replace("%i", instance)
        .replace("%I", instance)
        .replace("%p", prefix)
        .replace("%n", unit)
        .replace("%N", stem)
}

/// The lines of a unit file, with those that end in a backslash joined to the next.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let (part, next) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
        continues = next;
    }
    lines
}
