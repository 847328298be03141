//! The programs of the machine are as unkind as the real ones.

use std::slice::from_ref;

use mco_testkit::lab::Tool;

use crate::{ask, config::booted, done, machine, run};

/// Returns the ids of all deployments, the one that boots next first.
fn deployments(machine: &mco_testkit::lab::Machine) -> Vec<String> {
    let text = ask(machine, "rpm-ostree status --json");
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = status.get("deployments").and_then(|it| it.as_array()).expect("deployments");
    let ids = all.iter().map(|it| it.get("id").and_then(|id| id.as_str()));
    ids.map(|id| id.expect("an id").to_owned()).collect()
}

#[test]
fn rpm_ostree_is_as_unkind_as_the_real_one() {
    let Some(lone) = machine(Tool::RpmOstree) else { return };
    let machine = lone.machine();
    for words in [
        "rpm-ostree deploy 1",
        "rpm-ostree kargs --remove=quiet",
        "rpm-ostree kargs --delete=quiet",
        "rpm-ostree rebase --force ostree-unverified-registry:quay.example/os@sha256:0",
        "rpm-ostree rebase --experimental ostree-unverified-registry:quay.example/os@sha256:0",
        "rpm-ostree rollback",
        "rpm-ostree cleanup",
        "rpm-ostree update --install unknown",
        "rpm-ostree override reset kernel",
    ] {
        let (code, text) = run(machine, words);
        assert_eq!(code, 1, "{words}: {text}");
        assert!(text.contains("error: "), "{words}: {text}");
    }
    let first = format!("mco-{}", booted(machine));
    assert_eq!(deployments(machine), from_ref(&first));
    let (code, text) = run(machine, "touch /usr/new");
    assert_ne!(code, 0, "/usr is read-only: {text}");

    // Staged, and lost with the power.
    ask(machine, "rpm-ostree kargs --append=quiet");
    let all = deployments(machine);
    let [staged, booted_now] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(*booted_now, first);
    assert_ne!(*staged, first, "another serial number of the same commit");
    assert_eq!(staged.split('.').next(), first.split('.').next());
    assert!(ask(machine, "rpm-ostree kargs").ends_with("quiet"));
    let (code, text) = run(machine, "rpm-ostree rollback");
    assert_eq!((code, text.as_str()), (1, "error: Staged deployment (remove with cleanup -p)"));
    done(machine.power_cut());
    done(machine.boot());
    assert_eq!(deployments(machine), from_ref(&first), "lost with the power");

    // Staged, and dropped.
    ask(machine, "rpm-ostree kargs --append=quiet");
    ask(machine, "rpm-ostree cleanup -p");
    assert_eq!(deployments(machine), from_ref(&first));

    // Finalized by a shutdown: /etc is merged then.
    ask(machine, "rpm-ostree kargs --append=quiet");
    done(machine.write("/etc/late.conf", "late"));
    done(machine.reboot());
    let second = format!("mco-{}", booted(machine));
    assert_eq!(deployments(machine), [second.clone(), first.clone()]);
    assert!(ask(machine, "cat /proc/cmdline").ends_with(" quiet"));
    assert_eq!(ask(machine, "cat /etc/late.conf"), "late");

    // Back: the older deployment has an older /etc.
    done(machine.write("/etc/later.conf", "later"));
    ask(machine, "rpm-ostree rollback");
    assert_eq!(deployments(machine), [first.clone(), second.clone()]);
    done(machine.power_cut());
    done(machine.boot());
    assert_eq!(format!("mco-{}", booted(machine)), first, "written at once");
    assert!(run(machine, "cat /etc/later.conf").0 != 0);
    assert_eq!(ask(machine, "cat /etc/late.conf"), "late");
    ask(machine, "rpm-ostree cleanup -r");
    assert_eq!(deployments(machine), [first]);
}
