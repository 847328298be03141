//! Get and list requests.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{Body, Call, Server, answer};
use crate::{failure::Failure, object, select::Selector, store::Key};

impl Server {
    /// Returns one object.
    pub(super) fn get(&self, call: &Call) -> Result<Response<Body>, Failure> {
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
    /// All pages carry the resourceVersion of the first one. A watch from there brings a client up
    /// to date, whatever changed between two pages.
    pub(super) fn list(&self, call: &Call) -> Result<Response<Body>, Failure> {
        let query = &call.query;
        let selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        let page = Page::read(&query.continue_token)?;
        let collection = &call.resource.collection;
        let after = page.as_ref().map(|page| &page.after);
        let (mut objects, current) = self.store.list(collection, call.namespace.as_deref(), after);
        if let Some(asked) = query.version()? {
            if asked > current {
                return Err(Failure::future_version(asked, current));
            }
            if query.exact && asked != current {
                return Err(Failure::expired(
                    "The resourceVersion for the provided list is too old.",
                ));
            }
        }
        let version = page.as_ref().map_or(current, |page| page.version);
        if page.is_some() && self.store.since(collection, version).is_err() {
            return Err(Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter.",
            ));
        }
        if !selector.is_everything() {
            objects.retain(|one| selector.matches(&one.value));
        }
        let mut meta = Map::new();
        meta.insert("resourceVersion".into(), version.to_string().into());
        if let Some(limit) = query.limit.filter(|limit| objects.len() > *limit) {
            let left = objects.len() - limit;
            objects.truncate(limit);
            if let Some(last) = objects.last() {
                let after = Key::new(object::namespace(&last.value), object::name(&last.value));
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
        let page = read().ok_or_else(|| {
            Failure::bad_request("continue key is not valid: it was not made by this server")
        })?;
        Ok(Some(page))
    }

    fn write(&self) -> String {
        let Key { namespace, name } = &self.after;
        let value = json!({"rv": self.version, "start": [namespace, name]});
        URL_SAFE_NO_PAD.encode(value.to_string())
    }
}
