//! Users: the daemon manages `core` and nobody else.

use crate::{
    fault::Fault,
    load::{
        Object,
        node::{Entry, Node, Path, Value},
    },
};

/// What the daemon can change on a running node.
const MANAGED: [&str; 3] = ["name", "passwordHash", "sshAuthorizedKeys"];

/// Adds what is wrong with the users of the config at `root`.
pub(super) fn check(object: &Object, root: &Path, faults: &mut Vec<Fault>) {
    let list = root.member("passwd").member("users");
    let users = object.node.find(&list).map(Node::items).unwrap_or_default();
    for (index, user) in users.iter().enumerate() {
        let path = list.index(index);
        let name = user.get("name").and_then(Node::as_str).unwrap_or_default();
        if name != "core" {
            let message = format!("user {name:?} is not core, and the daemon manages no other");
            let fault = Fault::error("UserNotCore", message);
            let fault =
                fault.hint("put SSH keys on user core; other users belong into the OS image");
            faults.push(object.fault_at(&path.member("name"), fault));
        }
        if let Value::Map(entries) = &user.value {
            for entry in entries.iter().filter(|entry| is_unmanaged(entry)) {
                let message = format!("user {name:?}: {} cannot be changed on a node", entry.key);
                let fault = Fault::error("UserField", message);
                let fault = fault.hint(format!("only {} can", MANAGED.join(", ")));
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

fn password(object: &Object, user: &Node, path: &Path, faults: &mut Vec<Fault>) {
    let hash = user.get("passwordHash").and_then(Node::as_str).unwrap_or_default();
    if !hash.is_empty() && !hash.starts_with(['$', '!', '*', '_']) {
        let message = "passwordHash is no hash; it may be the password itself";
        let fault = Fault::warning("PlainPassword", message);
        let fault = fault.hint("make one with: mkpasswd --method=yescrypt");
        faults.push(object.fault_at(&path.member("passwordHash"), fault));
    }
}
