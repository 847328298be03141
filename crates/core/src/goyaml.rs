//! YAML output, byte for byte as the reference writes it.
//!
//! The name of a rendered config is a hash of these bytes, so every detail counts: which scalars
//! stay plain, which are quoted and how, where long ones are wrapped, how names are sorted.
//!
//! Compat: the reference converts its object to JSON, parses that JSON as YAML 1.1 and writes it
//! with go-yaml v2.4.0 (pkg/controller/render/hash.go). `as_read` reproduces the effect of the
//! middle step on text.

mod implicit;
mod scalar;
mod value;

use std::{borrow::Cow, cmp::Ordering};

use mco_ignition::{scan, tree::Tree};

use self::scalar::Style;
pub use self::value::to_text;

/// A receiver of the output bytes.
pub trait Sink {
    /// Accepts the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Text that the reference cannot carry through YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableText {
    /// A character that YAML forbids.
    #[error("control characters are not allowed: U+{0:04X}")]
    ControlCharacter(u32),
    /// A document marker at the start of a line.
    #[error("a line starts with a YAML document marker")]
    DocumentMarker,
}

/// Writes `tree`, which must be an object, as a block of YAML.
pub fn write(tree: &Tree<'_>, sink: &mut impl Sink) -> Result<(), UnreadableText> {
    let mut emitter = Emitter::new(sink);
    emitter.node(tree, Context::Root)?;
    emitter.finish();
    Ok(())
}

/// The parent of a YAML node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    Member,
}

/// Size of the output buffer; hashing is faster in large pieces.
const BUFFER: usize = 8 * 1024;

/// Spaces per level of indentation.
const STEP: usize = 2;

struct Emitter<'s, S> {
    sink: &'s mut S,
    buffer: Vec<u8>,
    /// Number of characters, not bytes, since the last line break.
    column: usize,
    /// Column where lines of the current node start.
    indent: usize,
    /// True if the last character was a space or an equivalent.
    after_space: bool,
    /// True if only indentation has been written on this line.
    only_indent: bool,
}

impl<'s, S: Sink> Emitter<'s, S> {
    fn new(sink: &'s mut S) -> Self {
        let buffer = Vec::with_capacity(BUFFER);
        Self { sink, buffer, column: 0, indent: 0, after_space: true, only_indent: true }
    }

    fn node(&mut self, tree: &Tree<'_>, context: Context) -> Result<(), UnreadableText> {
        match tree {
            Tree::Null => self.word("null"),
            Tree::Bool(true) => self.word("true"),
            Tree::Bool(false) => self.word("false"),
            Tree::Int(number) => self.word(&number.to_string()),
            Tree::Text(text) => self.text(&as_read(text)?),
            Tree::List(items) if items.is_empty() => self.word("[]"),
            Tree::List(items) => self.list(items, context)?,
            Tree::Object(members) if members.is_empty() => self.word("{}"),
            Tree::Object(members) => self.object(members, context)?,
        }
        Ok(())
    }

