//! Options and operands of a command line. An unknown option is an error.

use anyhow::{Context as _, bail};

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// Options that were given, with their values.
    options: Vec<(String, String)>,
    /// The words that are no options.
    pub(crate) operands: Vec<String>,
}

impl Arguments {
    /// Parses `words`: `flags` have no value, `valued` have one, as `--name=value` or
    /// `--name value`.
    pub(crate) fn parse(words: &[String], flags: &[&str], valued: &[&str]) -> anyhow::Result<Self> {
        let mut parsed = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, value) = word
                .split_once('=')
                .map_or((word.as_str(), None), |(name, value)| (name, Some(value.to_owned())));
            if !word.starts_with('-') {
                parsed.operands.push(word.clone());
            } else if flags.contains(&word.as_str()) {
                parsed.options.push((word.clone(), String::new()));
            } else if valued.contains(&name) {
                let value = value.or_else(|| words.next().cloned());
                let value = value.with_context(|| format!("Missing argument for {name}"))?;
                parsed.options.push((name.to_owned(), value));
            } else {
                bail!("Unknown option {word}");
            }
        }
        Ok(parsed)
    }

    /// Returns true if any of these options was given.
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// Returns the values of an option, in their order.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let given = self.options.iter().filter(|(option, _)| option == name);
        given.map(|(_, value)| value.clone()).collect()
    }

    /// Fails if there are operands.
    pub(crate) fn without_operands(self) -> anyhow::Result<Self> {
        match self.operands.first() {
            Some(word) => bail!("Too many arguments: {word}"),
            None => Ok(self),
        }
    }
}
