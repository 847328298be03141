//! Checks of the syntax of systemd units, as far as `systemd-analyze verify` needs no running system.
//!
//! Only rules of all systemd versions are checked. Keys are not compared with a list, because the
//! systemd version of the node is unknown.

use std::iter::Peekable;

use super::Severity;
use crate::machine::UNIT_TYPES;

/// The kind of a text: a whole unit or a drop-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPart {
    Unit,
    Dropin,
}

/// A fault of a unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnitFault {
    pub(super) severity: Severity,
    pub(super) code: &'static str,
    /// Line in the unit, from zero.
    pub(super) line: usize,
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

/// Unit types and the section of each.
const OWN_SECTIONS: [(&str, &str); 9] = [
    ("automount", "Automount"),
    ("mount", "Mount"),
    ("path", "Path"),
    ("scope", "Scope"),
    ("service", "Service"),
    ("slice", "Slice"),
    ("socket", "Socket"),
    ("swap", "Swap"),
    ("timer", "Timer"),
];

const COMMANDS: [&str; 9] = [
    "ExecCondition",
    "ExecReload",
    "ExecReloadPost",
    "ExecStart",
    "ExecStartPost",
    "ExecStartPre",
    "ExecStop",
    "ExecStopPost",
    "ExecStopPre",
];

/// Returns the faults of the text of a unit.
pub(super) fn check(unit: &str, part: UnitPart, text: &str) -> Vec<UnitFault> {
    let mut checker = Checker { unit, section: None, has_command: false, faults: Vec::new() };
    let lines = LogicalLines { lines: text.lines().enumerate().peekable() };
    for (line, text) in lines {
        checker.line(line, &text);
    }
    checker.finish(part, text);
    checker.faults
}

struct Checker<'u> {
    unit: &'u str,
    section: Option<String>,
    /// True if a service has a command to run.
    has_command: bool,
    faults: Vec<UnitFault>,
}

impl Checker<'_> {
    fn line(&mut self, line: usize, text: &str) {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix('[') {
            return self.header(line, inner);
        }
        let Some((key, value)) = text.split_once('=') else {
            let hint = "write `Key=value`, or end the line before it with a backslash";
            let message = format!("unit {} has a line without '='", self.unit);
            return self.error("UnitSyntax", line, message, Some(hint));
        };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            let message = format!("unit {} has a line without a key before '='", self.unit);
            return self.error("UnitSyntax", line, message, None);
        }
        match self.section.as_deref() {
            None => {
                let hint = "put a section such as [Unit] above it";
                let message = format!("unit {} sets {key} before any section", self.unit);
                self.error("UnitSyntax", line, message, Some(hint));
            }
            Some("Service" | "Socket") => self.assignment(line, key, value),
            Some(_) => {}
        }
    }

    fn header(&mut self, line: usize, inner: &str) {
        let Some(name) = inner.strip_suffix(']').filter(|name| !name.is_empty()) else {
            self.section = Some(String::new());
            let hint = "write the section header on a line of its own: [Service]";
            let message = format!("unit {} has a malformed section header", self.unit);
            return self.error("UnitSyntax", line, message, Some(hint));
        };
        if !self.knows(name) {
            let message = format!("unit {} has a section [{name}] that systemd ignores", self.unit);
            self.warning("UnitSection", line, message);
        }
        self.section = Some(name.to_owned());
    }

    fn knows(&self, section: &str) -> bool {
        let kind = self.unit.rsplit('.').next().unwrap_or_default();
        matches!(section, "Unit" | "Install")
            || section.starts_with("X-")
            || OWN_SECTIONS.contains(&(kind, section))
            // A name without a unit type is reported by the rules of the format.
            || !UNIT_TYPES.contains(&kind)
    }

    fn assignment(&mut self, line: usize, key: &str, value: &str) {
        self.has_command |= match key {
            "ExecStart" | "ExecStop" | "SuccessAction" | "BusName" => !value.is_empty(),
            _ => false,
        };
        if COMMANDS.contains(&key) && !value.is_empty() {
            self.command(line, key, value);
        }
    }

    fn command(&mut self, line: usize, key: &str, value: &str) {
        // Prefixes such as `-` and `@` may precede the program.
        let program = value.trim_start_matches(['@', '-', ':', '+', '!', '|']).trim_start();
        let program = match program.strip_prefix(['"', '\'']) {
            Some(quoted) => quoted.split(['"', '\'']).next().unwrap_or_default(),
            None => program.split_whitespace().next().unwrap_or_default(),
        };
        if program.is_empty() {
            let message = format!("unit {}: {key} names no program", self.unit);
            self.error("UnitExec", line, message, None);
        } else if program.contains('/') && !program.starts_with('/') && !program.starts_with('%') {
            let message =
                format!("unit {}: {key} needs an absolute path, not {program}", self.unit);
            self.error("UnitExec", line, message, Some("write the absolute path of the program"));
        } else if matches!(program, "~" | "." | "..") || program.starts_with('$') {
            let message = format!("unit {}: {key} cannot start {program}", self.unit);
            self.error("UnitExec", line, message, Some("write the absolute path of the program"));
        }
    }

    fn finish(&mut self, part: UnitPart, text: &str) {
        let last = text.lines().count().saturating_sub(1);
        let is_service = self.unit.ends_with(".service") && part == UnitPart::Unit;
        // An empty text is valid: it masks or clears the unit.
        if is_service && !self.has_command && self.section.is_some() && self.faults.is_empty() {
            let message = format!("unit {} has no ExecStart", self.unit);
            self.warning("UnitExec", last, message);
        }
        if self.section.is_none() && self.faults.is_empty() && !text.trim().is_empty() {
            let message = format!("unit {} has no section", self.unit);
            self.warning("UnitSection", 0, message);
        }
    }

    fn error(
        &mut self,
        code: &'static str,
        line: usize,
        message: String,
        hint: Option<&'static str>,
    ) {
        self.faults.push(UnitFault { severity: Severity::Error, code, line, message, hint });
    }

    fn warning(&mut self, code: &'static str, line: usize, message: String) {
        self.faults.push(UnitFault {
            severity: Severity::Warning,
            code,
            line,
            message,
            hint: None,
        });
    }
}

