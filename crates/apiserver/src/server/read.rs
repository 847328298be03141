//! Get and list requests.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{Body, Call, Server, answer};
use crate::{failure::Failure, select::Selector, store::Key};

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a \
    consistent list result. You can start a new list without the continue parameter.";
const FOREIGN_PAGE: &str = "continue key is not valid: it was not made by this server";
const VERSION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// Validates how much of each object the rows of a table include.
fn check_include(include: &str) -> Result<(), Failure> {
    if matches!(include, "" | "None" | "Metadata" | "Object") {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "Unable to convert to Table as requested: includeObject: Invalid value: \"{include}\": must \
         be 'Metadata', 'Object', 'None', or empty"
    )))
}

impl Server {
    /// Returns one object.
    pub(super) fn get(&self, call: &Call) -> Result<Response<Body>, Failure> {
        call.query.version().map_err(Failure::without_reason)?;
        let key = call.key();
        let found = self.store.get(&call.resource.collection, &key);
        let found = found.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
        Ok(self.show(call, StatusCode::OK, &found))
    }

    /// Builds the response with one object in the requested format.
    pub(super) fn show(
        &self,
        call: &Call,
        code: StatusCode,
        object: &crate::store::Object,
    ) -> Response<Body> {
        let include = &call.query.include_object;
        let now = self.clock.now();
        answer::bytes(code, answer::object(&call.resource, object, call.shape, now, include))
    }

    /// Returns a collection, or one page of it.
    ///
    /// All pages show the objects at the version of the first one.
    pub(super) fn list(&self, call: &Call) -> Result<Response<Body>, Failure> {
        let query = &call.query;
        let selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        query.check_list()?;
        if call.shape == answer::Shape::Table {
            check_include(&query.include_object)?;
        }
        let page = Page::read(&query.continue_token)?;
        let collection = &call.resource.collection;
        let namespace = call.namespace.as_deref();
        let after = page.as_ref().map(|page| &page.after);
        let asked = query.version()?;
        let current = self.store.version();
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(Failure::future_version(asked, current));
        }
        let exact = match &page {
            Some(page) if page.version > current => {
                return Err(Failure::bad_request(FOREIGN_PAGE));
            }
            Some(page) => Some(page.version),
            None => asked.filter(|_| query.exact),
        };
        let (mut objects, version) = match exact {
            None => self.store.list(collection, namespace, after),
            Some(version) => {
                let found = self.store.list_at(collection, namespace, after, version);
                let why = if page.is_some() { CONTINUE_EXPIRED } else { VERSION_EXPIRED };
                (found.map_err(|_| Failure::expired(why))?, version)
            }
        };
        if !selector.is_everything() {
            objects.retain(|one| selector.selects(one));
        }
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), version.to_string().into());
        // Compat: a list of custom objects always names the next page.
        if call.resource.custom && call.shape == answer::Shape::Plain {
            meta.insert("continue".into(), "".into());
        }
        if let Some(limit) = query.limit.filter(|limit| objects.len() > *limit) {
            let left = objects.len() - limit;
            objects.truncate(limit);
            if let Some(last) = objects.last() {
                let after = last.key();
                meta.insert("continue".into(), Page { version, after }.write().into());
            }
            if selector.is_everything() {
                meta.insert("remainingItemCount".into(), left.into());
            }
        }
        let now = self.clock.now();
        let include = &query.include_object;
        let body = answer::list(&call.resource, &objects, meta, call.shape, now, include);
        Ok(answer::bytes(StatusCode::OK, body))
    }
}

/// The position after the last item of a page.
struct Page {
    version: u64,
    after: Key,
}

impl Page {
    fn read(token: &str) -> Result<Option<Self>, Failure> {
        if token.is_empty() {
            return Ok(None);
        }
        let read = || {
            let raw = URL_SAFE_NO_PAD.decode(token).ok()?;
            let value: Value = serde_json::from_slice(&raw).ok()?;
            let key = value.get("start")?.as_array()?;
            let [namespace, name] = key.as_slice() else { return None };
            let after = Key::new(namespace.as_str()?, name.as_str()?);
            Some(Self { version: value.get("rv")?.as_u64()?, after })
        };
        let page = read().ok_or_else(|| Failure::bad_request(FOREIGN_PAGE))?;
        Ok(Some(page))
    }

    fn write(&self) -> String {
        let Key { namespace, name } = &self.after;
        let value = json!({"rv": self.version, "start": [namespace, name]});
        URL_SAFE_NO_PAD.encode(value.to_string())
    }
}
