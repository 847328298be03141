//! Power cuts at every moment of an update that changes the operating system.

use mco_testkit::lab::{Machine, OstreeMachine, Tool};

use crate::{
    config::{Config, booted_image, settle},
    done, machine, mco,
};

/// Number of moments of `rpm-ostree` and `bootc` that are survived before the power is cut.
const COUNTDOWN: &str = "/run/power-cut";

/// Applies `second`; the power is cut at moment number `moment`. Returns false if the update has fewer
/// moments.
fn cut_at(machine: &Machine, moment: u32, second: &Config) -> bool {
    done(machine.ask(&["sh", "-c", &format!("echo {moment} >{COUNTDOWN}")]));
    let (mut code, mut text) = (0, String::new());
    let cut = machine.wait_reboot_by(|| {
        (code, text) = second.apply(machine, "");
        // The reboot ends the command by a signal.
        anyhow::ensure!(code == -1, "the power was not cut");
        Ok(())
    });
    match code {
        -1 => done(cut),
        3 => return false,
        _ => panic!("{code} {text}"),
    }
    true
}

/// Finishes an update that a power cut interrupted, as an administrator does.
fn finish(machine: &Machine, second: &Config) {
    let (code, text) = second.apply(machine, " --reboot");
    assert_eq!(code, 0, "{text}");
}

fn every_moment_is_survived(lone: &OstreeMachine, first: &Config, second: &Config) -> u32 {
    let machine = lone.machine();
    for moment in 0.. {
        first.reboot_into(machine);
        if !cut_at(machine, moment, second) {
            return moment;
        }
        done(machine.wait_reboot_by(|| {
            finish(machine, second);
            Ok(())
        }));
        settle(machine);
        second.assert_active(machine, &format!("the power was cut at moment {moment}"));
    }
    0
}

#[test]
fn an_update_survives_a_power_cut_at_every_moment_of_rpm_ostree() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    done(lone.publish_package("usbguard", &[]));
    let images = ["2", "3"].map(|text| done(lone.publish_image(&[("usr/lib/version", text)])));
    let [one, two] = images;
    let first = Config { text: "one", image: one, ..Config::default() };
    let (arguments, extensions) = (&["nosmt"], &["usbguard"]);
    let second = Config { text: "two", image: two, arguments, extensions, ..first.clone() };
    let moments = every_moment_is_survived(&lone, &first, &second);
    assert!(moments >= 8, "only {moments} moments");
}

#[test]
fn an_update_survives_a_power_cut_at_every_moment_of_bootc() {
    let Some(lone) = machine(Tool::Bootc) else { return };
    let images = ["2", "3"].map(|text| done(lone.publish_image(&[("usr/lib/version", text)])));
    let [one, two] = images;
    let first = Config { text: "one", image: one, ..Config::default() };
    let second = Config { text: "two", image: two, ..first.clone() };
    let moments = every_moment_is_survived(&lone, &first, &second);
    assert!(moments >= 2, "only {moments} moments");
}

#[test]
fn an_update_whose_staged_deployment_is_lost_is_staged_again() {
    for tool in [Tool::RpmOstree, Tool::Bootc] {
        let Some(lone) = machine(tool) else { return };
        let machine = lone.machine();
        let first = Config { text: "one", ..Config::default() };
        first.reboot_into(machine);
        let image = done(lone.publish_image(&[("usr/lib/version", "2")]));
        let second = Config { text: "two", image, ..first };
        let (code, text) = second.apply(machine, "");
        assert_eq!(code, 3, "{text}");
        done(machine.power_cut());
        done(machine.boot());
        settle(machine);
        second.assert_active(machine, "the power was cut before the reboot");
        assert_eq!(mco(machine, "host apply -f /root/manifests --yes").0, 0);
    }
}

/// Drop-in of the unit that finalizes a staged deployment when the machine shuts down.
const DROPIN: &str = "/run/systemd/system/ostree-finalize-staged.service.d/cut.conf";

#[test]
fn an_update_survives_a_power_cut_before_and_after_its_deployment_is_finalized() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    let first = Config { text: "one", ..Config::default() };
    first.reboot_into(machine);
    let images = ["2", "3"].map(|text| done(lone.publish_image(&[("usr/lib/version", text)])));
    let cut = "ExecStop=/bin/systemctl reboot --force --force";
    let finalize = "ExecStop=/usr/bin/ostree admin finalize-staged";
    let moments = [("two", cut.to_owned()), ("three", format!("{finalize}\\n{cut}"))];
    for ((text, stop), image) in moments.into_iter().zip(images) {
        let write = format!(
            "mkdir -p $(dirname {DROPIN})\nprintf '[Service]\\nExecStop=\\n{stop}\\n' >{DROPIN}\n\
             systemctl daemon-reload"
        );
        done(machine.ask(&["sh", "-ec", &write]));
        let config = Config { text, image, arguments: &["nosmt"], ..first.clone() };
        config.reboot_into(machine);
        config.assert_active(machine, &stop);
    }
}

fn a_rollback_survives_every_moment(tool: Tool, arguments: &'static [&'static str]) {
    let Some(lone) = machine(tool) else { return };
    let machine = lone.machine();
    let first = Config { text: "one", image: booted_image(machine), ..Config::default() };
    let image = done(lone.publish_image(&[("usr/lib/version", "2")]));
    let second = Config { text: "two", image, arguments, ..first.clone() };
    first.reboot_into(machine);
    for moment in 0.. {
        second.reboot_into(machine);
        done(machine.ask(&["sh", "-c", &format!("echo {moment} >{COUNTDOWN}")]));
        let mut code = 0;
        let cut = machine.wait_reboot_by(|| {
            code = mco(machine, "host rollback --yes").0;
            anyhow::ensure!(code == -1, "the power was not cut");
            Ok(())
        });
        if code == -1 {
            done(cut);
            let (code, text) = mco(machine, "host rollback --yes");
            assert!(matches!(code, 0 | 3), "{text}");
        }
        done(machine.reboot());
        settle(machine);
        first.assert_active(machine, &format!("the power was cut at moment {moment}"));
        if code != -1 {
            assert!(moment >= 2, "only {moment} moments");
            return;
        }
    }
}

#[test]
fn a_rollback_survives_a_power_cut_at_every_moment_of_rpm_ostree() {
    a_rollback_survives_every_moment(Tool::RpmOstree, &["nosmt"]);
}

#[test]
fn a_rollback_survives_a_power_cut_at_every_moment_of_bootc() {
    a_rollback_survives_every_moment(Tool::Bootc, &[]);
}
