//! Reports: a note becomes an event, a metric and a log line.
//!
//! Also formats an error with its causes as one line.

mod event;
mod note;

use std::error::Error;

pub use self::note::{Level, Note, NoteCount, Reporter};
use crate::error::{self, DecodeError};

/// Returns the error and its causes, joined with `: `.
///
/// A cause that its parent's text already ends with is dropped, because many libraries repeat
/// theirs. Values that could not be decoded are left out, because they may be secret.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    let quotes: Vec<(String, String)> = causes()
        .filter_map(|error| error.downcast_ref::<serde_json::Error>())
        .map(|error| (error.to_string(), DecodeError::from(error).to_string()))
        .collect();
    let mut text = String::new();
    for error in causes() {
        let line = match error.downcast_ref::<kube::Error>() {
            Some(error) => error::text(error),
            None => error.to_string(),
        };
        let line = quotes.iter().fold(line, |line, (quote, shown)| line.replace(quote, shown));
        if !line.is_empty() && !text.ends_with(&line) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|link| link as _)
        }
    }

    fn of(texts: &[&'static str]) -> String {
        let link =
            texts.iter().rev().fold(None, |next, text| Some(Box::new(Link(text, next)))).unwrap();
        chain(&*link)
    }

    #[test]
    fn values_of_undecodable_texts_are_left_out() {
        let broken = || serde_json::from_str::<Vec<u8>>(r#"{"a": "SECRET"}"#).unwrap_err();
        let wrong = || serde_json::from_str::<Vec<String>>(r#"[1, "SECRET", {}]"#).unwrap_err();
        let decoding =
            || kube::Error::SerdeError(serde_json::from_str::<Vec<u8>>(r#""SECRET""#).unwrap_err());
        let calling = crate::CallError::from(decoding());
        let errors: [Box<dyn Error>; 4] =
            [Box::new(broken()), Box::new(wrong()), Box::new(decoding()), Box::new(calling)];
        for error in &errors {
            let text = chain(&**error);
            assert!(text.contains("failed to decode: value of the wrong type"), "{text}");
            assert!(!text.contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn causes_are_joined_once_each() {
        let rows: &[(&[&'static str], &str)] = &[
            (&["cannot read a"], "cannot read a"),
            (&["cannot read a", "no such file"], "cannot read a: no such file"),
            (&["cannot read a: no such file", "no such file"], "cannot read a: no such file"),
            (&["a: b: c", "b: c", "c"], "a: b: c"),
            (&["a", "", "c"], "a: c"),
            (&["", "c"], "c"),
        ];
        for (texts, want) in rows {
            assert_eq!(of(texts), *want);
        }
    }
}
