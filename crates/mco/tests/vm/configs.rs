//! Two configs that differ in every kind of part.

use serde_json::{Value, json};

/// The kernel argument of the second config.
pub(crate) const ARGUMENT: &str = "mco.test=second";

/// Returns the first config, which is applied without a reboot.
pub(crate) fn first() -> String {
    let mut files = common("first");
    files.extend((0..4).map(|number| file(&format!("/etc/gone/{number}"), "first", 100)));
    let units = json!([
        unit("changed.service", "first"),
        unit("gone.service", "first"),
        { "name": "dropped.service", "enabled": true, "contents": service("first"),
          "dropins": [{ "name": "10-gone.conf", "contents": "[Service]\nNice=1\n" }] },
    ]);
    let none = json!([{ "type": "None" }]);
    let paths = files.iter().filter_map(|file| file.get("path"));
    let file_policies: Vec<Value> =
        paths.map(|path| json!({ "path": path, "actions": none })).collect();
    let unit_policies: Vec<Value> = ["changed.service", "gone.service", "dropped.service"]
        .map(|name| json!({ "name": name, "actions": none }))
        .to_vec();
    let policy = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": { "name": "cluster" },
        "spec": { "nodeDisruptionPolicy": { "files": file_policies, "units": unit_policies } },
    });
    format!("{}\n---\n{policy}\n", config(&files, &units, &[]))
}

/// Returns the second config, which takes effect at the next boot.
pub(crate) fn second() -> String {
    second_with(&[ARGUMENT])
}

/// Returns the second config with other kernel arguments.
pub(crate) fn second_with(arguments: &[&str]) -> String {
    let mut files = common("second");
    files.extend((0..8).map(|number| {
        file(&format!("/etc/fresh/{}/{number}", number % 3), "second", 50 + number * 1500)
    }));
    let units = json!([
        unit("changed.service", "second"),
        unit("fresh.service", "second"),
        { "name": "dropped.service", "enabled": false, "contents": service("second"),
          "dropins": [{ "name": "20-fresh.conf", "contents": "[Service]\nNice=2\n" }] },
    ]);
    config(&files, &units, arguments).to_string()
}

/// Returns the files that both configs have: one that the machine had before, small and large ones.
fn common(version: &str) -> Vec<Value> {
    let mut files = vec![file("/etc/motd", version, 30)];
    files.extend(
        (0..12).map(|number| {
            file(&format!("/etc/kept/{number}"), version, 20 + number * number * 150)
        }),
    );
    files
}

/// Returns a file whose contents name its path and version on every line.
fn file(path: &str, version: &str, size: usize) -> Value {
    let line = format!("{version} of {path}\n");
    let text: String = line.chars().cycle().take(size.max(line.len())).collect();
    let text: String = text
        .bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect();
    let mode = if size.is_multiple_of(2) { 0o644 } else { 0o600 };
    json!({ "path": path, "mode": mode, "overwrite": true,
            "contents": { "source": format!("data:,{text}") } })
}

fn unit(name: &str, version: &str) -> Value {
    json!({ "name": name, "enabled": true, "contents": service(version) })
}

fn service(version: &str) -> String {
    format!(
        "[Unit]\nDescription={version}\n[Service]\nType=oneshot\nExecStart=/bin/true\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

fn config(files: &[Value], units: &Value, arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": "50-test",
            "labels": { "machineconfiguration.openshift.io/role": "worker" },
        },
        "spec": {
            "kernelArguments": arguments,
            "config": {
                "ignition": { "version": "3.2.0" },
                "storage": { "files": files },
                "systemd": { "units": units },
            },
        },
    })
}
