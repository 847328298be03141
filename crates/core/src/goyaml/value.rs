//! Output of JSON values, whose names are known only at run time.

use serde_json::{Number, Value};

use super::{Context, Emitter, STEP, Sink, UnreadableText, as_read, natural};

/// Returns a value as a block of YAML.
pub fn to_text(value: &Value) -> Result<String, UnreadableText> {
    let mut sink = Vec::new();
    let mut emitter = Emitter::new(&mut sink);
    emitter.value(value, Context::Root)?;
    emitter.finish();
    Ok(String::from_utf8_lossy(&sink).into_owned())
}

impl<S: Sink> Emitter<'_, S> {
    fn value(&mut self, value: &Value, context: Context) -> Result<(), UnreadableText> {
        match value {
            Value::Null => self.word("null"),
            Value::Bool(true) => self.word("true"),
            Value::Bool(false) => self.word("false"),
            Value::Number(number) => self.word(&number_text(number)),
            Value::String(text) => self.text(&as_read(text)?),
            Value::Array(items) if items.is_empty() => self.word("[]"),
            Value::Array(items) => {
                let outer = self.indent;
                if context == Context::Item {
                    self.indent += STEP;
                }
                for item in items {
                    self.line();
                    self.space();
                    self.ascii(b"-");
                    self.after_space = false;
                    self.value(item, Context::Item)?;
                }
                self.indent = outer;
            }
            Value::Object(members) if members.is_empty() => self.word("{}"),
            Value::Object(members) => {
                let outer = self.indent;
                if context != Context::Root {
                    self.indent += STEP;
                }
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_by(|(left, _), (right, _)| natural(left, right));
                for (name, value) in sorted {
                    self.line();
                    self.text(&as_read(name)?);
                    self.ascii(b":");
                    self.after_space = false;
                    self.only_indent = false;
                    self.value(value, Context::Member)?;
                }
                self.indent = outer;
            }
        }
        Ok(())
    }
}

/// Digits before the decimal point beyond which Go switches to an exponent.
const WHOLE_DIGITS: i32 = 21;

/// Returns a number as it looks after Go wrote it as JSON and go-yaml read and wrote it.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let is_whole = float.fract() == 0.0 && exponent < WHOLE_DIGITS;
    if is_whole || (-4..6).contains(&exponent) {
        return float.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
