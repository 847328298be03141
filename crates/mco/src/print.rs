//! Output for the user: faults, notes and errors, with colours on a terminal.

pub(crate) mod fit;

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt::Display,
    io::{self, IsTerminal as _, Write},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use mco_cluster::report;
use mco_core::lint::{Fault, Severity};

use crate::error::{FaultsError, HintedError};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Name of the program in commands that are shown to the user.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Whether notes are left out.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Chooses whether notes are left out.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Records how the program was called; later calls change nothing.
pub(crate) fn set_program(first_argument: &OsStr) {
    PROGRAM.get_or_init(|| program_of(first_argument));
}

/// Returns the command that runs this program: as it was typed, or `kubectl mco` for a plugin.
///
/// An absolute path is that of a process manager or of a test, and is shown as a name.
fn program_of(first_argument: &OsStr) -> String {
    let path = Path::new(first_argument);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some(plugin) = name.strip_prefix("kubectl-") {
        return format!("kubectl {plugin}");
    }
    if path.is_relative() && path.components().count() > 1 {
        return path.display().to_string();
    }
    "mco".to_owned()
}

/// Returns the command that runs this program.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("mco", String::as_str)
}

/// Returns a text whose commands name the program as it was called.
pub(crate) fn as_called(text: &str) -> Cow<'_, str> {
    match program() {
        "mco" => Cow::Borrowed(text),
        program => Cow::Owned(renamed(text, program)),
    }
}

/// Replaces `mco` where a command starts: after a backquote, a prompt, a pipe or an indentation.
pub(crate) fn renamed(text: &str, program: &str) -> String {
    let mut renamed = text.to_owned();
    for before in ["`", "$ ", "| ", "  "] {
        renamed = renamed.replace(&format!("{before}mco "), &format!("{before}{program} "));
    }
    renamed
}

/// The output of a command.
///
/// Bytes pass through unchanged; only [`Screen::paint`] adds colours.
pub(crate) struct Screen<'w> {
    out: &'w mut dyn Write,
    colour: bool,
}

impl<'w> Screen<'w> {
    /// Returns standard output, with colours on a terminal unless the environment disables them.
    pub(crate) fn stdout(out: &'w mut dyn Write) -> Self {
        Self { out, colour: has_colours() }
    }

    /// Writes a text in a style, if the output shows colours.
    pub(crate) fn paint(&mut self, style: Style, text: impl Display) -> io::Result<()> {
        if self.colour {
            write!(self.out, "{style}{text}{style:#}")
        } else {
            write!(self.out, "{text}")
        }
    }
}

/// Returns true if standard output shows colours: a terminal, unless the environment disables them.
pub(crate) fn has_colours() -> bool {
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => false,
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => true,
    }
}

impl Write for Screen<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a fault: location, message, object and hint.
pub(crate) fn fault(screen: &mut Screen<'_>, fault: &Fault) -> io::Result<()> {
    if let Some(location) = &fault.location {
        screen.paint(BOLD, format_args!("{}: ", visible(&location.to_string())))?;
    }
    match fault.severity {
        Severity::Error => screen.paint(ERROR, "error")?,
        Severity::Warning => screen.paint(WARNING, "warning")?,
    }
    writeln!(screen, ": {} [{}]", visible(&fault.message), fault.code)?;
    match (&fault.object, &fault.path) {
        (Some(object), Some(path)) => writeln!(screen, "  in {object}, {path}")?,
        (Some(object), None) => writeln!(screen, "  in {object}")?,
        (None, _) => {}
    }
    if let Some(hint) = &fault.hint {
        writeln!(screen, "  hint: {}", visible(&as_called(hint)))?;
    }
    Ok(())
}

/// Returns true if the user can be asked: input and messages are on a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question on the terminal; returns false if there is none.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    if !can_ask() {
        return Ok(false);
    }
    let mut stderr = anstream::stderr().lock();
    write!(stderr, "{} [y/N] ", visible(question))?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Prints a note to standard error, unless the user wants none.
pub(crate) fn note(text: &str) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    let mut stderr = anstream::stderr().lock();
    // A closed standard error is ignored: there is no other channel.
    drop(writeln!(stderr, "{NOTE}note{NOTE:#}: {}", visible(&as_called(text))));
}

/// Prints the error of a failed command to standard error.
pub(crate) fn failure(error: &anyhow::Error) {
    let mut stderr = anstream::stderr().lock();
    let faults = error.chain().find_map(|cause| cause.downcast_ref::<FaultsError>());
    if let Some(FaultsError(faults)) = faults {
        // `anstream` removes the colours again where the output shows none.
        let mut screen = Screen { out: &mut stderr, colour: true };
        for found in faults {
            drop(fault(&mut screen, found));
        }
        if error.chain().next().is_some_and(|outer| !outer.is::<FaultsError>()) {
            drop(writeln!(screen, "{ERROR}error{ERROR:#}: {error}"));
        }
        return;
    }
    let text = report::chain(error.as_ref());
    drop(writeln!(stderr, "{ERROR}error{ERROR:#}: {}", visible(&as_called(&text))));
    for hinted in error.chain().filter_map(|cause| cause.downcast_ref::<HintedError>()) {
        drop(writeln!(stderr, "{NOTE}hint{NOTE:#}: {}", visible(&as_called(&hinted.hint))));
    }
}

/// Returns the text with control characters escaped, so that no text controls the terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\t' && c != '\n' {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible("a\u{1b}[31mb\r\u{9b}c\td\n"), "a\\u{1b}[31mb\\r\\u{9b}c\td\n");
    }

    #[test]
    fn hints_name_the_program_as_it_was_called() {
        let rows = [
            ("mco", "mco"),
            ("/usr/bin/mco", "mco"),
            ("target/release/mco", "target/release/mco"),
            ("./mco", "./mco"),
            ("/usr/local/bin/kubectl-mco", "kubectl mco"),
            ("machine-config-daemon", "mco"),
        ];
        for (called, want) in rows {
            assert_eq!(program_of(OsStr::new(called)), want, "{called}");
        }
        assert_eq!(
            renamed("run `mco up`; see mco.yaml\n  mco get mc | mco cat - x", "kubectl mco"),
            "run `kubectl mco up`; see mco.yaml\n  kubectl mco get mc | kubectl mco cat - x"
        );
    }

    #[test]
    fn a_fault_is_printed_with_object_and_hint() {
        let mut fault_ = Fault::error("Code", "it is wrong").hint("fix it");
        fault_.object = Some("MachineConfig/a".to_owned());
        let mut out = Vec::new();
        fault(&mut Screen { out: &mut out, colour: false }, &fault_).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "error: it is wrong [Code]\n  in MachineConfig/a\n  hint: fix it\n");
    }
}
