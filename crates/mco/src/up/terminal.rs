//! The terminal that a status is written to: its size and its colours.

use std::io;

use super::view;
use crate::{
    print::{self, as_called, fit, visible},
    remote::table,
};

/// The size of a terminal, `None` if unknown, and whether it shows colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(super) rows: Option<usize>,
    pub(super) columns: Option<usize>,
    /// Whether the terminal shows colours.
    pub(super) colour: bool,
}

impl Terminal {
    /// Returns the terminal that standard output is.
    pub(crate) fn of_stdout() -> Self {
        let colour = print::has_colours();
        let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else {
            return Self { colour, ..Self::default() };
        };
        let known = |size: u16| (size > 0).then_some(usize::from(size));
        Self { rows: known(size.ws_row), columns: known(size.ws_col), colour }
    }

    /// Returns a sentence as it is shown: with the name of the program, and broken between words.
    pub(crate) fn sentence(self, text: &str) -> String {
        let text = visible(&as_called(text));
        match self.columns {
            Some(columns) => fit::paragraph(&text, columns),
            None => text,
        }
    }

    /// Returns a table with the columns that fit.
    pub(crate) fn table(self, lines: Vec<Vec<String>>, dispensable: &[&str]) -> Vec<Vec<String>> {
        match self.columns {
            Some(columns) => fit::table(&lines, columns, dispensable),
            None => lines,
        }
    }

    /// Writes a table with the columns that fit, in colours if the terminal shows them.
    pub(super) fn write_table(
        self,
        lines: Vec<Vec<String>>,
        dispensable: &[&str],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let lines = self.table(lines, dispensable);
        if self.colour {
            table::write_painted(out, &lines, view::style)
        } else {
            table::write(out, &lines)
        }
    }
}
