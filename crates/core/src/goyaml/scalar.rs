//! Choice of the style of a scalar, and output in each style.
//!
//! Compat: go-yaml v2 emitterc.go. Spaces where a line may wrap are written as line breaks once the
//! line is longer than 80 characters; text with line breaks of its own is a literal block if YAML
//! can show it as one, and otherwise double quoted.

use mco_ignition::scan;

use super::{Emitter, Sink, implicit};

/// Column after which lines may wrap.
const MAX_LINE: usize = 80;

/// A style of writing text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Returns the style for `text`.
pub(super) fn style(text: &str) -> Style {
    let shape = Shape::of(text);
    if text.contains('\n') {
        return if shape.literal_allowed() { Style::Literal } else { Style::DoubleQuoted };
    }
    if !implicit::is_text(text) {
        return Style::DoubleQuoted;
    }
    if shape.plain_allowed() {
        Style::Plain
    } else if shape.single_quotes_allowed() {
        Style::SingleQuoted
    } else {
        Style::DoubleQuoted
    }
}

/// Properties of a text that decide its style.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent findings of one scan")]
struct Shape {
    indicator: bool,
    line_break: bool,
    unprintable: bool,
    space_first: bool,
    space_last: bool,
    break_at_edge: bool,
    break_then_space: bool,
    space_then_break: bool,
}

/// The class of the previous character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Start,
    Space,
    Blank,
    Break,
    Other,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self { indicator: starts_with_indicator(text), ..Self::default() };
        let bytes = text.as_bytes();
        let mut before = Before::Start;
        let mut at = 0;
        loop {
            let ordinary = scan::find_special(bytes.get(at..).unwrap_or_default(), is_ordinary);
            if ordinary > 0 {
                before = Before::Other;
                at += ordinary;
            }
            let rest = text.get(at..).unwrap_or_default();
            let Some(c) = rest.chars().next() else { break };
            let next = at + c.len_utf8();
            shape.record(c, before, at == 0, bytes.get(next).copied());
            before = match c {
                ' ' => Before::Space,
                '\t' | '\0' => Before::Blank,
                _ if is_break(c) => Before::Break,
                _ => Before::Other,
            };
            at = next;
        }
        shape
    }

    /// Records the properties of one character that is not ordinary.
    fn record(&mut self, c: char, before: Before, first: bool, next: Option<u8>) {
        let last = next.is_none();
        match c {
            ' ' => {
                self.space_first |= first;
                self.space_last |= last;
                self.break_then_space |= before == Before::Break;
            }
            ':' if matches!(next, None | Some(b' ' | b'\t')) => self.indicator = true,
            '#' if before != Before::Other => self.indicator = true,
            _ => {}
        }
        self.unprintable |= !is_printable(c);
        if is_break(c) {
            self.line_break = true;
            self.break_at_edge |= first || last;
            self.space_then_break |= before == Before::Space;
        }
    }

    fn plain_allowed(&self) -> bool {
        let edges = self.space_first || self.space_last || self.break_at_edge;
        !self.indicator && !self.line_break && !edges && self.single_quotes_allowed()
    }

    fn single_quotes_allowed(&self) -> bool {
        !self.break_then_space && !self.space_then_break && !self.unprintable
    }

    fn literal_allowed(&self) -> bool {
        !self.space_last && !self.space_then_break && !self.unprintable
    }
}

