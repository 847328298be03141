//! Converts stored objects to the objects of a resource, and back.
//!
//! Events of `events.k8s.io/v1` are core events with other field names. All other objects differ
//! only in their `apiVersion`.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    object,
    resource::{Form, Resource},
};

/// Pairs of field names: in a core event, and in an event of `events.k8s.io/v1`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Returns the stored object as an object of `resource`, without a copy when the stored form is the
/// same.
pub(crate) fn shown<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    if resource.is_native(stored) {
        return Cow::Borrowed(stored);
    }
    let mut value = stored.clone();
    let map = object::map_of(&mut value);
    map.insert("apiVersion".into(), resource.api_version().into());
    map.insert("kind".into(), resource.kind.clone().into());
    if resource.form == Form::NewEvent {
        for (core, new) in EVENT_FIELDS {
            rename(map, core, new);
        }
        // A core event has these fields in any case.
        for field in ["reportingController", "reportingInstance"] {
            if map.get(field).is_some_and(|text| text == "") {
                map.remove(field);
            }
        }
    }
    Cow::Owned(value)
}

/// Returns the part of a stored object's text after its version and kind, if the stored form is that
/// of `resource`.
pub(crate) fn native(resource: &Resource, stored: &Bytes) -> Option<Bytes> {
    if resource.form != Form::Same {
        return None;
    }
    let Resource { group, version, kind, .. } = resource;
    let slash = if group.is_empty() { "" } else { "/" };
    // The keys of a stored object are sorted, so that these two come first.
    let head = ["{\"apiVersion\":\"", group, slash, version, "\",\"kind\":\"", kind, "\","];
    let rest = head.iter().try_fold(&**stored, |rest, part| rest.strip_prefix(part.as_bytes()))?;
    Some(stored.slice_ref(rest))
}

/// Converts an object of `resource` to its stored form.
pub(crate) fn stored(resource: &Resource, mut value: Value) -> Value {
    let map = object::map_of(&mut value);
    map.insert("apiVersion".into(), resource.api_version().into());
    map.insert("kind".into(), resource.kind.clone().into());
    if resource.form == Form::NewEvent {
        map.insert("apiVersion".into(), "v1".into());
        for (core, new) in EVENT_FIELDS {
            rename(map, new, core);
        }
    }
    value
}

/// Returns the fields that a resource names differently than the stored form: the stored name and its
/// own.
pub(crate) fn renamed(resource: &Resource) -> &'static [(&'static str, &'static str)] {
    match resource.form {
        Form::Same => &[],
        Form::NewEvent => &EVENT_FIELDS,
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    #[test]
    fn an_event_reads_the_same_through_both_groups() {
        let new = builtin::all().find(|one| one.group == "events.k8s.io").unwrap();
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "hello",
            "regarding": {"kind": "Node"}, "reportingController": "mco", "type": "Normal"});
        let kept = stored(&new, event.clone());
        assert_eq!((&kept["apiVersion"], &kept["message"]), (&json!("v1"), &json!("hello")));
        assert_eq!(kept["involvedObject"]["kind"], "Node");
        assert_eq!(*shown(&new, &kept), event);
    }
}
