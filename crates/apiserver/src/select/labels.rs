//! Parses label selectors.

use super::{Requirement, Test};
use crate::admit::name;

/// A token of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// One of `!`, `=`, `==`, `!=`, `>`, `<`, `(`, `)`, `,`.
    Sign(&'static str),
}

impl Token {
    fn shown(token: Option<&Self>) -> &str {
        match token {
            Some(Self::Word(word)) => word,
            Some(Self::Sign(sign)) => sign,
            None => "",
        }
    }
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ">", "<", "(", ")", ","];

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            out.push(Token::Sign(sign));
            rest = rest.get(sign.len()..).unwrap_or("").trim_start();
            continue;
        }
        let is_end = |c: char| c.is_whitespace() || "=!><(),".contains(c);
        let (word, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        out.push(Token::Word(word.to_owned()));
        rest = after.trim_start();
    }
    out
}

/// Parses a selector. Fails with the message of kube-apiserver.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let tokens = tokens(text);
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let mut out = Vec::new();
    if tokens.is_empty() {
        return Ok(out);
    }
    loop {
        match parser.peek() {
            Some(Token::Word(_) | Token::Sign("!")) => {
                let found = parser.requirement();
                out.push(found.map_err(|why| format!("unable to parse requirement: {why}"))?);
            }
            other => {
                let found = Token::shown(other);
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        match parser.next() {
            None => return Ok(out),
            Some(Token::Sign(",")) => {
                if !matches!(parser.peek(), Some(Token::Word(_) | Token::Sign("!"))) {
                    let found = Token::shown(parser.peek());
                    return Err(format!("found '{found}', expected: identifier after ','"));
                }
            }
            found => {
                let found = Token::shown(found);
                return Err(format!("found '{found}', expected: ',' or 'end of string'"));
            }
        }
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let is_absent = self.peek() == Some(&Token::Sign("!"));
        if is_absent {
            self.next();
        }
        let key = match self.next() {
            Some(Token::Word(key)) => key.clone(),
            other => return Err(format!("found '{}', expected: identifier", Token::shown(other))),
        };
        check_key(&key)?;
        if is_absent {
            return Ok(Requirement { key, test: Test::Absent });
        }
        let test = match self.peek() {
            None | Some(Token::Sign(",")) => Test::Exists,
            _ => self.test(&key)?,
        };
        Ok(Requirement { key, test })
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.next();
        match operator {
            Some(Token::Word(word)) if matches!(word.as_str(), "in" | "notin") => {
                let values = self.values(key)?;
                Ok(if word == "in" { Test::In(values) } else { Test::NotIn(values) })
            }
            Some(Token::Sign("=" | "==")) => Ok(Test::In(vec![self.value(key)?])),
            Some(Token::Sign("!=")) => Ok(Test::NotIn(vec![self.value(key)?])),
            Some(Token::Sign(sign @ (">" | "<"))) => {
                let value = self.value(key)?;
                let number = value.parse().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the \
                         value must be an integer"
                    )
                })?;
                Ok(if *sign == ">" { Test::Greater(number) } else { Test::Less(number) })
            }
            other => {
                let found = Token::shown(other);
                Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"))
            }
        }
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.next();
                check_value(key, word, 0)?;
                Ok(word.clone())
            }
            // An empty value ends at the next requirement.
            None | Some(Token::Sign(",")) => Ok(String::new()),
            other => Err(format!("found '{}', expected: identifier", Token::shown(other))),
        }
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        if self.next() != Some(&Token::Sign("(")) {
            let found = Token::shown(self.tokens.get(self.at.saturating_sub(1)));
            return Err(format!("found '{found}' expected: '('"));
        }
        let mut out = Vec::new();
        loop {
            match self.next() {
                Some(Token::Word(word)) => {
                    check_value(key, word, out.len())?;
                    out.push(word.clone());
                    match self.next() {
                        Some(Token::Sign(",")) => {}
                        Some(Token::Sign(")")) => return Ok(out),
                        other => {
                            let found = Token::shown(other);
                            return Err(format!("found '{found}', expected: ',' or ')'"));
                        }
                    }
                }
                Some(Token::Sign(",")) => out.push(String::new()),
                Some(Token::Sign(")")) => {
                    out.push(String::new());
                    return Ok(out);
                }
                other => {
                    let found = Token::shown(other);
                    return Err(format!("found '{found}', expected: ',', ')' or identifier"));
                }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let rules = name::qualified_faults(key);
    if rules.is_empty() {
        return Ok(());
    }
    Err(format!("<nil>: Invalid value: \"{key}\": {}", rules.join("; ")))
}

fn check_value(key: &str, value: &str, at: usize) -> Result<(), String> {
    let rules = name::label_value_faults(value);
    if rules.is_empty() {
        return Ok(());
    }
    Err(format!("values[{at}][{key}]: Invalid value: \"{value}\": {}", rules.join("; ")))
}
