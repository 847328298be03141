//! Saves the log of the daemon's pod on the machine before the pod ends.

use mco_host::{Root, RootError};

/// Directory in which the kubelet keeps the logs of pods.
const PODS: &str = "/var/log/pods";
/// Prefix of the name of the daemon's pods.
const POD_PREFIX: &str = "machine-config-daemon-";
const COPY: &str = "/etc/machine-config-daemon/previous-logs";

/// Limit of copied files, more than a pod has.
const MAX_FILES: usize = 64;

/// Copies the log of the daemon's newest pod in `namespace`, replacing the previous copy.
pub fn save(root: &Root, namespace: &str) -> Result<(), RootError> {
    // A machine that was forgotten gets no new records.
    if root.stat(mco_apply::disk::CURRENT_CONFIG)?.is_none() {
        return Ok(());
    }
    let prefix = format!("{namespace}_{POD_PREFIX}");
    let mut pods = root.list(PODS)?;
    pods.retain(|name| name.contains(&prefix));
    pods.sort();
    let Some(pod) = pods.pop() else { return Ok(()) };
    if root.stat(COPY)?.is_some() {
        root.remove_tree(COPY)?;
    }
    let mut left = MAX_FILES;
    for container in root.list(&format!("{PODS}/{pod}"))? {
        let from = format!("{PODS}/{pod}/{container}");
        if !root.stat(&from)?.is_some_and(|stat| stat.is_directory()) {
            continue;
        }
        for file in root.list(&from)? {
            let path = format!("{from}/{file}");
            let is_file = root.stat(&path)?.is_some_and(|stat| stat.is_file());
            if is_file && left > 0 {
                left -= 1;
                let to = format!("{COPY}/{pod}/{container}");
                root.create_directory(&to)?;
                root.copy(&path, &format!("{to}/{file}"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C11
    #[test]
    fn the_log_of_the_newest_pod_replaces_the_previous_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.write("/var/log/pods/ns_machine-config-daemon-a_1/c/0.log", b"x", 0o640).unwrap();
        save(&root, "ns").unwrap();
        assert!(!root.exists(COPY).unwrap(), "a machine that was forgotten gets no records");
        root.write(mco_apply::disk::CURRENT_CONFIG, b"{}", 0o600).unwrap();
        let pod = |name: &str| format!("{PODS}/ns_{POD_PREFIX}{name}/machine-config-daemon/0.log");
        root.write(&pod("abcde_1"), b"first", 0o640).unwrap();
        root.write(&format!("{PODS}/other_pod_1/c/0.log"), b"x", 0o640).unwrap();
        save(&root, "ns").unwrap();
        let kept = |name: &str| {
            let path = pod(name).replace(PODS, COPY);
            root.read(&path).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(kept("abcde_1").as_deref(), Some("first"));
        root.write(&pod("fghij_2"), b"second", 0o640).unwrap();
        save(&root, "ns").unwrap();
        assert_eq!((kept("abcde_1"), kept("fghij_2").as_deref()), (None, Some("second")));
        assert_eq!(root.list(COPY).unwrap().len(), 1);
    }
}