    fn list(&mut self, items: &[Tree<'_>], context: Context) -> Result<(), UnreadableText> {
        let outer = self.indent;
        // A list below a name is not indented further.
        if context == Context::Item {
            self.indent += STEP;
        }
        for item in items {
            self.line();
            self.space();
            self.ascii(b"-");
            self.after_space = false;
            self.node(item, Context::Item)?;
        }
        self.indent = outer;
        Ok(())
    }

    fn object(
        &mut self,
        members: &[(&'static str, Tree<'_>)],
        context: Context,
    ) -> Result<(), UnreadableText> {
        let outer = self.indent;
        if context != Context::Root {
            self.indent += STEP;
        }
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by(|(left, _), (right, _)| natural(left, right));
        for (name, value) in sorted {
            self.line();
            self.ascii(name.as_bytes());
            self.ascii(b":");
            self.after_space = false;
            self.only_indent = false;
            self.node(value, Context::Member)?;
        }
        self.indent = outer;
        Ok(())
    }

    fn word(&mut self, word: &str) {
        self.space();
        self.ascii(word.as_bytes());
        self.after_space = false;
        self.only_indent = false;
    }

    fn text(&mut self, text: &str) {
        self.indent += STEP;
        match scalar::style(text) {
            Style::Plain => self.plain(text),
            Style::SingleQuoted => self.single_quoted(text),
            Style::DoubleQuoted => self.double_quoted(text),
            Style::Literal => self.literal(text),
        }
        self.indent -= STEP;
    }

    /// Starts a line at the current indentation, unless one has just been started.
    fn line(&mut self) {
        let fresh = self.only_indent
            && (self.column < self.indent || (self.column == self.indent && self.after_space));
        if !fresh {
            self.line_break();
        }
        self.spaces(self.indent.saturating_sub(self.column));
        self.after_space = true;
        self.only_indent = true;
    }

    fn spaces(&mut self, mut count: usize) {
        const SPACES: &[u8] = b"                ";
        while count > 0 {
            let some = SPACES.get(..count).unwrap_or(SPACES);
            self.ascii(some);
            count -= some.len();
        }
    }

    fn space(&mut self) {
        if !self.after_space {
            self.ascii(b" ");
        }
    }

    fn line_break(&mut self) {
        self.buffer.push(b'\n');
        self.column = 0;
    }

    /// Writes bytes that take one column each.
    fn ascii(&mut self, bytes: &[u8]) {
        self.raw(bytes);
        self.column += bytes.len();
    }

    /// Writes text without line breaks.
    fn run(&mut self, text: &str) {
        self.raw(text.as_bytes());
        self.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    fn raw(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush();
        }
        if bytes.len() > BUFFER {
            self.sink.put(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        self.sink.put(&self.buffer);
        self.buffer.clear();
    }

    fn finish(&mut self) {
        self.indent = 0;
        self.line();
        self.flush();
    }
}

/// Compares names: letters after everything else, runs of digits by their number.
pub(crate) fn natural(left: &str, right: &str) -> Ordering {
    // Fast path: nearly all names differ first in a letter.
    let first = left.bytes().zip(right.bytes()).find(|(a, b)| a != b);
    if let Some((a, b)) = first.filter(|(a, b)| a.is_ascii_alphabetic() && b.is_ascii_alphabetic())
    {
        return a.cmp(&b);
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(a, b)| a != b) else {
        return left.len().cmp(&right.len());
    };
    let here = |text: &[char]| text.get(at).copied().unwrap_or_default();
    let (a, b) = (here(&left), here(&right));
    match (a.is_alphabetic(), b.is_alphabetic()) {
        (true, true) => return a.cmp(&b),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero after another digit belongs to that number.
    let digits_before = left.iter().take(at).rev().take_while(|c| c.is_ascii_digit());
    let within = (a == '0' || b == '0') && digits_before.into_iter().any(|c| *c != '0');
    let number = |text: &[char]| {
        let digits = text.iter().skip(at).map_while(|c| c.to_digit(10));
        digits.fold((i64::from(within), 0), |(sum, count), digit| {
            (sum.wrapping_mul(10).wrapping_add(i64::from(digit)), count + 1)
        })
    };
    let ((an, ac), (bn, bc)) = (number(&left), number(&right));
    an.cmp(&bn).then(ac.cmp(&bc)).then(a.cmp(&b))
}

/// Returns `text` as the reference sees it after parsing its own JSON as YAML.
///
/// Compat: JSON leaves U+0085 as it is, and YAML 1.1 takes it for a line break, which a quoted
/// scalar folds into a space. Characters that YAML forbids make the reference fail.
fn as_read(text: &str) -> Result<Cow<'_, str>, UnreadableText> {
    if scan::find_special(text.as_bytes(), |byte| byte < 0x7f) == text.len() {
        return Ok(Cow::Borrowed(text));
    }
    let forbidden =
        |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if let Some(found) = text.chars().find(|c| forbidden(*c)) {
        return Err(UnreadableText::ControlCharacter(u32::from(found)));
    }
    if !text.contains('\u{85}') {
        return Ok(Cow::Borrowed(text));
    }
    fold_lines(text).map(Cow::Owned)
}

/// Folds the lines that U+0085 separates: one break becomes a space, n breaks become n-1.
fn fold_lines(text: &str) -> Result<String, UnreadableText> {
    let mut out = String::with_capacity(text.len());
    let mut breaks = 0_usize;
    let lines: Vec<&str> = text.split('\u{85}').collect();
    let last = lines.len() - 1;
    for (number, line) in lines.into_iter().enumerate() {
        if number > 0 {
            breaks += 1;
            let behind = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
            let ended = |rest: &str| rest.starts_with(' ') || (rest.is_empty() && number != last);
            if behind.is_some_and(ended) {
                return Err(UnreadableText::DocumentMarker);
            }
        }
        let line = if number == 0 { line } else { line.trim_start_matches(' ') };
        let line = if number == last { line } else { line.trim_end_matches(' ') };
        if line.is_empty() && number != last {
            continue;
        }
        match breaks {
            0 => {}
            1 => out.push(' '),
            more => out.extend(std::iter::repeat_n('\n', more - 1)),
        }
        breaks = 0;
        out.push_str(line);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
