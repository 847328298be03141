//! Limits of the texts of expressions.
//!
//! The parser, the passes over its tree and the evaluation call themselves for each level of an
//! expression, which its text bounds: each level has a bracket or an operator of its own.

/// Maximum number of characters of an expression, the same as kube-apiserver's.
const MAX_LENGTH: usize = 100_000;

/// Maximum depth of brackets, and maximum number of signs in a row.
const MAX_DEPTH: usize = 24;

/// Maximum number of operators and brackets.
const MAX_OPERATORS: usize = 600;

/// Returns the size of an expression. Fails if it would exhaust the stack, or if a string is malformed:
/// what is inside of it could not be told from what is not.
pub(super) fn check(text: &str) -> Result<Size, String> {
    let length = text.chars().count();
    if length > MAX_LENGTH {
        return Err(format!(
            "expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
        ));
    }
    let mut counts = Counts::default();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => quoted(rest, false).ok_or_else(malformed)?,
            '`' => rest.get(1..).and_then(|it| it.find('`')).ok_or_else(malformed)? + 2,
            c if is_word(c) => word(rest, &mut counts)?,
            c => {
                counts.add(c);
                c.len_utf8()
            }
        };
        if counts.exceed() {
            return Err(format!(
                "the expression is too complex: at most {MAX_DEPTH} nested brackets and \
                 {MAX_OPERATORS} operators are supported"
            ));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(Size { operators: counts.operators, depth: counts.deepest })
}

fn malformed() -> String {
    "Syntax error: a string or an identifier in quotes is malformed".to_owned()
}

/// The size of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Number of operators and brackets.
    pub(super) operators: usize,
    /// Depth of the brackets.
    pub(super) depth: usize,
}

#[derive(Debug, Default)]
struct Counts {
    depth: usize,
    deepest: usize,
    signs: usize,
    operators: usize,
}

impl Counts {
    fn add(&mut self, c: char) {
        if c.is_whitespace() {
            return;
        }
        self.signs = if matches!(c, '!' | '-') { self.signs + 1 } else { 0 };
        match c {
            '(' | '[' | '{' => {
                self.depth += 1;
                self.deepest = self.deepest.max(self.depth);
                self.operators += 1;
            }
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => self.operators += 1,
        }
    }

    fn exceed(&self) -> bool {
        self.depth > MAX_DEPTH || self.signs > MAX_DEPTH || self.operators > MAX_OPERATORS
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the length of the word or number at the start, and of the string that it is a prefix of.
fn word(text: &str, counts: &mut Counts) -> Result<usize, String> {
    let length = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    counts.signs = 0;
    counts.operators += usize::from(word == "in");
    if !rest.starts_with(['\'', '"']) {
        return Ok(length);
    }
    // A number next to a string is a syntax error, and its end could be a prefix.
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(malformed());
    }
    let is_prefix = matches!(word, "r" | "R" | "b" | "B" | "br" | "bR" | "Br" | "BR");
    let is_raw = is_prefix && word.ends_with(['r', 'R']);
    Ok(length + quoted(rest, is_raw).ok_or_else(malformed)?)
}

/// Returns the length of the string at the start, with its quotes.
fn quoted(text: &str, is_raw: bool) -> Option<usize> {
    let quote = text.get(..1)?;
    let long = quote.repeat(3);
    let end = if text.starts_with(&long) { long.as_str() } else { quote };
    let mut at = end.len();
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with(end) {
            return Some(at + end.len());
        }
        at += match rest.chars().next()? {
            '\\' if !is_raw => escape(rest)?,
            '\n' | '\r' if end.len() == 1 => return None,
            c => c.len_utf8(),
        };
    }
}

/// Returns the length of the escape sequence at the start.
fn escape(text: &str) -> Option<usize> {
    let digits = |count: usize, radix: u32| {
        let digits = text.get(2..2 + count)?;
        digits.chars().all(|c| c.is_digit(radix)).then_some(2 + count)
    };
    match text.chars().nth(1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
        'x' | 'X' => digits(2, 16),
        'u' => digits(4, 16),
        'U' => digits(8, 16),
        '0'..='3' => digits(2, 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{FEW, LONG, NESTED, compile},
        *,
    };

    #[test]
    fn nesting_is_found_behind_comments_and_all_strings() {
        let nested = format!("{}1{}", "[".repeat(25), "]".repeat(25));
        for before in [
            "// a ' quote\n",
            "r'\\' + ",
            "R\"\\\" + ",
            "br'\\' + ",
            "'''a ' b''' + ",
            "\"\"\"a \" b\"\"\" + ",
            "r'''\\''' + ",
            "'\\'' + ",
            "'\\x27 \\047' + ",
            "`a//b` + ",
            "1 / 2 + ",
            "x in'a' || ",
        ] {
            assert!(check(&format!("{before}{nested}")).is_err(), "{before}");
            assert!(check(&format!("{before}1")).is_ok(), "{before}");
        }
        for text in ["'", "'a\nb'", "'\\q'", "'''a''", "`a", "1r'a'", "r'a"] {
            assert!(check(text).is_err(), "{text}");
        }
        assert_eq!(check(&format!("'{nested}' + r'{nested}' // {nested}")).unwrap().operators, 1);
    }

    /// Compiles and evaluates an expression with half of the stack that the server has.
    fn run(text: String) {
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        let run = move || {
            let Ok(program) = compile(&text) else { return };
            let context = super::super::empty_context();
            let _ = super::super::Budget::of_object().run(&program, &context);
        };
        thread.spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn the_largest_expressions_do_not_exhaust_the_stack() {
        for (first, repeated) in [
            ("a", "[0]"),
            ("a", ".b"),
            ("a", ".f()"),
            ("1", " in 1"),
            ("1", "+1"),
            ("1", "*1"),
            ("1", "<1"),
            ("a", "&&a"),
            ("a", "||a"),
            ("a", "?a:a"),
            ("a", ".b[0]"),
            ("a", ".map(b,b)"),
            ("", "!"),
            ("", "[1],"),
        ] {
            for (length, operators) in [(LONG, FEW), (MAX_LENGTH, MAX_OPERATORS)] {
                let fits = |count: &usize| {
                    let text = format!("{first}{}", repeated.repeat(*count));
                    text.len() <= length
                        && check(&text).is_ok_and(|size| size.operators <= operators)
                };
                let count = (1..=MAX_LENGTH).take_while(fits).last().unwrap_or(1);
                run(format!("{first}{}", repeated.repeat(count)));
            }
            let text = format!("{first}{}", repeated.repeat(MAX_LENGTH / repeated.len()));
            assert!(compile(&text).is_err(), "{repeated}");
        }
        for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("f(", ")"), ("a[", "]")] {
            for depth in [NESTED, MAX_DEPTH] {
                run(format!("{}1{}", open.repeat(depth), close.repeat(depth)));
                run(format!("{}1", open.repeat(depth)));
            }
        }
    }

    #[test]
    fn a_syntax_error_behind_many_characters_is_reported() {
        let refused = compile(&format!("'{}' +", "a".repeat(70_000))).map(drop);
        assert!(refused.is_err_and(|error| error.len() < 10_000));
        let refused = compile(&format!("{}+", " ".repeat(70_000))).map(drop);
        assert!(refused.is_err_and(|error| error.starts_with("ERROR: <input>:1:70")));
        assert!(compile(&format!("'{}'", "a".repeat(MAX_LENGTH))).is_err());
    }
}
