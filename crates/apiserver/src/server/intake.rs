//! Fields that the server sets on new objects: the requester of a certificate, and the
//! priority of a pod.

use serde_json::{Value, json};

use super::{Call, Server};
use crate::{
    admit::SYSTEM_PRIORITIES,
    failure::Failure,
    object::{self, text},
    store::Key,
};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

impl Server {
    /// Completes a new object before its kind's rules see it.
    pub(super) fn complete_new(&self, call: &Call, new: &mut Value) -> Result<(), Failure> {
        if call.resource.custom {
            return Ok(());
        }
        match call.resource.kind.as_str() {
            "CertificateSigningRequest" => {
                let info = crate::review::user_info(&call.caller, &call.claims);
                let spec = object::map_mut(object::map_of(new), "spec");
                for field in ["username", "uid", "groups", "extra"] {
                    match info.get(field) {
                        Some(value) => spec.insert(field.to_owned(), value.clone()),
                        None => spec.remove(field),
                    };
                }
                Ok(())
            }
            "Pod" => self.set_priority(call, new),
            _ => Ok(()),
        }
    }

    /// Sets the priority of a pod to that of its class, or of the class that is the default.
    fn set_priority(&self, call: &Call, new: &mut Value) -> Result<(), Failure> {
        let name = text(new, &["spec", "priorityClassName"]).to_owned();
        if SYSTEM_PRIORITIES.iter().any(|(system, _)| *system == name) {
            return Ok(());
        }
        let class = if name.is_empty() {
            let classes = self.store.list(PRIORITY_CLASSES, None, None).0;
            classes.into_iter().find(|it| it.value().get("globalDefault") == Some(&json!(true)))
        } else {
            let found = self.store.get(PRIORITY_CLASSES, &Key::new("", &name));
            if found.is_none() {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Failure::forbidden(&call.resource, object::name(new), &why));
            }
            found
        };
        let (Some(class), Some(Value::Object(spec))) = (class, new.get_mut("spec")) else {
            return Ok(());
        };
        let class = class.value();
        let value = class.get("value").cloned().unwrap_or_else(|| json!(0));
        spec.insert("priority".into(), value);
        spec.insert("priorityClassName".into(), object::name(&class).into());
        if let Some(policy) = class.get("preemptionPolicy") {
            spec.entry("preemptionPolicy").or_insert_with(|| policy.clone());
        }
        Ok(())
    }
}