fn starts_with_indicator(text: &str) -> bool {
    let blank_follows = || matches!(text.as_bytes().get(1), None | Some(b' ' | b'\t'));
    match text.as_bytes().first() {
        Some(
            b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`',
        ) => true,
        Some(b'?' | b':') => blank_follows(),
        Some(b'-') => blank_follows() || text.starts_with("---"),
        Some(b'.') => text.starts_with("..."),
        _ => false,
    }
}

/// Returns true if `byte` is printable ASCII that never affects the style.
fn is_ordinary(byte: u8) -> bool {
    matches!(byte, b'!' | b'"' | b'$'..=b'9' | b';'..=b'~')
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Compat: characters above U+FFFF count as unprintable, and so does the byte order mark.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

impl<S: Sink> Emitter<'_, S> {
    pub(super) fn plain(&mut self, text: &str) {
        self.space();
        let mut rest = text;
        // Consecutive spaces stay together: only a single space may become a line break.
        while let Some((run, behind)) = rest.split_once(' ') {
            self.run(run);
            let more = behind.len() - behind.trim_start_matches(' ').len();
            if more == 0 && self.column > MAX_LINE {
                self.line();
            } else {
                self.spaces(more + 1);
            }
            rest = behind.get(more..).unwrap_or_default();
        }
        self.run(rest);
        self.after_space = false;
        self.only_indent = false;
    }

    pub(super) fn single_quoted(&mut self, text: &str) {
        self.space();
        self.ascii(b"'");
        self.only_indent = false;
        let (mut spaces, mut breaks) = (false, false);
        for (at, c) in text.char_indices() {
            let next = text.as_bytes().get(at + 1).copied();
            if c == ' ' {
                let inside = at > 0 && next.is_some_and(|next| next != b' ');
                if !spaces && inside && self.column > MAX_LINE {
                    self.line();
                } else {
                    self.ascii(b" ");
                }
                spaces = true;
            } else if is_break(c) {
                self.char(c);
                self.column = 0;
                self.only_indent = true;
                breaks = true;
            } else {
                if breaks {
                    self.line();
                }
                if c == '\'' {
                    self.ascii(b"'");
                }
                self.char(c);
                self.only_indent = false;
                (spaces, breaks) = (false, false);
            }
        }
        self.ascii(b"'");
        self.after_space = false;
        self.only_indent = false;
    }

    pub(super) fn double_quoted(&mut self, text: &str) {
        self.space();
        self.ascii(b"\"");
        self.after_space = false;
        self.only_indent = false;
        // Compat: a leading byte order mark makes every character an escaped one.
        let marked = text.starts_with('\u{feff}');
        let mut spaces = false;
        for (at, c) in text.char_indices() {
            if marked || !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                self.escaped(c);
                spaces = false;
            } else if c == ' ' {
                let next = text.as_bytes().get(at + 1);
                if !spaces && self.column > MAX_LINE && at > 0 && next.is_some() {
                    self.line();
                    if next == Some(&b' ') {
                        self.ascii(b"\\");
                    }
                } else {
                    self.ascii(b" ");
                }
                spaces = true;
            } else {
                self.char(c);
                spaces = false;
            }
        }
        self.ascii(b"\"");
        self.after_space = false;
        self.only_indent = false;
    }

    pub(super) fn literal(&mut self, text: &str) {
        self.space();
        self.ascii(b"|");
        if text.starts_with(|c: char| c == ' ' || is_break(c)) {
            self.ascii(b"2");
        }
        let mut backward = text.chars().rev();
        match (backward.next().is_some_and(is_break), backward.next()) {
            (false, _) => self.ascii(b"-"),
            (true, None) => self.ascii(b"+"),
            (true, Some(c)) if is_break(c) => self.ascii(b"+"),
            (true, Some(_)) => {}
        }
        self.line_break();
        self.only_indent = true;
        self.after_space = true;
        for line in text.split_inclusive(is_break) {
            let body = line.trim_end_matches(is_break);
            if !body.is_empty() {
                self.line();
                self.run(body);
                self.only_indent = false;
            }
            if let Some(end) = line.get(body.len()..).filter(|end| !end.is_empty()) {
                self.raw(end.as_bytes());
                self.column = 0;
                self.only_indent = true;
            }
        }
    }

    fn char(&mut self, c: char) {
        self.raw(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn escaped(&mut self, c: char) {
        let short = match c {
            '\0' => "\\0",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            '\u{1b}' => "\\e",
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{85}' => "\\N",
            '\u{a0}' => "\\_",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            _ => "",
        };
        if short.is_empty() {
            let code = u32::from(c);
            let long = match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
            self.ascii(long.as_bytes());
        } else {
            self.ascii(short.as_bytes());
        }
    }
}
