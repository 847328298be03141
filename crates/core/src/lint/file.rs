//! Checks of files: fields and contents that the daemon cannot write.

use mco_ignition::content::{self, ContentLimit};

use super::{Fault, FieldPath, Object, SpannedValue, chain, secret, value::Value};
use crate::machine::paths;

/// A file that makes the daemon skip its check of the disk, so that no config may contain it.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Adds the faults of the files in the config at `root`.
pub(super) fn check(object: &Object, root: &FieldPath, faults: &mut Vec<Fault>) {
    let list = root.member("storage").member("files");
    let Some(files) = object.root.find(&list) else { return };
    for (index, file) in files.items().iter().enumerate() {
        FileCheck { object, file, path: list.index(index) }.check(faults);
    }
}

struct FileCheck<'o> {
    object: &'o Object,
    file: &'o SpannedValue,
    path: FieldPath,
}

impl FileCheck<'_> {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.mode(faults);
        self.append(faults);
        self.contents(faults);
        if paths::is_in_image(self.name()) {
            let message = format!(
                "file {} cannot be written on image-based systems (rpm-ostree, bootc)",
                self.name()
            );
            let fault = Fault::warning("ReadOnlyPath", message);
            let fault = fault.hint("use a path below /usr/local, /etc or /var");
            faults.push(self.object.fault_at(&self.path.member("path"), fault));
        }
        if self.name() == FORCE_FILE {
            let message = format!("{FORCE_FILE} cannot be part of a config");
            let fault = Fault::error("ForceFile", message);
            let fault = fault.hint("create the file on the node when needed");
            faults.push(self.object.fault_at(&self.path.member("path"), fault));
        }
    }

    fn name(&self) -> &str {
        self.file.get("path").and_then(SpannedValue::as_str).unwrap_or_default()
    }

    fn mode(&self, faults: &mut Vec<Fault>) {
        let Some(Value::Number(number)) = self.file.get("mode").map(|mode| &mode.value) else {
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
        let used = self.file.get("append").is_some_and(|append| match &append.value {
            Value::Bool(switch) => *switch,
            Value::List(items) => !items.is_empty(),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Map(_) => false,
        });
        if used {
            let message = format!("file {} uses append, which the daemon refuses", self.name());
            let fault = Fault::error("FileAppend", message);
            let fault =
                fault.hint("write the whole contents, or a separate file in a .d directory");
            faults.push(self.object.fault_at(&self.path.member("append"), fault));
        }
    }

    fn contents(&self, faults: &mut Vec<Fault>) {
        let text = |name: &str| self.file.get("contents")?.get(name)?.as_str();
        let path = self.path.member("contents").member("source");
        let source = text("source").filter(|source| !source.is_empty());
        if let Some(source) = source.filter(|source| !source.starts_with("data:")) {
            let is_verified = self
                .file
                .get("contents")
                .and_then(|contents| contents.get("verification")?.get("hash"))
                .is_some();
            faults.push(self.object.fault_at(&path, self.remote(source, is_verified)));
            return;
        }
        match content::decode(source, text("compression"), ContentLimit::DEFAULT) {
            Ok(bytes) => self.secrets(&bytes, &path, faults),
            Err(error) => {
                let cause = chain(&error);
                let message = format!("failed to decode the contents of {}: {cause}", self.name());
                let fault = Fault::error("Contents", message);
                let fault = fault.hint("create a data URL with: base64 -w0 FILE");
                faults.push(self.object.fault_at(&path, fault));
            }
        }
    }

    /// Returns the fault of a remote source.
    fn remote(&self, source: &str, is_verified: bool) -> Fault {
        let scheme = source.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            let message =
                format!("file {} has a source that the controller does not fetch", self.name());
            let fault = Fault::error("RemoteSource", message);
            return fault.hint("use an http, https or data URL");
        }
        let message = format!(
            "file {} has a remote source, which the controller fetches; the rendered name differs from the \
             cluster's",
            self.name()
        );
        let fault = Fault::warning("RemoteSource", message);
        let hint = "add verification.hash, so that only the expected contents are accepted";
        if is_verified { fault } else { fault.hint(hint) }
    }

    fn secrets(&self, bytes: &[u8], path: &FieldPath, faults: &mut Vec<Fault>) {
        // The generated configs of a cluster contain its pull secret; the user cannot change them.
        if self.object.is_generated() {
            return;
        }
        for found in secret::find(bytes) {
            let (kind, line) = (found.kind, found.line + 1);
            let message =
                format!("file {} contains what looks like {kind} (line {line})", self.name());
            let fault = Fault::warning("Secret", message);
            let fault = fault.hint(secret::HINT);
            faults.push(self.object.fault_at(path, fault));
        }
    }
}

fn octal(mode: i64) -> String {
    if mode < 0 { mode.to_string() } else { format!("0{mode:o}") }
}
