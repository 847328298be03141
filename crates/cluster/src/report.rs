//! Reports: a note becomes an event, a metric and a log line.
//!
//! Also formats an error with its causes as one line.

mod event;
mod note;

use std::error::Error;

pub use self::note::{Level, Note, NoteCount, Reporter};

/// Returns the error and its causes, joined with `: `.
///
/// A cause that its parent's text already ends with is dropped, because many libraries repeat
/// theirs.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        if !line.is_empty() && !text.ends_with(&line) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&line);
        }
        cause = error.source();
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
