use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use rustix::io::Errno;
use zbus::{Message, Variant};

use self::stand_in::{Answer, serve};
use super::*;
use crate::fault::{Fault, Faults};

mod stand_in;

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=m.target\n";

/// Returns the name of a unit to start, and its properties as text.
fn started(call: &Message) -> (String, String) {
    type Properties<'a> = Vec<(&'a str, Variant<'a>)>;
    let body = call.body();
    let (unit, _, properties, _): (&str, &str, Properties<'_>, Vec<(&str, Properties<'_>)>) =
        body.deserialize().unwrap();
    (unit.to_owned(), format!("{properties:?}"))
}

// covers: C90
#[test]
fn a_reboot_that_hangs_does_not_replace_the_next_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let units = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&units);
    serve(folder.path(), move |member, call| {
        if member != "StartTransientUnit" {
            return Answer::Done;
        }
        let (unit, properties) = started(call);
        let mut seen = seen.lock().unwrap();
        // None of them ends.
        if seen.iter().any(|(other, _)| *other == unit) {
            return Answer::Refused(UNIT_EXISTS);
        }
        seen.push((unit, properties));
        Answer::Done
    });
    let mut system = SystemdSystem::open(folder.path()).unwrap();
    for attempt in 1..=3 {
        system.reboot("a reason").unwrap();
        assert_eq!(units.lock().unwrap().len(), attempt, "a reboot was started");
    }
    let units = units.lock().unwrap();
    assert_eq!(units[0].0, "machine-config-daemon-reboot.service");
    let limit = command::REBOOT_LIMIT.as_micros().to_string();
    for (unit, properties) in &*units {
        assert!(unit.starts_with("machine-config-daemon-reboot"), "{unit}");
        let (_, runs) = properties.split_once("RuntimeMaxUSec").expect("a limit of its time");
        assert!(runs.contains(&limit), "{properties}");
    }
    // The machine is told again only after the units before have ended.
    assert!(command::REBOOT_LIMIT < mco_core::lifecycle::Limits::default().reboot);
}

/// Does what systemd does on the machine below `folder`, and returns the directories that are synced.
/// Each sync that fails fails the call.
fn synced(act: impl Fn(&mut SystemdSystem) -> Result<(), SystemError>) -> BTreeSet<String> {
    let mut directories = BTreeSet::new();
    for number in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.write("/etc/systemd/system/u.service", UNIT.as_bytes(), 0o644).unwrap();
        root.link("../other.service", "/etc/systemd/system/old.target.wants/u.service").unwrap();
        serve(folder.path(), move |member, _| {
            let link = "/etc/systemd/system/m.target.wants/u.service";
            if member == "EnableUnitFiles" || member == "PresetUnitFiles" {
                root.link("../u.service", link).unwrap();
            } else if member == "DisableUnitFiles" {
                root.remove("/etc/systemd/system/old.target.wants/u.service").unwrap();
            }
            Answer::Done
        });
        let mut system = SystemdSystem::open(folder.path()).unwrap();
        let faults = Arc::new(Faults::at(number, Fault::Once(Errno::IO)));
        system.root = system.root.with_faults(Arc::clone(&faults));
        let result = act(&mut system);
        let Some(failed) = faults.failed() else {
            result.unwrap();
            return directories;
        };
        assert!(result.is_err(), "{failed}");
        directories.extend(failed.strip_prefix("fsync the directory of ").map(str::to_owned));
    }
    directories
}

#[test]
fn links_that_systemd_changed_are_durable_when_the_call_returns() {
    let all = ["m.target.wants", "old.target.wants", "system"];
    for (found, want) in [
        (synced(|system| system.preset("u.service")), &all[..]),
        (synced(|system| system.disable("u.service")), &all[1..]),
    ] {
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), want);
    }
    // The link that the unit does not ask for is removed, and its directory with it.
    let enabled = synced(|system| system.enable("u.service"));
    assert!(enabled.contains("m.target.wants") && enabled.contains("system"), "{enabled:?}");
}

// covers: C77
#[test]
fn a_bus_outage_is_no_drift() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.write("/etc/systemd/system/u.service", UNIT.as_bytes(), 0o644).unwrap();
    root.write("/etc/systemd/system/off.service", UNIT.as_bytes(), 0o644).unwrap();
    root.link("../u.service", "/etc/systemd/system/m.target.wants/u.service").unwrap();
    root.link("/dev/null", "/etc/systemd/system/masked.service").unwrap();
    let states = |system: &SystemdSystem| {
        ["u.service", "off.service", "masked.service", "none.service"]
            .map(|unit| system.unit_state(unit).unwrap())
    };
    let want = ["enabled", "disabled", "masked", "not-found"];
    // The machine has no bus.
    let mut system = SystemdSystem::open(folder.path()).unwrap();
    assert_eq!(states(&system), want);
    // The bus closes each connection.
    serve(folder.path(), |_, _| Answer::Close);
    assert_eq!(states(&system), want);
    // Nothing else goes by the disk: it does not do what systemd was asked for.
    assert!(system.restart("u.service").is_err());
}

// covers: C133
#[test]
fn a_failed_command_is_described_by_its_output_and_status() {
    let output_text = |stderr: &str, text: &str| {
        let output = Output { status: 3, text: text.to_owned(), stderr: stderr.to_owned() };
        let command = "systemctl reload a".to_owned();
        SystemError::Command { command, fault: failure_text(&output) }.to_string()
    };
    let cases = [
        ("no such unit\n", "", "error running systemctl reload a: no such unit: exit status 3"),
        ("", "printed\n", "error running systemctl reload a: printed: exit status 3"),
        ("both", "printed", "error running systemctl reload a: both: exit status 3"),
        ("", "", "error running systemctl reload a: exit status 3"),
    ];
    for (stderr, text, want) in cases {
        assert_eq!(output_text(stderr, text), want);
    }
    let long = output_text(&format!("{}the reason", "x".repeat(5000)), "");
    assert!(long.contains("[3986 chars before] xxx"), "{long}");
    assert!(long.ends_with("xthe reason: exit status 3"), "{long}");
}

#[test]
fn a_name_without_a_type_is_a_service() {
    let cases = [
        ("crio", "crio.service"),
        ("crio.service", "crio.service"),
        ("a.b", "a.b.service"),
        ("x.timer", "x.timer"),
        ("getty@tty1.service", "getty@tty1.service"),
    ];
    for (given, want) in cases {
        assert_eq!(full_name(given), want);
    }
}
