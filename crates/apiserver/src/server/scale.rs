//! The `scale` subresource: the number of replicas alone.

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, Call, Server, answer};
use crate::{
    failure::{Failure, Fault},
    object,
    patch::{self, Patch},
};

impl Server {
    /// Answers a request for the scale of an object.
    pub(super) async fn scale(
        &self,
        call: &Call,
        method: &Method,
        media: &str,
        read: impl FnOnce() -> Result<Value, Failure>,
        body: &[u8],
    ) -> Result<Response<Body>, Failure> {
        let key = call.key();
        let found = self.store.get(&call.resource.collection, &key);
        let found = found.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
        let current = view(&found.value());
        let new = match *method {
            Method::GET => return Ok(answer::json(StatusCode::OK, &current)),
            Method::PUT => read()?,
            Method::PATCH => {
                let (patch, _) = patch::read(media, body, &call.resource)?;
                match &patch {
                    Patch::Apply(applied) => applied.clone(),
                    Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) => {
                        patch::apply(&patch, &current, &call.resource)?
                    }
                }
            }
            _ => return Err(Failure::method()),
        };
        let name = object::name(&new);
        if !name.is_empty() && name != key.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                key.name
            )));
        }
        let version = object::meta(&new, "resourceVersion");
        if !version.is_empty() && version != found.version.to_string() {
            return Err(Failure::modified(&call.resource, &key.name));
        }
        let replicas = object::at(&new, &["spec", "replicas"]).cloned().unwrap_or(json!(0));
        if replicas.as_i64().is_none_or(|number| number < 0) {
            let rule = "must be greater than or equal to 0";
            let fault = Fault::invalid("spec.replicas", &replicas, rule);
            return Err(Failure::invalid_kind("autoscaling", "Scale", &key.name, &[fault]));
        }
        self.set_replicas(call, &replicas).await?;
        if call.query.dry_run {
            let mut shown = current;
            object::map_mut(object::map_of(&mut shown), "spec").insert("replicas".into(), replicas);
            return Ok(answer::json(StatusCode::OK, &shown));
        }
        let stored = self.store.get(&call.resource.collection, &key);
        let stored = stored.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
        Ok(answer::json(StatusCode::OK, &view(&stored.value())))
    }
}

/// Returns the scale of an object.
pub(super) fn view(object: &Value) -> Value {
    let of = |path: &[&str]| object::at(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::at(object, &["metadata", field]) {
            object::map_of(&mut meta).insert(field.to_owned(), value.clone());
        }
    }
    let mut spec = json!({});
    if of(&["spec", "replicas"]) != 0 {
        object::map_of(&mut spec).insert("replicas".into(), of(&["spec", "replicas"]).into());
    }
    let labels =
        object::at(object, &["spec", "selector", "matchLabels"]).and_then(Value::as_object);
    let selector: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec,
        "status": {"replicas": of(&["status", "replicas"]), "selector": selector.join(",")}})
}
