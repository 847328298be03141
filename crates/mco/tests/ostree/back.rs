//! Ways back: a config that does not prove healthy, and a config that is rolled back on request.

use mco_testkit::lab::{OstreeMachine, Tool};

use crate::{
    ask,
    config::{Config, booted_image, explain, settle},
    done, machine, mco,
};

const CHECK: &str = "/etc/machine-config-daemon/checks.d/version";

/// Returns a machine with a health check that fails on a bad image, its config, and its image.
fn checked(lone: &OstreeMachine) -> Config {
    let machine = lone.machine();
    done(machine.write(CHECK, "#!/bin/sh\n! grep -qs bad /usr/lib/version\n"));
    ask(machine, &format!("chmod 755 {CHECK}"));
    let first = Config { text: "one", image: booted_image(machine), ..Config::default() };
    first.reboot_into(machine);
    first.assert_active(machine, "the first config");
    first
}

fn a_bad_image_is_rolled_back(tool: Tool, arguments: &'static [&'static str]) {
    let Some(lone) = machine(tool) else { return };
    let machine = lone.machine();
    let first = checked(&lone);
    let bad = done(lone.publish_image(&[("usr/lib/version", "bad")]));
    let second = Config { text: "two", image: bad, arguments, ..first.clone() };
    second.reboot_into(machine);
    first.assert_active(machine, "rolled back");
    let (_, text) = mco(machine, "host status");
    assert!(text.contains("rolled back: rendered-worker-"), "{text}\n{}", explain(machine));
    // Another boot changes nothing: the bad config is not tried again.
    done(machine.reboot());
    settle(machine);
    first.assert_active(machine, "after another boot");
    // A good config is applied as usual.
    let good = done(lone.publish_image(&[("usr/lib/version", "3")]));
    let third = Config { text: "three", image: good, ..first };
    third.reboot_into(machine);
    third.assert_active(machine, "a good config after a bad one");
}

#[test]
fn a_bad_image_is_rolled_back_with_its_config_by_rpm_ostree() {
    a_bad_image_is_rolled_back(Tool::RpmOstree, &["nosmt"]);
}

#[test]
fn a_bad_image_is_rolled_back_with_its_config_by_bootc() {
    a_bad_image_is_rolled_back(Tool::Bootc, &[]);
}

fn a_config_is_rolled_back_on_request(tool: Tool, arguments: &'static [&'static str]) {
    let Some(lone) = machine(tool) else { return };
    let machine = lone.machine();
    let first = checked(&lone);
    let image = done(lone.publish_image(&[("usr/lib/version", "2")]));
    let second = Config { text: "two", image, arguments, ..first.clone() };

    // Before the reboot.
    let (code, text) = second.apply(machine, "");
    assert_eq!(code, 3, "{text}");
    let (code, text) = mco(machine, "host rollback --yes");
    assert!(matches!(code, 0 | 3), "{text}");
    done(machine.reboot());
    settle(machine);
    first.assert_active(machine, "rolled back before the reboot");

    // After the reboot.
    second.reboot_into(machine);
    second.assert_active(machine, "the second config");
    let (code, text) = mco(machine, "host rollback --yes");
    assert_eq!(code, 3, "{text}");
    done(machine.reboot());
    settle(machine);
    first.assert_active(machine, "rolled back after the reboot");
    second.reboot_into(machine);
    second.assert_active(machine, "the second config again");
}

#[test]
fn a_config_is_rolled_back_on_request_by_rpm_ostree() {
    a_config_is_rolled_back_on_request(Tool::RpmOstree, &["nosmt"]);
}

#[test]
fn a_config_is_rolled_back_on_request_by_bootc() {
    a_config_is_rolled_back_on_request(Tool::Bootc, &[]);
}

#[test]
fn kernel_arguments_are_rolled_back_on_request() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    let first = Config { text: "one", arguments: &["quiet"], ..Config::default() };
    first.reboot_into(machine);
    let second = Config { arguments: &["nosmt"], ..first.clone() };
    second.reboot_into(machine);
    second.assert_active(machine, "other kernel arguments");
    let (code, text) = mco(machine, "host rollback --yes");
    assert_eq!(code, 3, "{text}");
    done(machine.reboot());
    settle(machine);
    first.assert_active(machine, "the previous kernel arguments");
}

#[test]
fn a_failed_step_leaves_nothing_staged() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    let first = checked(&lone);
    let image = done(lone.publish_image(&[("usr/lib/version", "2")]));
    // The image can be staged, the package of the extension is unknown.
    let extensions = &["usbguard"];
    let second = Config { text: "two", image, extensions, ..first.clone() };
    let (code, text) = second.apply(machine, "");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("Packages not found: usbguard"), "{text}");
    assert!(text.contains("all changes were rolled back"), "{text}");
    done(machine.reboot());
    settle(machine);
    first.assert_active(machine, "a failed apply");
}
