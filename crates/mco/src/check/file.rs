//! Files: what the daemon can write.

use std::error::Error;

use mco_cluster::report::chain;
use mco_ignition::content::{self, Limit};

use super::secret;
use crate::{
    fault::Fault,
    load::{
        Object,
        node::{Node, Path, Value},
    },
};

/// Its presence makes the daemon skip a check, so it cannot come from a config.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Adds what is wrong with the files of the config at `root`.
pub(super) fn check(object: &Object, root: &Path, faults: &mut Vec<Fault>) {
    let list = root.member("storage").member("files");
    let Some(files) = object.node.find(&list) else { return };
    for (index, file) in files.items().iter().enumerate() {
        File { object, node: file, path: list.index(index) }.check(faults);
    }
}

struct File<'o> {
    object: &'o Object,
    node: &'o Node,
    path: Path,
}

impl File<'_> {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.mode(faults);
        self.append(faults);
        self.contents(faults);
        if self.name() == FORCE_FILE {
            let fault =
                Fault::error("ForceFile", format!("{FORCE_FILE} cannot come from a config"));
            let fault = fault.hint("create it on the node by hand when you need it");
            faults.push(self.object.fault_at(&self.path.member("path"), fault));
        }
    }

    fn name(&self) -> &str {
        self.node.get("path").and_then(Node::as_str).unwrap_or_default()
    }

    fn mode(&self, faults: &mut Vec<Fault>) {
        let Some(Value::Number(number)) = self.node.get("mode").map(|mode| &mode.value) else {
            return;
        };
        let Some(mode) = number.as_i64().filter(|mode| !(0..=0o777).contains(mode)) else { return };
        let message = format!("file {} has mode {}, above 0777", self.name(), octal(mode));
        let digits = mode.to_string();
        let fault = Fault::error("FileMode", message).hint(
            if digits.len() <= 4 && digits.bytes().all(|digit| (b'0'..b'8').contains(&digit)) {
                format!("{digits} is a decimal number here; write 0{digits}")
            } else {
                "special bits are not supported; use a mode from 0000 to 0777".to_owned()
            },
        );
        faults.push(self.object.fault_at(&self.path.member("mode"), fault));
    }

    fn append(&self, faults: &mut Vec<Fault>) {
        let used = self.node.get("append").is_some_and(|append| match &append.value {
            Value::Bool(switch) => *switch,
            Value::List(items) => !items.is_empty(),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Map(_) => false,
        });
        if used {
            let message = format!("file {} uses append, which the daemon refuses", self.name());
            let fault = Fault::error("FileAppend", message);
            let fault =
                fault.hint("write the whole contents, or a file of its own in a .d directory");
            faults.push(self.object.fault_at(&self.path.member("append"), fault));
        }
    }

    fn contents(&self, faults: &mut Vec<Fault>) {
        let text = |name: &str| self.node.get("contents")?.get(name)?.as_str();
        let path = self.path.member("contents").member("source");
        let source = text("source").filter(|source| !source.is_empty());
        if let Some(source) = source.filter(|source| !source.starts_with("data:")) {
            let is_verified = self
                .node
                .get("contents")
                .and_then(|contents| contents.get("verification")?.get("hash"))
                .is_some();
            faults.push(self.object.fault_at(&path, self.remote(source, is_verified)));
            return;
        }
        match content::decode(source, text("compression"), Limit::DEFAULT) {
            Ok(bytes) => self.secrets(&bytes, &path, faults),
            Err(error) => {
                let why = chain(&error as &dyn Error);
                let message = format!("the contents of {} cannot be decoded: {why}", self.name());
                let fault = Fault::error("Contents", message);
                let fault = fault.hint("make a data URL with: base64 -w0 FILE");
                faults.push(self.object.fault_at(&path, fault));
            }
        }
    }

    /// What there is to say of contents that are somewhere else.
    fn remote(&self, source: &str, is_verified: bool) -> Fault {
        let scheme = source.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            let message =
                format!("file {} has contents the daemon would have to fetch", self.name());
            let fault = Fault::error("RemoteSource", message);
            return fault.hint("only http and https are fetched: put the contents inside");
        }
        let message = format!(
            "file {} has contents that the controller fetches; the name rendered here differs from the cluster's",
            self.name()
        );
        let fault = Fault::warning("RemoteSource", message);
        let hint = "add verification.hash, so that nothing else than what you mean gets in";
        if is_verified { fault } else { fault.hint(hint) }
    }

    fn secrets(&self, bytes: &[u8], path: &Path, faults: &mut Vec<Fault>) {
        // The cluster's own configs hold its pull secret; no reader of this can change that.
        if self.object.is_generated() {
            return;
        }
        for found in secret::find(bytes) {
            let (kind, line) = (found.kind, found.line + 1);
            let message =
                format!("file {} holds what looks like {kind} (line {line})", self.name());
            let fault = Fault::warning("Secret", message);
            let fault = fault.hint("anybody who can read MachineConfigs can read it");
            faults.push(self.object.fault_at(path, fault));
        }
    }
}

fn octal(mode: i64) -> String {
    if mode < 0 { mode.to_string() } else { format!("0{mode:o}") }
}
