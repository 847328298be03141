//! Parses the query of list, watch, write and delete requests.

use percent_encoding::percent_decode_str;

use crate::failure::{Failure, Fault};

/// Maximum length of the name of a field manager.
pub(crate) const MAX_MANAGER: usize = 128;

/// The options of a request. Unknown options are ignored, as Kubernetes does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the wire format")]
pub(crate) struct Query {
    pub(crate) watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial: bool,
    pub(crate) force: bool,
    /// True if `force` is given, with any value.
    pub(crate) has_force: bool,
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
    /// A value of `dryRun` that is not supported.
    pub(crate) bad_dry_run: Option<String>,
    pub(crate) version_match: String,
    pub(crate) propagation: String,
    pub(crate) orphans: Option<bool>,
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
            "force" => {
                out.has_force = true;
                out.force = flag(&value);
            }
            "dryRun" if value == "All" => out.dry_run = true,
            "dryRun" => out.bad_dry_run = Some(value),
            "propagationPolicy" => out.propagation = value,
            "orphanDependents" => out.orphans = Some(flag(&value)),
            "resourceVersion" => out.resource_version = Some(value).filter(|v| !v.is_empty()),
            "resourceVersionMatch" => {
                out.exact = value == "Exact";
                out.version_match = value;
            }
            "labelSelector" => out.label_selector = value,
            "fieldSelector" => out.field_selector = value,
            "limit" => {
                let limit: Option<i64> = number(&value)?;
                out.limit = limit.and_then(|it| usize::try_from(it).ok()).filter(|it| *it > 0);
            }
            "continue" => out.continue_token = value,
            "timeoutSeconds" => out.timeout_seconds = number(&value)?,
            "fieldManager" => out.field_manager = Some(value),
            "fieldValidation" => out.field_validation = value,
            "includeObject" => out.include_object = value,
            "gracePeriodSeconds" => out.grace_period = number(&value)?,
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
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": \
                 strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        })
    }

    /// Validates the options of a write. `is_apply` is none for all but patches.
    pub(crate) fn check_write(&self, is_apply: Option<bool>) -> Vec<Fault> {
        const PLACE: &str = "fieldManager";
        let mut faults = Vec::new();
        if is_apply == Some(false) && self.has_force {
            faults.push(Fault::forbidden("force", "may not be specified for non-apply patch"));
        }
        let manager = self.field_manager.as_deref();
        if is_apply == Some(true) && manager == Some("") {
            faults.push(Fault::required(PLACE, "is required for apply patch"));
        }
        let manager = manager.unwrap_or_default();
        if manager.len() > MAX_MANAGER {
            faults.push(Fault::too_long(PLACE, MAX_MANAGER));
        }
        let is_printed = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
        if let Some((at, c)) = manager.char_indices().find(|(_, c)| !is_printed(*c)) {
            let rule = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            let mut fault = Fault::invalid(PLACE, &manager.into(), &rule);
            fault.message = fault.message.replace("\\u00", "\\x");
            faults.push(fault);
        }
        faults.extend(self.bad_dry_run.as_deref().map(unknown_dry_run));
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&self.field_validation.as_str()) {
            faults.push(Fault::not_supported("fieldValidation", &self.field_validation, &known));
        }
        faults
    }

    /// Validates the options of a watch.
    pub(crate) fn check_watch(&self) -> Result<(), Failure> {
        const PLACE: &str = "resourceVersionMatch";
        let kind = self.version_match.as_str();
        let faults: Vec<Fault> = if self.send_initial {
            let rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let is_right = kind == "NotOlderThan";
            (!is_right).then(|| Fault::forbidden(PLACE, rule)).into_iter().collect()
        } else if kind.is_empty() {
            Vec::new()
        } else {
            let rule =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            let unknown = Fault::not_supported(PLACE, kind, &["NotOlderThan"]);
            let unknown = Some(unknown).filter(|_| kind != "NotOlderThan");
            [Fault::forbidden(PLACE, rule)].into_iter().chain(unknown).collect()
        };
        if faults.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid_kind("meta.k8s.io", "ListOptions", "", &faults))
    }

    /// Validates the options of a list.
    pub(crate) fn check_list(&self) -> Result<(), Failure> {
        let version = self.resource_version.as_deref().unwrap_or("");
        let kind = self.version_match.as_str();
        let known = ["Exact", "NotOlderThan"];
        let place = "resourceVersionMatch";
        let fault = if kind.is_empty() {
            return Ok(());
        } else if version.is_empty() && !self.send_initial {
            let rule = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            Fault::forbidden(place, rule)
        } else if !known.contains(&kind) {
            Fault::not_supported(place, kind, &["Exact", "NotOlderThan", ""])
        } else if kind == "Exact" && version == "0" {
            let rule = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            Fault::forbidden(place, rule)
        } else {
            return Ok(());
        };
        Err(Failure::invalid_options("ListOptions", &fault))
    }
}

/// Returns the error for a value of `dryRun` that is not known.
pub(crate) fn unknown_dry_run(value: &str) -> Fault {
    let mut fault = Fault::not_supported("dryRun", "", &["All"]);
    fault.message = format!("Unsupported value: [\"{value}\"]: supported values: \"All\"");
    fault
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

fn number<T: std::str::FromStr>(value: &str) -> Result<Option<T>, Failure> {
    if value.is_empty() {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| {
        Failure::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
    })
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
        for (query, is_apply) in [
            ("dryRun=Some", None),
            ("dryRun=", None),
            ("force=true", Some(false)),
            ("fieldManager=", Some(true)),
            ("fieldManager=a%00b", Some(true)),
        ] {
            assert_eq!(parse(query).unwrap().check_write(is_apply).len(), 1, "{query}");
        }
        assert!(parse("fieldManager=a+b&force=true").unwrap().check_write(Some(true)).is_empty());
        assert!(parse("resourceVersion=x").unwrap().version().is_err());
    }
}
