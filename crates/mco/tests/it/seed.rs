//! The MachineConfig of a tutorial, through every offline command.

use snapbox::str;

use crate::{Folder, mco};

/// A config as in tutorials: dots in place of the payload and of the rest of the unit.
const TUTORIAL: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 99-worker-custom
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.2.0
    storage:
      files:
      - path: /etc/custom-config
        mode: 0644
        contents:
          source: data:text/plain;base64,...
    systemd:
      units:
      - name: custom.service
        enabled: true
        contents: |
          [Unit]
          Description=Custom service
          ...
";

const FILLED_IN: &str = "examples/99-worker-custom.yaml";

#[test]
fn placeholders_of_the_tutorial_are_reported_by_line() {
    let folder = Folder::new(&[("a.yaml", TUTORIAL.as_bytes())]);
    folder.mco(&["check", "-f", "a.yaml"]).assert().code(1).stdout_eq(str![[r#"
a.yaml:16:19: error: failed to decode the contents of /etc/custom-config: could not decode file content string: invalid data character [Contents]
  in MachineConfig/99-worker-custom, spec.config.storage.files[0].contents.source
  hint: create a data URL with: base64 -w0 FILE
a.yaml:24:11: error: unit custom.service has a line without '=' [UnitSyntax]
  in MachineConfig/99-worker-custom, spec.config.systemd.units[0].contents
  hint: write `Key=value`, or end the line before it with a backslash

"#]]);
    folder.mco(&["render", "-f", "a.yaml"]).assert().code(1).stdout_eq("").stderr_eq(str![[r#"
note: assuming pools that are not in the input, from role labels: worker
a.yaml:16:19: error: failed to decode the contents of /etc/custom-config: could not decode file content string: invalid data character [Contents]
  in MachineConfig/99-worker-custom, spec.config.storage.files[0].contents.source
  hint: create a data URL with: base64 -w0 FILE
a.yaml:24:11: error: unit custom.service has a line without '=' [UnitSyntax]
  in MachineConfig/99-worker-custom, spec.config.systemd.units[0].contents
  hint: write `Key=value`, or end the line before it with a backslash
error: failed to render pool worker

"#]]);
}

#[test]
fn the_completed_config_works_with_every_command() {
    mco(&["check", "-f", FILLED_IN]).assert().success().stdout_eq("");
    mco(&["render", "-f", FILLED_IN]).assert().success().stdout_eq(str![[r#"
rendered-worker-948142f885ad25b89d2c283b2c93bbfe

"#]]);
    mco(&["cat", FILLED_IN, "/etc/custom-config"]).assert().success().stdout_eq(str![[r#"
greeting = hello
interval = 30

"#]]);
    mco(&["diff", FILLED_IN, FILLED_IN]).assert().success().stdout_eq("");
    mco(&["why", "-f", FILLED_IN, "custom.service"]).assert().success().stdout_eq(str![[r#"
unit custom.service in pool worker:
  wins        99-worker-custom  sets contents, enabled  [examples/99-worker-custom.yaml:25:9]

"#]]);
}

#[test]
fn a_changed_line_is_a_one_line_difference() {
    let folder = Folder::new(&[]);
    let old = mco(&["render", "-f", FILLED_IN, "-o", "yaml"]).output().unwrap().stdout;
    let new = String::from_utf8(old.clone()).unwrap().replace("Custom service", "My service");
    folder.write("old.yaml", &old);
    folder.write("new.yaml", new.as_bytes());
    folder.mco(&["diff", "old.yaml", "new.yaml"]).assert().code(1).stdout_eq(str![[r#"
unit custom.service changed
--- a/custom.service
+++ b/custom.service
@@ -1,5 +1,5 @@
 [Unit]
-Description=Custom service
+Description=My service
 Wants=network-online.target
 After=network-online.target
 

"#]]);
}
