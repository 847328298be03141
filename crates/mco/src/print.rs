//! Output for the user: faults, notes and errors, with colours on a terminal.

use std::{
    fmt::Display,
    io::{self, Write},
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
        let colour = match AutoStream::choice(&io::stdout()) {
            ColorChoice::Never => false,
            ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => true,
        };
        Self { out, colour }
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
        writeln!(screen, "  hint: {}", visible(hint))?;
    }
    Ok(())
}

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // A closed standard error is ignored: there is no other channel.
    drop(writeln!(stderr, "{NOTE}note{NOTE:#}: {}", visible(text)));
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
    drop(writeln!(stderr, "{ERROR}error{ERROR:#}: {}", visible(&text)));
    for hinted in error.chain().filter_map(|cause| cause.downcast_ref::<HintedError>()) {
        drop(writeln!(stderr, "{NOTE}hint{NOTE:#}: {}", visible(&hinted.hint)));
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
    fn a_fault_is_printed_with_object_and_hint() {
        let mut fault_ = Fault::error("Code", "it is wrong").hint("fix it");
        fault_.object = Some("MachineConfig/a".to_owned());
        let mut out = Vec::new();
        fault(&mut Screen { out: &mut out, colour: false }, &fault_).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "error: it is wrong [Code]\n  in MachineConfig/a\n  hint: fix it\n");
    }
}
