//! The front matter of a template: `key: value` lines between two lines `---`.

use super::TemplateError;

const FENCE: &str = "---\n";
const DEFAULT_MODE: i64 = 0o644;

/// Returns the front matter and the contents of a template.
pub(super) fn split<'t>(path: &str, text: &'t str) -> Result<(&'t str, &'t str), TemplateError> {
    let fault = || fault(path, "the file must begin with a line --- and have a second one");
    let rest = text.strip_prefix(FENCE).ok_or_else(fault)?;
    if let Some(contents) = rest.strip_prefix(FENCE) {
        return Ok(("", contents));
    }
    let end = rest.find("\n---\n").ok_or_else(fault)?;
    let (header, contents) = rest.split_at(end);
    Ok((header, contents.strip_prefix("\n---\n").unwrap_or_default()))
}

fn fault(path: &str, text: impl Into<String>) -> TemplateError {
    TemplateError::FrontMatter { path: path.to_owned(), fault: text.into() }
}

/// Returns the keys and values.
fn lines<'h>(
    path: &str,
    header: &'h str,
    known: &[&str],
) -> Result<Vec<(&'h str, &'h str)>, TemplateError> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let all =
        header.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in all {
        let Some((key, value)) = line.split_once(':') else {
            return Err(fault(path, format!("{line:?} is not of the form key: value")));
        };
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        if !known.contains(&key) {
            let known = known.join(", ");
            return Err(fault(path, format!("unknown key {key:?}; known are {known}")));
        }
        if found.iter().any(|(other, _)| *other == key) {
            return Err(fault(path, format!("key {key:?} occurs twice")));
        }
        found.push((key, value));
    }
    Ok(found)
}

fn flag(path: &str, key: &str, value: &str) -> Result<bool, TemplateError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(fault(path, format!("{key} is {value:?}; it must be true or false"))),
    }
}

/// Front matter of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Absolute path on the machine.
    pub(super) path: String,
    pub(super) mode: i64,
}

impl FileHeader {
    pub(super) fn parse(path: &str, header: &str) -> Result<Self, TemplateError> {
        let mut parsed = Self { path: String::new(), mode: DEFAULT_MODE };
        for (key, value) in lines(path, header, &["path", "mode"])? {
            if key == "path" {
                value.clone_into(&mut parsed.path);
                continue;
            }
            let mode = i64::from_str_radix(value, 8).ok().filter(|mode| (0..=0o777).contains(mode));
            parsed.mode = mode.ok_or_else(|| {
                fault(path, format!("mode is {value:?}; it must be octal, from 0 to 0777"))
            })?;
        }
        if !parsed.path.starts_with('/') {
            return Err(fault(path, format!("path is {:?}; it must be absolute", parsed.path)));
        }
        Ok(parsed)
    }
}

/// Front matter of a unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnitHeader {
    /// Name of the unit; the name of the template unless given.
    pub(super) name: String,
    pub(super) enabled: Option<bool>,
    pub(super) mask: Option<bool>,
}

impl UnitHeader {
    pub(super) fn parse(path: &str, file: &str, header: &str) -> Result<Self, TemplateError> {
        let mut parsed = Self { name: file.to_owned(), enabled: None, mask: None };
        for (key, value) in lines(path, header, &["name", "enabled", "mask"])? {
            match key {
                "name" => value.clone_into(&mut parsed.name),
                "enabled" => parsed.enabled = Some(flag(path, key, value)?),
                _ => parsed.mask = Some(flag(path, key, value)?),
            }
        }
        Ok(parsed)
    }
}
