//! Checks of users: the daemon manages only `core`.

use super::{
    Fault, FieldPath, Object, SpannedValue,
    value::{Entry, Value},
};

use crate::machine::is_one_field;

/// Fields that the daemon can change on a running node.
const MANAGED: [&str; 3] = ["name", "passwordHash", "sshAuthorizedKeys"];

/// Adds the faults of the users in the config at `root`.
pub(super) fn check(object: &Object, root: &FieldPath, faults: &mut Vec<Fault>) {
    let list = root.member("passwd").member("users");
    let users = object.root.find(&list).map(SpannedValue::items).unwrap_or_default();
    for (index, user) in users.iter().enumerate() {
        let path = list.index(index);
        let name = user.get("name").and_then(SpannedValue::as_str).unwrap_or_default();
        if name != "core" {
            let message = format!("user {name:?} is not supported: the daemon manages only core");
            let fault = Fault::error("UserNotCore", message);
            let fault = fault.hint("add SSH keys to user core, and other users to the OS image");
            faults.push(object.fault_at(&path.member("name"), fault));
        }
        if let Value::Map(entries) = &user.value {
            for entry in entries.iter().filter(|entry| is_unmanaged(entry)) {
                let message = format!("user {name:?}: {} cannot be changed on a node", entry.key);
                let fault = Fault::error("UserField", message);
                let fault = fault.hint(format!("only {} can be changed", MANAGED.join(", ")));
                faults.push(object.fault_on(entry.key_at, &path.member(&entry.key), fault));
            }
        }
        password(object, user, &path, faults);
    }
}

fn is_unmanaged(entry: &Entry) -> bool {
    let empty = match &entry.value.value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Map(_) => false,
    };
    !empty && !MANAGED.contains(&entry.key.as_str())
}

fn password(object: &Object, user: &SpannedValue, path: &FieldPath, faults: &mut Vec<Fault>) {
    let hash = user.get("passwordHash").and_then(SpannedValue::as_str).unwrap_or_default();
    if !is_one_field(hash) {
        let message = "passwordHash contains a colon or a line break, which end the field";
        let fault = Fault::error("PasswordHash", message);
        let fault = fault.hint("create a hash with: mkpasswd --method=yescrypt");
        faults.push(object.fault_at(&path.member("passwordHash"), fault));
    }
    if !hash.is_empty() && !hash.starts_with(['$', '!', '*', '_']) {
        let message = "passwordHash is not a hash; it may be the plain password";
        let fault = Fault::warning("PlainPassword", message);
        let fault = fault.hint("create a hash with: mkpasswd --method=yescrypt");
        faults.push(object.fault_at(&path.member("passwordHash"), fault));
    }
}
