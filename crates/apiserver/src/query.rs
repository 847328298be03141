//! Parses the query of list, watch, write and delete requests.

use percent_encoding::percent_decode_str;

use crate::failure::Failure;

/// The options of a request. Unknown options are ignored, as Kubernetes does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the wire format")]
pub(crate) struct Query {
    pub(crate) watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial: bool,
    pub(crate) force: bool,
    pub(crate) dry_run: bool,
    /// True if the list must have exactly the requested resourceVersion.
    pub(crate) exact: bool,
    pub(crate) resource_version: Option<String>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: String,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: String,
    pub(crate) include_object: String,
    pub(crate) grace_period: Option<i64>,
}

/// Parses the part of a URI after `?`.
pub(crate) fn parse(query: &str) -> Result<Query, Failure> {
    let mut out = Query::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key)?, decoded(value)?);
        match key.as_str() {
            "watch" => out.watch = flag(&value),
            "allowWatchBookmarks" => out.bookmarks = flag(&value),
            "sendInitialEvents" => out.send_initial = flag(&value),
            "force" => out.force = flag(&value),
            "dryRun" if value == "All" => out.dry_run = true,
            "dryRun" if value.is_empty() => {}
            "dryRun" => {
                return Err(Failure::bad_request(format!(
                    "dryRun: Unsupported value: \"{value}\": supported values: \"All\""
                )));
            }
            "resourceVersion" => out.resource_version = Some(value).filter(|v| !v.is_empty()),
            "resourceVersionMatch" => out.exact = value == "Exact",
            "labelSelector" => out.label_selector = value,
            "fieldSelector" => out.field_selector = value,
            "limit" => out.limit = number(&key, &value)?.filter(|limit| *limit > 0),
            "continue" => out.continue_token = value,
            "timeoutSeconds" => out.timeout_seconds = number(&key, &value)?,
            "fieldManager" => out.field_manager = Some(value).filter(|v| !v.is_empty()),
            "fieldValidation" => out.field_validation = value,
            "includeObject" => out.include_object = value,
            "gracePeriodSeconds" => out.grace_period = number(&key, &value)?,
            _ => {}
        }
    }
    Ok(out)
}

impl Query {
    /// Returns the requested resourceVersion as a number.
    pub(crate) fn version(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.resource_version else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::bad_request(format!("resourceVersion: Invalid value: \"{text}\""))
        })
    }
}

fn decoded(text: &str) -> Result<String, Failure> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Failure::bad_request("the query is not valid UTF-8"))
}

fn flag(value: &str) -> bool {
    matches!(value, "" | "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<Option<T>, Failure> {
    if value.is_empty() {
        return Ok(None);
    }
    value
        .parse()
        .map(Some)
        .map_err(|_| Failure::bad_request(format!("{key}: Invalid value: \"{value}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_decoded() {
        let query =
            parse("watch=1&labelSelector=a%3Db%2Cc+in+%28d%29&limit=5&resourceVersion=7&x=y")
                .unwrap();
        assert!(query.watch);
        assert_eq!(query.label_selector, "a=b,c in (d)");
        assert_eq!((query.limit, query.version().unwrap()), (Some(5), Some(7)));
    }

    #[test]
    fn invalid_options_are_rejected() {
        assert!(parse("limit=x").is_err());
        assert!(parse("dryRun=Some").is_err());
        assert!(parse("resourceVersion=x").unwrap().version().is_err());
    }
}
