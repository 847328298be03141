//! The `OpenAPI` documents: what `kubectl explain` prints, and the requests that take
//! `fieldValidation`.
//!
//! They are made of the table of types and of the schemas of `CustomResourceDefinition`s when a client
//! asks for one, and kept until the served kinds change.

mod old;
mod paths;
mod schemas;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::schemas::Schemas;
use crate::{resource::catalog::Served, review::REVIEWS};

/// Version of the API in the documents.
const VERSION: &str = "v1.36.0";

/// A document with its hash.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    pub(crate) hash: String,
}

impl Document {
    fn new(value: &Value) -> Self {
        let body = serde_json::to_vec(value).expect("a JSON value can be encoded");
        let digest = ring::digest::digest(&ring::digest::SHA512, &body);
        let mut hash = String::new();
        for byte in digest.as_ref() {
            let _ = write!(hash, "{byte:02X}");
        }
        Self { body: body.into(), hash }
    }
}

/// The documents of the kinds that are served.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    latest: Mutex<Option<(Arc<Served>, Arc<Made>)>>,
}

/// The documents of the kinds that are served at one moment.
#[derive(Debug)]
struct Made {
    /// Documents of v3, by path.
    new: BTreeMap<String, Document>,
    /// The document of v2, which few clients ask for.
    old: OnceLock<Document>,
}

impl Documents {
    /// Returns the document at a path, such as `/openapi/v3/apis/apps/v1`.
    pub(crate) fn find(&self, served: &Arc<Served>, path: &str) -> Option<Document> {
        let mut latest = self.latest.lock().expect("no holder of this lock panics");
        let made = match &*latest {
            Some((of, made)) if Arc::ptr_eq(of, served) => Arc::clone(made),
            _ => {
                let made = Arc::new(Made { new: documents(served), old: OnceLock::new() });
                *latest = Some((Arc::clone(served), Arc::clone(&made)));
                made
            }
        };
        drop(latest);
        match path {
            "/openapi/v2" => Some(made.old.get_or_init(|| old_document(&made.new)).clone()),
            _ => made.new.get(path).cloned(),
        }
    }
}

/// Returns the v3 documents of the served kinds, by path.
fn documents(served: &Served) -> BTreeMap<String, Document> {
    let mut groups: BTreeMap<String, (Map<String, Value>, Schemas)> = BTreeMap::new();
    for resource in served.values() {
        let base = paths::base(&resource.group, &resource.version);
        let (paths, schemas) = groups.entry(base).or_default();
        paths::add(resource, paths, schemas);
    }
    for review in &REVIEWS {
        let (paths, schemas) = groups.entry(paths::base(review.group, "v1")).or_default();
        paths::add_review(review, paths, schemas);
    }
    let values: BTreeMap<String, Value> = groups
        .into_iter()
        .map(|(base, (paths, schemas))| {
            let document = json!({"openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": VERSION},
                "paths": paths, "components": {"schemas": schemas}});
            (base, document)
        })
        .collect();
    let mut out = BTreeMap::new();
    let mut index = Map::new();
    for (base, value) in &values {
        let path = format!("/openapi/v3/{base}");
        let document = Document::new(value);
        let url = format!("{path}?hash={}", document.hash);
        index.insert(base.clone(), json!({"serverRelativeURL": url}));
        out.insert(path, document);
    }
    out.insert("/openapi/v3".to_owned(), Document::new(&json!({ "paths": index })));
    out
}

/// Returns the v2 document of the kinds of v3 documents.
fn old_document(new: &BTreeMap<String, Document>) -> Document {
    let values: Vec<Value> =
        new.values().filter_map(|one| serde_json::from_slice(&one.body).ok()).collect();
    Document::new(&old::document(values.iter(), VERSION))
}

#[cfg(test)]
mod tests;
