//! JSON parser, as strict as Go's decoder.
//!
//! Only white space is allowed before and after the value, control characters are not allowed in
//! strings, numbers must follow the grammar, and the depth is limited to [`MAX_DEPTH`].

use std::borrow::Cow;

use super::{Member, Node, SyntaxError, Value, text};

/// Maximum depth of the input.
const MAX_DEPTH: usize = 10_000;

/// Depth up to which values are kept; deeper values are only checked. No Ignition object is that
/// deep, so deeper values would be ignored anyway, and a shallow tree can be traversed and dropped
/// without overflowing the stack.
const KEPT_DEPTH: usize = 64;

/// Parses one JSON value.
pub(crate) fn parse(raw: &[u8]) -> Result<Node<'_>, SyntaxError> {
    let mut parser = Parser { raw, text: str::from_utf8(raw).ok(), at: 0 };
    parser.skip_space();
    let node = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(node),
        Some(_) => parser.unexpected("after top-level value"),
    }
}

struct Parser<'a> {
    raw: &'a [u8],
    /// The same bytes, if all of them are valid UTF-8.
    text: Option<&'a str>,
    at: usize,
}

type Parsed<T> = Result<T, SyntaxError>;

/// State of a list or object after a bracket or an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerState {
    Open,
    Closed,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.raw.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.raw.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.at += self.rest().iter().take_while(|byte| is_space(byte)).count();
    }

    /// Returns the syntax error for the current byte; `context` describes the position in the
    /// grammar.
    fn unexpected<T>(&self, context: &str) -> Parsed<T> {
        let message = match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {context}", quoted(byte)),
        };
        Err(SyntaxError { at: self.at, message })
    }

    /// Parses the value that starts at the current byte.
    fn value(&mut self, depth: usize) -> Parsed<Node<'a>> {
        let at = self.at;
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'{') if depth < KEPT_DEPTH => self.object(depth + 1)?,
            Some(b'[') if depth < KEPT_DEPTH => self.array(depth + 1)?,
            Some(open @ (b'{' | b'[')) => {
                self.skip_nested(depth)?;
                if open == b'{' { Value::Object(Vec::new()) } else { Value::Array(Vec::new()) }
            }
            Some(_) | None => self.scalar()?,
        };
        Ok(Node { at, value })
    }

    /// Parses a literal or a number.
    fn scalar(&mut self) -> Parsed<Value<'a>> {
        match self.peek() {
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(_) | None => self.unexpected("looking for beginning of value"),
        }
    }

    fn array(&mut self, depth: usize) -> Parsed<Value<'a>> {
        let mut nodes = Vec::new();
        if self.open(b']') == ContainerState::Closed {
            return Ok(Value::Array(nodes));
        }
        loop {
            nodes.push(self.value(depth)?);
            if self.after_element()? == ContainerState::Closed {
                return Ok(Value::Array(nodes));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Value<'a>> {
        let mut members = Vec::new();
        if self.open(b'}') == ContainerState::Closed {
            return Ok(Value::Object(members));
        }
        loop {
            let at = self.at;
            let key = self.key()?;
            members.push(Member { at, key, node: self.value(depth)? });
            if self.after_member()? == ContainerState::Closed {
                return Ok(Value::Object(members));
            }
        }
    }

    /// Skips an opening bracket, and also `close` if it follows immediately.
    fn open(&mut self, close: u8) -> ContainerState {
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return ContainerState::Closed;
        }
        ContainerState::Open
    }

    fn after_element(&mut self) -> Parsed<ContainerState> {
        self.after(b']', "after array element")
    }

    fn after_member(&mut self) -> Parsed<ContainerState> {
        self.after(b'}', "after object key:value pair")
    }

    fn after(&mut self, close: u8, context: &str) -> Parsed<ContainerState> {
        self.skip_space();
        let state = match self.peek() {
            Some(b',') => ContainerState::Open,
            Some(byte) if byte == close => ContainerState::Closed,
            Some(_) | None => return self.unexpected(context),
        };
        self.at += 1;
        if state == ContainerState::Open {
            self.skip_space();
        }
        Ok(state)
    }

    /// Parses the name and colon of a member, and stops before its value.
    fn key(&mut self) -> Parsed<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return self.unexpected("looking for beginning of object key string");
        }
        let key = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.unexpected("after object key");
        }
        self.at += 1;
        self.skip_space();
        Ok(key)
    }

    /// Checks a list or object without keeping it, and without recursion.
    fn skip_nested(&mut self, depth: usize) -> Parsed<()> {
        let mut closers: Vec<u8> = Vec::new();
        loop {
            let opened = match self.peek() {
                Some(b'{') => Some(b'}'),
                Some(b'[') => Some(b']'),
                Some(_) | None => None,
            };
            if let Some(close) = opened {
                if depth + closers.len() >= MAX_DEPTH {
                    return self.unexpected("exceeded max depth");
                }
                if self.open(close) == ContainerState::Open {
                    closers.push(close);
                    self.skip_key(close)?;
                    continue;
                }
            } else if self.peek() == Some(b'"') {
                self.string()?;
            } else {
                self.scalar()?;
            }
            loop {
                let Some(&close) = closers.last() else { return Ok(()) };
                let state = if close == b'}' { self.after_member() } else { self.after_element() };
                if state? == ContainerState::Open {
                    self.skip_key(close)?;
                    break;
                }
                closers.pop();
            }
        }
    }

    fn skip_key(&mut self, close: u8) -> Parsed<()> {
        if close == b'}' { self.key().map(drop) } else { Ok(()) }
    }

    /// Parses a string whose opening quote is the current byte.
    fn string(&mut self) -> Parsed<Cow<'a, str>> {
        self.at += 1;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += text::plain_length(self.rest());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) | None => return self.unexpected("in string literal"),
            }
        }
        let inside = start..self.at;
        self.at += 1;
        if let (false, Some(text)) = (has_escapes, self.text) {
            return Ok(Cow::Borrowed(text.get(inside).unwrap_or_default()));
        }
        let bytes = self.raw.get(inside).unwrap_or_default();
        Ok(if has_escapes {
            Cow::Owned(text::decode_escaped(bytes))
        } else {
            text::decode_plain(bytes)
        })
    }

    /// Checks an escape whose backslash was already read.
    fn escape(&mut self) -> Parsed<()> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return self.unexpected("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
            }
            Some(_) | None => return self.unexpected("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<&'a str> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let digits = self.raw.get(start..self.at).unwrap_or_default();
        Ok(str::from_utf8(digits).unwrap_or_default())
    }

    /// Skips at least one digit.
    fn digits(&mut self, context: &str) -> Parsed<()> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.unexpected(context);
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Value<'a>) -> Parsed<Value<'a>> {
        for &expected in word.as_bytes() {
            if self.peek() != Some(expected) {
                let expected = char::from(expected);
                return self.unexpected(&format!("in literal {word} (expecting '{expected}')"));
            }
            self.at += 1;
        }
        Ok(value)
    }
}

/// Quotes a byte as Go does in syntax errors.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
