//! Encodes the objects that are written, within their limits.

use std::sync::Arc;

use serde_json::Value;

use super::{Change, ChangeKind, Object, Put, WriteError};
use crate::object as fields;

/// Maximum size of an object as text, the same as etcd's.
const MAX_OBJECT: usize = 1024 * 1024 * 3 / 2;

/// Maximum depth of an object. Its text is read by a parser that calls itself for each level.
pub(crate) const MAX_DEPTH: usize = 120;

/// Checks the precondition of a write and assigns its version.
pub(super) fn prepare(
    collection: &str,
    expect: Option<u64>,
    put: Put,
    before: Option<Arc<Object>>,
    version: u64,
) -> Result<Change, WriteError> {
    if before.as_ref().map(|object| object.version) != expect {
        return Err(WriteError::Stale);
    }
    let (value, kind) = match (put, &before) {
        (Put::Keep(value), None) => (value, ChangeKind::Added),
        (Put::Keep(value), Some(_)) => (value, ChangeKind::Modified),
        (Put::Remove(value), _) => (value, ChangeKind::Deleted),
    };
    // A deletion must not fail because of the size of what it removes.
    let most = if kind == ChangeKind::Deleted { usize::MAX } else { MAX_OBJECT };
    let object = Arc::new(limited(collection, stamp(value, version), version, most)?);
    Ok(Change { kind, object, before })
}

/// Encodes an object, or fails if it exceeds a limit.
fn limited(
    collection: &str,
    mut value: Value,
    version: u64,
    most: usize,
) -> Result<Object, WriteError> {
    let mut text = encoded(&value);
    if check_size(&text, most).is_err() {
        // Compat: an object that is too large only with the owners of its fields is stored without
        // them.
        fields::drop_meta(&mut value, "managedFields");
        text = encoded(&value);
        check_size(&text, most)?;
    }
    Ok(Object::new(collection, value, text, version))
}

/// Returns an object as it would be stored.
pub(crate) fn unstored(value: Value, version: u64) -> Result<Object, WriteError> {
    limited("", value, version, MAX_OBJECT)
}

/// Fails if the text of an object exceeds a limit.
fn check_size(text: &[u8], most: usize) -> Result<(), WriteError> {
    if text.len() > most {
        return Err(WriteError::TooLarge(text.len()));
    }
    if depth(text) > MAX_DEPTH {
        return Err(WriteError::TooDeep);
    }
    Ok(())
}

/// Returns the depth of a JSON text.
fn depth(text: &[u8]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !is_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Sets the object's `resourceVersion`.
fn stamp(mut value: Value, version: u64) -> Value {
    fields::set_meta(&mut value, "resourceVersion", version.to_string());
    value
}

fn encoded(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can be encoded")
}

/// Returns a change of a stored object that is shown and not stored.
pub(crate) fn stamped(value: Value, version: u64) -> Object {
    let value = stamp(value, version);
    let text = encoded(&value);
    Object::new("", value, text, version)
}
