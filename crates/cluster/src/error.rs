//! Errors of requests to the API server, none of which quotes the contents of an object.

mod quoted;

use std::{error::Error, fmt, time::Duration};

use serde_json::error::Category;

/// A failed request, in the words of the API server if it answered.
pub struct CallError(kube::Error);

/// The kind of rejection that a caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The object does not exist.
    NotFound,
    /// An object of that name exists.
    AlreadyExists,
    /// The object was changed since it was read.
    Conflict,
    /// A PodDisruptionBudget or a rate limit forbids it for now.
    TooManyRequests,
    /// Any other status code.
    Other(u16),
}

impl CallError {
    /// Returns the error of a call that cannot be made because of `cause`.
    pub fn unmade(cause: impl Error + Send + Sync + 'static) -> Self {
        Self(kube::Error::Service(Box::new(cause)))
    }

    /// Returns the kind of rejection, if the API server answered at all.
    #[must_use]
    pub fn rejection(&self) -> Option<Rejection> {
        let kube::Error::Api(status) = &self.0 else { return None };
        Some(match (status.code, status.reason.as_str()) {
            (404, _) => Rejection::NotFound,
            (409, "AlreadyExists") => Rejection::AlreadyExists,
            (409, _) => Rejection::Conflict,
            (429, _) => Rejection::TooManyRequests,
            (code, _) => Rejection::Other(code),
        })
    }

    /// Returns true if the request names the UID of an object that was replaced by another one.
    #[must_use]
    pub fn is_of_other_uid(&self) -> bool {
        let kube::Error::Api(status) = &self.0 else { return false };
        status.code == 409 && status.message.contains("UID in precondition")
    }

    /// Returns the time after which the API server asks to retry, if it does.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let kube::Error::Api(status) = &self.0 else { return None };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Returns the status that the API server answered with.
    pub(crate) fn status(&self) -> Option<&kube::core::Status> {
        let kube::Error::Api(status) = &self.0 else { return None };
        Some(status)
    }

    /// Returns true if the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.rejection() == Some(Rejection::NotFound)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.0))
    }
}

/// Returns the text of an error without contents of objects.
pub(crate) fn text(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        // kube's text repeats the whole status after the message.
        return match status.code {
            // Messages about invalid objects quote their values.
            400 | 422 => quoted::without_values(&status.message),
            _ => status.message.clone(),
        };
    }
    if let kube::Error::SerdeError(error) = error {
        return DecodeError::from(error).to_string();
    }
    if let kube::Error::Service(error) = error {
        return error.to_string();
    }
    error.to_string()
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // kube's text quotes answers.
        f.debug_tuple("CallError").field(&self.to_string()).finish()
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let kube::Error::Service(error) = &self.0 {
            return error.source();
        }
        let is_complete = matches!(self.0, kube::Error::Api(_) | kube::Error::SerdeError(_));
        if is_complete { None } else { self.0.source() }
    }
}

/// An object or answer that cannot be decoded: the kind of fault and its position, without the
/// text, which may be secret. serde's own message quotes the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    fault: String,
    line: usize,
    column: usize,
}

impl From<&serde_json::Error> for DecodeError {
    fn from(error: &serde_json::Error) -> Self {
        let fault = match error.classify() {
            Category::Io => "read error".to_owned(),
            Category::Syntax => "invalid JSON".to_owned(),
            Category::Eof => "incomplete JSON".to_owned(),
            Category::Data => match quoted::missing_field(&error.to_string()) {
                Some(field) => format!("missing field {field}"),
                None => "value of the wrong type".to_owned(),
            },
        };
        Self { fault, line: error.line(), column: error.column() }
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::from(&error)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, line, column } = self;
        write!(f, "failed to decode: {fault} at line {line}, column {column}")
    }
}

impl Error for DecodeError {}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::report;

    #[test]
    fn errors_of_decoding_do_not_quote_values() {
        let rows = [
            (r#"{"metadata": {"finalizers": "SECRET"}}"#, "value of the wrong type"),
            (r#"{"metadata": {"labels": ["SECRET"]}}"#, "value of the wrong type"),
            (r#"{"metadata": SECRET}"#, "invalid JSON"),
            (r#"{"metadata": {"name": "SECRET"#, "incomplete JSON"),
        ];
        for (text, fault) in rows {
            let error = serde_json::from_str::<Pod>(text).unwrap_err();
            let error = CallError::from(kube::Error::SerdeError(error));
            let shown = format!("{} {error:?}", report::chain(&error));
            assert!(!shown.contains("SECRET"), "{shown}");
            let expected = format!("failed to decode: {fault} at line 1, column ");
            assert!(shown.starts_with(&expected), "{shown}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        #[derive(Debug, serde::Deserialize)]
        struct Named {
            #[serde(rename = "name")]
            _name: String,
        }
        let error = serde_json::from_str::<Named>("{}").unwrap_err();
        let text = DecodeError::from(error).to_string();
        assert_eq!(text, "failed to decode: missing field name at line 1, column 2");
    }

    #[test]
    fn rejections_of_invalid_objects_do_not_quote_values() {
        let message = r#"MachineConfig "a" is invalid: spec.rootCAData in body must be of type byte: "SECRET""#;
        let status = json!({"status": "Failure", "message": message, "reason": "Invalid",
            "code": 422});
        let status = serde_json::from_value(status).unwrap();
        let shown = CallError::from(kube::Error::Api(status)).to_string();
        let expected =
            r#"MachineConfig "a" is invalid: spec.rootCAData in body must be of type byte: "…""#;
        assert_eq!(shown, expected);
    }
}