/// The lines of a unit with continuations joined, without comments and empty lines.
struct LogicalLines<'t, I: Iterator<Item = (usize, &'t str)>> {
    lines: Peekable<I>,
}

impl<'t, I: Iterator<Item = (usize, &'t str)>> Iterator for LogicalLines<'t, I> {
    type Item = (usize, String);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (number, line) = self.lines.next()?;
            if is_comment(line) || line.trim().is_empty() {
                continue;
            }
            let mut whole = line.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                // Comments inside a continued line are skipped and do not end the line.
                while self.lines.next_if(|(_, next)| is_comment(next)).is_some() {}
                let Some((_, next)) = self.lines.next() else { break };
                whole.push(' ');
                whole.push_str(next);
            }
            return Some((number, whole));
        }
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with(['#', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(unit: &str, part: UnitPart, text: &str) -> String {
        let faults = check(unit, part, text);
        let lines = faults.iter().map(|f| format!("{} {} {}", f.line, f.code, f.message));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn valid_units_have_no_faults() {
        let rows = [
            (
                "a.service",
                UnitPart::Unit,
                "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n",
            ),
            (
                "a.service",
                UnitPart::Unit,
                "# c\n; d\n\n[Service]\nExecStart=-+/bin/sh -c \\\n# c\n 'x'\n",
            ),
            (
                "a.service",
                UnitPart::Unit,
                "[Service]\nExecStart=@/bin/sh sh\nExecStartPre=\n[X-Ours]\na=b",
            ),
            ("a.service", UnitPart::Unit, "[Service]\r\nExecStart=podman run \\\r\n"),
            ("a.service", UnitPart::Unit, "[Service]\nExecStart=%h/x\nExecStop=\"/a b/c\" d\n"),
            ("a.service", UnitPart::Dropin, "[Service]\nEnvironment=A=b\n"),
            ("a.timer", UnitPart::Unit, "[Timer]\nOnBootSec=1\n[Install]\nWantedBy=timers.target"),
            ("a.target", UnitPart::Unit, "[Unit]\nDescription=x"),
            ("a.service", UnitPart::Unit, ""),
        ];
        for (unit, part, text) in rows {
            assert_eq!(found(unit, part, text), "", "{text:?}");
        }
    }

    #[test]
    fn faults_have_the_number_of_their_line() {
        let rows = [
            ("[Unit]\nDescription=x\n...\n", "2 UnitSyntax unit a.service has a line without '='"),
            ("A=b\n", "0 UnitSyntax unit a.service sets A before any section"),
            ("[Unit\n", "0 UnitSyntax unit a.service has a malformed section header"),
            ("[]\n", "0 UnitSyntax unit a.service has a malformed section header"),
            ("[Unit]\n=b\n", "1 UnitSyntax unit a.service has a line without a key before '='"),
            (
                "[Service]\nExecStart=/a\n[Timer]\n",
                "2 UnitSection unit a.service has a section [Timer] that systemd ignores",
            ),
            (
                "[Service]\nExecStart=bin/x y\n",
                "1 UnitExec unit a.service: ExecStart needs an absolute path, not bin/x",
            ),
            (
                "[Service]\nExecStart=/a\nExecStartPre=-\n",
                "2 UnitExec unit a.service: ExecStartPre names no program",
            ),
            (
                "[Service]\nExecStart=$HOME\n",
                "1 UnitExec unit a.service: ExecStart cannot start $HOME",
            ),
            ("[Service]\nType=simple\n", "1 UnitExec unit a.service has no ExecStart"),
            ("# only this\n", "0 UnitSection unit a.service has no section"),
        ];
        for (text, want) in rows {
            assert_eq!(found("a.service", UnitPart::Unit, text), want, "{text:?}");
        }
    }
}
