//! Configs of the machine, and the state of the machine that they lead to.

use mco_testkit::{PATIENCE, api::wait, lab::Machine};

use crate::{ask, done, mco};

/// Record of an unfinished update.
const UPDATE: &str = "/var/lib/machine-config-daemon/mco-update.json";

/// A config of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Contents of `/etc/app.conf`.
    pub(crate) text: &'static str,
    pub(crate) image: String,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) extensions: &'static [&'static str],
    /// Kernel type; the default one if empty.
    pub(crate) kernel: &'static str,
}

impl Config {
    fn manifest(&self) -> String {
        let Self { text, image, arguments, extensions, kernel } = self;
        format!(
            "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-a
  labels: {{machineconfiguration.openshift.io/role: worker}}
spec:
  osImageURL: '{image}'
  kernelArguments: {arguments:?}
  extensions: {extensions:?}
  kernelType: '{kernel}'
  config:
    ignition: {{version: 3.2.0}}
    storage:
      files:
      - {{path: /etc/app.conf, overwrite: true, contents: {{source: 'data:,{text}'}}}}
    systemd:
      units:
      - name: confirm.service
        enabled: true
        contents: |
          [Unit]
          Description=Keeps the config after a reboot, or rolls it back
          [Service]
          Type=oneshot
          ExecStart=/usr/local/bin/mco host confirm --within 0
          SuccessExitStatus=1
          [Install]
          WantedBy=multi-user.target
      - name: app.service
        enabled: true
        contents: |
          [Service]
          Type=oneshot
          RemainAfterExit=yes
          ExecStart=/bin/cp /etc/app.conf /run/app.seen
          [Install]
          WantedBy=multi-user.target
"
        )
    }

    /// Applies the config without a reboot; returns exit code and output.
    pub(crate) fn apply(&self, machine: &Machine, options: &str) -> (i32, String) {
        done(machine.write("/root/manifests/a.yaml", &self.manifest()));
        mco(machine, &format!("host apply -f /root/manifests --yes{options}"))
    }

    /// Applies the config with a reboot, and waits until the machine has decided about it.
    pub(crate) fn reboot_into(&self, machine: &Machine) {
        done(machine.wait_reboot_by(|| {
            let (code, text) = self.apply(machine, " --reboot");
            anyhow::ensure!(code == 0, "{text}");
            Ok(())
        }));
        settle(machine);
    }

    /// Asserts that the machine has this config: files, services, image and kernel arguments.
    pub(crate) fn assert_active(&self, machine: &Machine, why: &str) {
        let log = || explain(machine);
        assert_eq!(ask(machine, "cat /etc/app.conf"), self.text, "{why}\n{}", log());
        assert_eq!(ask(machine, "cat /run/app.seen"), self.text, "{why}: no reboot\n{}", log());
        if !self.image.is_empty() {
            assert_eq!(booted_image(machine), self.image, "{why}\n{}", log());
        }
        let arguments = ask(machine, "cat /proc/cmdline");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        for known in ["nosmt", "quiet", "audit=0"] {
            let is_there = arguments.contains(&known);
            let is_wanted = self.arguments.contains(&known);
            assert_eq!(is_there, is_wanted, "{why}: {arguments:?}\n{}", log());
        }
        let (code, text) = mco(machine, "host verify");
        assert_eq!(code, 0, "{why}: {text}\n{}", log());
        let (code, text) = mco(machine, "host status");
        assert_eq!(code, 0, "{why}: {text}");
    }
}

/// Waits until no update is unfinished and the machine is up; it may reboot meanwhile.
pub(crate) fn settle(machine: &Machine) {
    let settled = wait("the config to be kept or rolled back", PATIENCE / 5, || {
        machine.boot().ok()?;
        let state = machine.run(&["systemctl", "show", "-P", "ActiveState", "confirm.service"]);
        let state = String::from_utf8_lossy(&state.ok()?.stdout).trim().to_owned();
        let is_decided = matches!(state.as_str(), "inactive" | "failed");
        (is_decided && machine.read(UPDATE).ok()?.is_none()).then_some(())
    });
    done(settled.map_err(|late| late.context(explain(machine))));
}

/// Returns the image of the booted deployment.
pub(crate) fn booted_image(machine: &Machine) -> String {
    let origins = "cat /sysroot/ostree/deploy/mco/deploy/";
    let origin = ask(machine, &format!("{origins}{}.origin", booted(machine)));
    let image = origin.lines().find_map(|line| line.split_once("-registry:"));
    image.unwrap_or_default().1.to_owned()
}

/// Returns commit and serial number of the booted deployment.
pub(crate) fn booted(machine: &Machine) -> String {
    let arguments = ask(machine, "cat /proc/cmdline");
    let link = arguments.split(' ').find_map(|word| word.strip_prefix("ostree="));
    let path = ask(machine, &format!("readlink -f /sysroot{}", link.unwrap_or_default()));
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Returns state and logs that may explain a failure.
pub(crate) fn explain(machine: &Machine) -> String {
    let log = machine.journal(None, 60).unwrap_or_default();
    let status = mco(machine, "host status").1;
    let deployments = ask(machine, "ostree admin status");
    format!("{status}\n{deployments}\n{log}")
}
