//! Updates of the operating system, its kernel arguments and its packages.

use mco_testkit::lab::{Machine, Tool};

use crate::{
    ask,
    config::{Config, booted, booted_image},
    done, machine, mco, run,
};

// covers: C32, C78
#[test]
fn an_image_and_kernel_arguments_are_booted_with_the_files_of_their_config() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    let first = Config { text: "one", ..Config::default() };
    first.reboot_into(machine);
    first.assert_active(machine, "files only");
    let base = booted_image(machine);

    // A new image, with a file in /etc of its own.
    done(machine.write("/etc/unmanaged.conf", "mine"));
    let image = done(lone.publish_image(&[("usr/lib/version", "2"), ("usr/etc/new.conf", "new")]));
    let arguments = &["nosmt", "quiet"];
    let second = Config { text: "two", image: image.clone(), arguments, ..first.clone() };
    second.reboot_into(machine);
    second.assert_active(machine, "a new image");
    for (path, want) in
        [("/usr/lib/version", "2"), ("/etc/new.conf", "new"), ("/etc/unmanaged.conf", "mine")]
    {
        assert_eq!(ask(machine, &format!("cat {path}")), want, "{path}");
    }

    // Kernel arguments only: the same commit in another deployment.
    let before = booted(machine);
    let third = Config { arguments: &["audit=0", "nosmt"], ..second.clone() };
    third.reboot_into(machine);
    third.assert_active(machine, "other kernel arguments");
    let after = booted(machine);
    assert_ne!(before, after);
    assert_eq!(before.split('.').next(), after.split('.').next(), "the same commit");
    let none = Config { arguments: &[], ..second };
    none.reboot_into(machine);
    none.assert_active(machine, "no kernel arguments");
    drift_is_repaired(machine, &third);

    // Back to the first image, which no deployment has any more.
    let back = Config { image: base, ..first };
    back.reboot_into(machine);
    back.assert_active(machine, "the first image");
    assert!(run(machine, "cat /usr/lib/version").0 != 0);
}

/// Changes kernel arguments and a file by hand, and applies the config again.
fn drift_is_repaired(machine: &Machine, config: &Config) {
    config.reboot_into(machine);
    ask(machine, "rpm-ostree kargs --delete=nosmt");
    // Its path unit starts it a moment after the deployment was staged, which a reboot could overtake.
    ask(machine, "systemctl start ostree-finalize-staged.service");
    done(machine.reboot());
    done(machine.write("/etc/app.conf", "by hand"));
    let (code, text) = mco(machine, "host verify");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("missing expected kernel arguments: [nosmt]"), "{text}");
    assert!(text.contains("content mismatch for file \"/etc/app.conf\""), "{text}");
    let (code, text) = config.apply(machine, "");
    assert_eq!(code, 2, "drift is not overwritten without --force: {text}");
    let (code, text) = config.apply(machine, " --force");
    assert_eq!(code, 3, "{text}");
    done(machine.reboot());
    crate::config::settle(machine);
    config.assert_active(machine, "drift was repaired");
}

// covers: C80, C82
#[test]
fn extensions_and_kernels_are_layered_and_follow_a_new_image() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    done(lone.publish_package("usbguard", &[("usr/bin/usbguard", "#!/bin/sh\n")]));
    let realtime = ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
    for name in realtime {
        done(lone.publish_package(name, &[]));
    }
    let has = |name: &str| run(machine, &format!("rpm -q {name}")).0 == 0;
    let plain = Config { text: "one", ..Config::default() };
    let extended = Config { extensions: &["usbguard"], ..plain.clone() };
    extended.reboot_into(machine);
    extended.assert_active(machine, "an extension");
    assert!(has("usbguard") && has("kernel"));

    let switched = Config { kernel: "realtime", ..extended };
    switched.reboot_into(machine);
    switched.assert_active(machine, "another kernel");
    assert!(has("usbguard") && realtime.iter().all(|name| has(name)) && !has("kernel"));

    let image = done(lone.publish_image(&[("usr/lib/version", "2")]));
    let updated = Config { image, ..switched };
    updated.reboot_into(machine);
    updated.assert_active(machine, "a new image with the same packages");
    assert!(has("usbguard") && realtime.iter().all(|name| has(name)) && !has("kernel"));
    assert_eq!(ask(machine, "cat /usr/lib/version"), "2");

    let removed = Config { extensions: &[], kernel: "", ..updated };
    removed.reboot_into(machine);
    removed.assert_active(machine, "no packages");
    assert!(!has("usbguard") && has("kernel") && !has(realtime[0]));
}
