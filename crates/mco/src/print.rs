//! What a person sees: faults, notes and errors, in colour where the terminal wants it.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use mco_cluster::report;

use crate::fault::{Advice, Fault, Refused, Severity};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const RED: Style = AnsiColor::Red.on_default();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Where a command writes its result, and whether that place shows colours.
///
/// Bytes pass through unchanged; only [`Screen::paint`] adds colour.
pub(crate) struct Screen<'w> {
    out: &'w mut dyn Write,
    colour: bool,
}

impl<'w> Screen<'w> {
    /// Standard output: colours on a terminal, unless the environment says otherwise.
    pub(crate) fn stdout(out: &'w mut dyn Write) -> Self {
        let colour = match AutoStream::choice(&io::stdout()) {
            ColorChoice::Never => false,
            ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => true,
        };
        Self { out, colour }
    }

    /// A text in a style, where styles show.
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

/// Writes one fault: where, what, and what to do.
pub(crate) fn fault(screen: &mut Screen<'_>, fault: &Fault) -> io::Result<()> {
    if let Some(place) = &fault.place {
        screen.paint(BOLD, format_args!("{}: ", visible(&place.to_string())))?;
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

/// Tells about something that is neither a result nor a fault.
pub(crate) fn note(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // Nobody is left to be told that standard error is closed.
    drop(writeln!(stderr, "{NOTE}note{NOTE:#}: {}", visible(text)));
}

/// Tells why the command failed.
pub(crate) fn failure(error: &anyhow::Error) {
    let mut stderr = anstream::stderr().lock();
    let faults = error.chain().find_map(|cause| cause.downcast_ref::<Refused>());
    if let Some(Refused(faults)) = faults {
        // `anstream` takes the colours away again where they do not show.
        let mut screen = Screen { out: &mut stderr, colour: true };
        for found in faults {
            drop(fault(&mut screen, found));
        }
        if error.chain().next().is_some_and(|outer| !outer.is::<Refused>()) {
            drop(writeln!(screen, "{ERROR}error{ERROR:#}: {error}"));
        }
        return;
    }
    let text = report::chain(error.as_ref());
    drop(writeln!(stderr, "{ERROR}error{ERROR:#}: {}", visible(&text)));
    for advice in error.chain().filter_map(|cause| cause.downcast_ref::<Advice>()) {
        drop(writeln!(stderr, "{NOTE}hint{NOTE:#}: {}", visible(&advice.hint)));
    }
}

/// A text without anything that would steer the terminal.
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
    fn nothing_in_a_text_steers_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mb\r\u{9b}c\td\n"), "a\\u{1b}[31mb\\r\\u{9b}c\td\n");
    }

    #[test]
    fn a_fault_says_where_what_and_what_to_do() {
        let mut fault_ = Fault::error("Code", "it is wrong").hint("mend it");
        fault_.object = Some("MachineConfig/a".to_owned());
        let mut out = Vec::new();
        fault(&mut Screen { out: &mut out, colour: false }, &fault_).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "error: it is wrong [Code]\n  in MachineConfig/a\n  hint: mend it\n");
    }
}
