//! The language of the templates: Jinja, in which an undefined name is an error.

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig,
    value::Serde,
};

use super::{TemplateError, data::Data};

/// The language with the data of one role.
pub(super) struct Language {
    environment: Environment<'static>,
    data: Value,
}

impl Language {
    pub(super) fn new(data: &Data) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        // The contents are configuration files, not HTML.
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
        environment.set_syntax(syntax.build().expect("the delimiters are the default ones"));
        environment.add_function("skip", |key: &str| skip(key));
        environment.add_filter("url_host", |url: &str| split_url(url).map(|(_, host, _)| host));
        environment.add_filter("url_port", |url: &str| split_url(url).map(|(.., port)| port));
        Self { environment, data: Value::from(Serde(data)) }
    }

    /// Renders `text`, which is part of the template at `path`.
    pub(super) fn render(&self, path: &str, text: &str) -> Result<String, TemplateError> {
        let rendered = self.environment.render_named_str(path, text, self.data.clone());
        rendered.map_err(|source| TemplateError::Render {
            path: path.to_owned(),
            line: source.line().unwrap_or_default(),
            source: Box::new(source),
        })
    }
}

/// Returns `{{.key}}`, which is substituted when a config is served to a machine.
fn skip(key: &str) -> Result<String, Error> {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let starts_well = key.starts_with(|c: char| c == '_' || c.is_ascii_lowercase());
    if starts_well && key.chars().all(is_word) {
        return Ok(format!("{{{{.{key}}}}}"));
    }
    let text = format!("skip({key:?}): the key must match ^[_a-z]\\w*$");
    Err(Error::new(ErrorKind::InvalidOperation, text))
}

/// Returns scheme, host and port of a URL; the port of the scheme if the URL has none.
fn split_url(url: &str) -> Result<(&str, String, String), Error> {
    let invalid = || Error::new(ErrorKind::InvalidOperation, "expected a URL with a host");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
            (host, rest.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(invalid());
    }
    let default = if scheme == "https" { "443" } else { "80" };
    let port = port.filter(|port| !port.is_empty()).unwrap_or(default);
    Ok((scheme, host.to_owned(), port.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: TPL-5
    #[test]
    fn functions_return_what_a_template_needs() {
        let keys = ["ignition_url", "_a1", "Upper", "1a", "", "a-b"].map(|key| skip(key).ok());
        let expected = [Some("{{.ignition_url}}"), Some("{{._a1}}"), None, None, None, None];
        assert_eq!(keys.each_ref().map(Option::as_deref), expected);
        let urls = [
            ("https://api-int.a.test:6443", Some("api-int.a.test 6443")),
            ("https://api-int.a.test/path", Some("api-int.a.test 443")),
            ("http://user:word@proxy.test", Some("proxy.test 80")),
            ("https://[fd00::1]:6443/", Some("fd00::1 6443")),
            ("https://[fd00::1]", Some("fd00::1 443")),
            ("api-int.a.test", None),
            ("https://", None),
        ];
        for (url, expected) in urls {
            let found = split_url(url).ok().map(|(_, host, port)| format!("{host} {port}"));
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }
}
