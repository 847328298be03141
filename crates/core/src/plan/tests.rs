//! Tests of the actions and steps of each change, and of their order.

use mco_api::machine_configuration::disruption::{ActionType, FilePolicy, PolicyAction};

use super::*;
use crate::{fixture::machine, machine::Machine};

fn plan(from: &str, to: &str) -> NodePlan {
    let policies = default_policies();
    node(&machine("old", from), &machine("new", to), &policies, &Circumstances::default()).unwrap()
}

fn actions(plan: &NodePlan) -> String {
    plan.actions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn steps(plan: &NodePlan) -> String {
    plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// covers: C47, C49, C50
#[test]
fn the_policy_decides_what_happens_and_a_reboot_covers_the_rest() {
    let ca = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
    let dropin =
        "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
    let cases = [
        ("/etc/foo=1".to_owned(), "reboot", true),
        ("a.service=x".to_owned(), "reboot", true),
        ("karg:a".to_owned(), "reboot", true),
        ("key:a".to_owned(), "nothing", false),
        ("/var/lib/kubelet/config.json=1".to_owned(), "nothing", false),
        ("/etc/nmstate/openshift/x/y.yml=1".to_owned(), "nothing", false),
        ("/etc/nmstate/openshift-not=1".to_owned(), "reboot", true),
        ("/etc/containerd/certs.d/r.example/hosts.toml=1".to_owned(), "nothing", false),
        ("/etc/containerd/config.toml=1".to_owned(), "reboot", true),
        ("/etc/containers/policy.json=1".to_owned(), "reload crio.service", false),
        (
            "/etc/containers/policy.json=1 /etc/crio/policies/a=1".to_owned(),
            "reload crio.service",
            false,
        ),
        ("/etc/containers/policy.json=1 key:a /etc/foo=1".to_owned(), "reboot", true),
        (format!("{ca}=1"), "restart coreos-update-ca-trust.service, restart crio.service", false),
        (
            format!("/etc/kubernetes/credential-providers/a=1 {dropin}=1"),
            "reload systemd, restart kubelet.service",
            false,
        ),
        (
            "iri-registry.service=x".to_owned(),
            "reload systemd, restart iri-registry.service",
            false,
        ),
        (String::new(), "nothing", false),
    ];
    for (to, want, drain) in cases {
        let plan = plan("", &to);
        assert_eq!(actions(&plan), want, "{to}\n{plan}");
        assert_eq!(matches!(plan.drain, Drain::Needed(_)), drain, "{to}\n{plan}");
        assert_eq!(plan.reboots(), want == "reboot", "{to}\n{plan}");
    }
}

// covers: C48, C52
#[test]
fn the_longest_path_wins_and_the_administrator_replaces_a_default() {
    let policy = |path: &str, kind: ActionType| FilePolicy {
        path: path.to_owned(),
        actions: vec![PolicyAction { kind, ..PolicyAction::default() }],
    };
    let admin = mco_api::machine_configuration::disruption::NodeDisruptionPolicyConfig {
        files: vec![
            policy("/etc/a", ActionType::DaemonReload),
            policy("/etc/a/b", ActionType::Drain),
            policy("/etc/a/b/c", ActionType::None),
            policy("/etc/containers/policy.json", ActionType::None),
            policy("/etc/new", ActionType::Other("Hibernate".to_owned())),
        ],
        ..Default::default()
    };
    let policies = merge_policies(&admin);
    let cases = [
        ("/etc/a/x", "reload systemd"),
        ("/etc/a/b/x", "drain"),
        ("/etc/a/b/c", "nothing"),
        ("/etc/a/b/cc", "drain"),
        ("/etc/containers/policy.json", "nothing"),
        ("/etc/containers/registries.d/x", "reload crio.service"),
        ("/etc/new", "reboot"),
    ];
    for (path, want) in cases {
        let to = machine("new", &format!("{path}=1"));
        let plan = node(&machine("old", ""), &to, &policies, &Circumstances::default()).unwrap();
        assert_eq!(actions(&plan), want, "{path}");
    }
}

#[test]
fn a_change_of_encoding_only_has_no_action() {
    let plan = plan("/etc/foo=%61", "/etc/foo=a");
    assert_eq!(actions(&plan), "nothing");
    assert!(!steps(&plan).contains("write /etc/foo"), "{plan}");
}

// covers: C66, C67
#[test]
fn steps_write_before_they_remove_and_record_the_config_before_services_are_told() {
    let from = "/etc/a=1 /etc/gone=1 /etc/docker/certs.d/r/ca.crt=1 /etc/systemd/system/u.service.d/x.conf=1 old.service=x u.service/y.conf=1 key:a os:1";
    let to = "/etc/a=2 /etc/new=1 new.service=x u.service/x.conf=1 key:b os:2 karg:k";
    assert_eq!(
        steps(&plan(from, to)),
        "write /etc/a; write /etc/new; write unit new.service; write drop-in x.conf of u.service; \
         remove drop-in y.conf of u.service; preset u.service; enable new.service; remove /etc/gone; \
         preset old.service; remove unit old.service; \
         protect the kubelet's credentials; write SSH keys; set the password; stage OS image 2; \
         stage kernel arguments -[] +[k]; record the config; reboot"
    );
}

// covers: C69, C74, C93
#[test]
fn masks_are_added_and_removed_and_force_writes_everything_again() {
    let mut from = machine("old", "/etc/a=1 a.service=x b.service");
    from.config.systemd.units[1].mask = Some(false);
    let mut to = from.clone();
    to.config.systemd.units[0].mask = Some(true);
    to.config.systemd.units[0].enabled = None;
    let at = Circumstances::default();
    let plan = node(&from, &to, &default_policies(), &at).unwrap();
    assert!(steps(&plan).starts_with("mask a.service; preset a.service;"), "{plan}");

    let at = Circumstances { force: Force::Yes, ..Circumstances::default() };
    from.spec.kernel_arguments = vec!["k=1".to_owned()];
    let plan = node(&from, &from, &default_policies(), &at).unwrap();
    assert_eq!(
        steps(&plan),
        "write /etc/a; write unit a.service; unmask b.service; preset b.service; \
         enable a.service; protect the kubelet's credentials; stage kernel arguments -[k=1] +[k=1]; \
         record the config; remove the force file; reboot"
    );
    // Also without an OS image.
    from.spec.kernel_type = "realtime".to_owned();
    from.spec.extensions = vec!["usbguard".to_owned()];
    let plan = node(&from, &from, &default_policies(), &at).unwrap();
    let again =
        "stage kernel realtime; stage extensions -[usbguard] +[usbguard]; record the config";
    assert!(steps(&plan).contains(again), "{plan}");
}

// covers: C74, C79
#[test]
fn only_differences_are_written() {
    let from = "/etc/a=1 /etc/b=1 a.service=x b.service=x karg:k os:1 ext:e";
    let to = "/etc/a=2 /etc/b=1 a.service=y b.service=x karg:k os:1 ext:e";
    assert_eq!(
        steps(&plan(from, to)),
        "write /etc/a; write unit a.service; enable a.service; protect the kubelet's credentials; \
         record the config; reboot"
    );
}

#[test]
fn a_path_that_moves_to_another_section_keeps_its_new_contents() {
    let path = "/etc/systemd/system/u.service.d/x.conf";
    let (file, dropin) = (format!("{path}=1"), "u.service/x.conf=1");
    let steps_to_file = steps(&plan(dropin, &file));
    assert!(steps_to_file.contains(&format!("write {path}")), "{steps_to_file}");
    assert!(!steps_to_file.contains("remove drop-in"), "{steps_to_file}");
    let (file, unit) = ("/etc/systemd/system/u.service=1", "u.service=x");
    assert!(!steps(&plan(file, unit)).contains("remove /etc"));
    assert!(!steps(&plan(unit, file)).contains("remove unit"));
}

#[test]
fn first_boot_writes_the_cluster_certificate_and_restarts_nothing() {
    let to = machine("new", "/etc/kubernetes/kubelet-ca.crt=1 os:1");
    let at = Circumstances { mode: ApplyMode::FirstBoot, ..Circumstances::default() };
    let first = node(&Machine::blank(), &to, &default_policies(), &at).unwrap();
    assert_eq!(
        steps(&first),
        "write /etc/kubernetes/kubelet-ca.crt; stage OS image 1; record the config"
    );
    assert!(!steps(&plan("", "/etc/kubernetes/kubelet-ca.crt=1")).contains("kubelet-ca.crt"));
}

// covers: C55
#[test]
fn a_registry_change_drains_only_when_running_pods_could_notice() {
    let mirror = |location: &str, pull: &str| {
        format!("[[registry.mirror]]\nlocation='{location}'\npull-from-mirror='{pull}'\n")
    };
    let registry = |rest: &str| format!("[[registry]]\nlocation='r'\n{rest}");
    let m1 = mirror("m1", "digest-only");
    let cases = [
        (
            "search added at the end",
            "unqualified-search-registries=['a']".into(),
            "unqualified-search-registries=['a','b']".into(),
            false,
        ),
        (
            "search reordered",
            "unqualified-search-registries=['a','b']".into(),
            "unqualified-search-registries=['b','a']".into(),
            true,
        ),
        ("search removed", "unqualified-search-registries=['a']".into(), String::new(), true),
        ("digest mirror added", registry(""), registry(&m1), false),
        ("tag mirror added", registry(""), registry(&mirror("m1", "all")), true),
        (
            "tag mirror under a digest registry",
            registry("mirror-by-digest-only=true\n"),
            registry(&format!("mirror-by-digest-only=true\n{}", mirror("m", ""))),
            false,
        ),
        ("mirror removed", registry(&m1), registry(""), true),
        ("mirror starts to serve tags", registry(&m1), registry(&mirror("m1", "all")), true),
        ("mirror stops to serve tags", registry(&mirror("m1", "all")), registry(&m1), false),
        ("registry blocked", registry(""), registry("blocked=true\n"), true),
        ("registry insecure", registry(""), registry("insecure=true\n"), true),
        (
            "registry moved",
            registry("prefix='p'\n"),
            "[[registry]]\nlocation='q'\nprefix='p'".into(),
            true,
        ),
        ("registry removed", registry(""), String::new(), true),
        ("digest registry added", String::new(), registry(&m1), false),
        ("bare registry added", String::new(), registry(""), true),
        (
            "bare digest registry added",
            String::new(),
            registry("mirror-by-digest-only=true\n"),
            false,
        ),
    ];
    for (case, old, new, want) in cases {
        let with = |name: &str, text: &str| {
            let mut machine = machine(name, &format!("{}=", registries::PATH));
            let hex: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let source = format!("data:,{}", hex.concat());
            machine.config.storage.files[0].contents.source = Some(source);
            machine
        };
        let plan = node(
            &with("old", &old),
            &with("new", &new),
            &default_policies(),
            &Circumstances::default(),
        )
        .unwrap();
        assert_eq!(actions(&plan), "reload crio.service", "{case}");
        assert_eq!(matches!(plan.drain, Drain::Needed(_)), want, "{case}\n{plan}");
        assert!(steps(&plan).ends_with("reload crio"), "{plan}");
    }
}

#[test]
fn a_malformed_registries_file_is_refused() {
    let to = machine("new", "/etc/containers/registries.conf=%5b%5b");
    let refusal = node(&machine("old", ""), &to, &default_policies(), &Circumstances::default());
    let text = refusal.unwrap_err().to_string();
    assert!(
        text.starts_with(
            "failed decoding TOML content from file /etc/containers/registries.conf: "
        ),
        "{text}"
    );
}

#[test]
fn a_refusal_uses_the_words_of_the_reference() {
    let refusal = node(
        &machine("old", ""),
        &machine("new", "fips"),
        &default_policies(),
        &Circumstances::default(),
    );
    assert_eq!(
        refusal.unwrap_err().to_string(),
        "can't reconcile config old with new: configs old, new are not reconcilable: \
         new machineconfig \"old\" is not reconcilable against \"new\": \
         detected change to FIPS flag; refusing to modify FIPS on a running cluster"
    );
    let at = Circumstances { kernel_fips: Some(true), ..Circumstances::default() };
    let refusal = node(&machine("old", ""), &machine("new", ""), &default_policies(), &at);
    assert_eq!(
        refusal.unwrap_err().to_string(),
        "can't reconcile config old with new: \
         detected change to FIPS flag; refusing to modify FIPS on a running cluster"
    );
}

#[test]
fn a_plan_can_be_serialized_and_displayed() {
    let plan = plan("", "/etc/foo=1 key:a");
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<NodePlan>(&text).unwrap(), plan);
    assert_eq!(
        plan.to_string(),
        "old -> new: reboot needed, drain needed (reboot)\n  \
         file /etc/foo added: reboot (no policy covers it)\n  \
         SSH keys or password: nothing (policy for SSH keys)\n    \
         1. write /etc/foo\n    2. protect the kubelet's credentials\n    3. write SSH keys\n    \
         4. set the password\n    5. record the config\n    6. reboot\n"
    );
}

#[test]
fn every_step_has_the_rule_that_decided_it() {
    let plan = plan("", "/etc/foo=1 /etc/containers/policy.json=1 a.service=x karg:k key:a");
    let why = |step: &Step| {
        let rules = plan.why(step).into_iter().map(|decision| decision.rule.to_string());
        rules.collect::<Vec<_>>().join(", ")
    };
    let cases = [
        (Step::WriteFile("/etc/foo".to_owned()), "no policy covers it"),
        (
            Step::WriteFile("/etc/containers/policy.json".to_owned()),
            "policy for /etc/containers/policy.json",
        ),
        (Step::EnableUnit("a.service".to_owned()), "no policy covers it"),
        (Step::WriteKeys, "policy for SSH keys"),
        (Step::RecordConfig, ""),
        (
            Step::Reboot,
            "the operating system changes only at boot, no policy covers it, no policy covers it",
        ),
    ];
    for (step, rules) in cases {
        assert_eq!(why(&step), rules, "{step}");
    }
}

// covers: C64
#[test]
fn related_paths_are_removed_before_they_are_written() {
    let cases = [
        ("/etc/a=1 /etc/z=1", "/etc/a/b=1 /etc/z=2", "remove /etc/a; write /etc/a/b; write /etc/z"),
        ("/etc/a/b=1 /etc/a/c/d=1", "/etc/a=1", "remove /etc/a/b; remove /etc/a/c/d; write /etc/a"),
        // Unrelated paths are written first: a crash in between leaves a file too many.
        ("/etc/a=1", "/etc/ab=1", "write /etc/ab; remove /etc/a"),
        (
            "a.service=x",
            "/etc/systemd/system/a.service/b=1",
            "preset a.service; remove unit a.service; write /etc/systemd/system/a.service/b",
        ),
    ];
    for (from, to, want) in cases {
        let found = steps(&plan(from, to));
        assert!(found.starts_with(want), "{from} -> {to}: {found}");
    }
}

// covers: C60
#[test]
fn a_config_with_paths_that_exclude_one_another_is_refused() {
    let refused = |to: &str| {
        let (from, to) = (machine("old", ""), machine("new", to));
        let refusal = node(&from, &to, &default_policies(), &Circumstances::default());
        refusal.unwrap_err().to_string()
    };
    assert_eq!(
        refused("/etc/a=1 /etc/a/b=1"),
        "can't reconcile config old with new: machineconfig \"new\" cannot be applied: /etc/a/b is \
         below /etc/a, which is a file of the same config"
    );
    let text = refused("/etc/systemd=1");
    assert!(text.ends_with("/etc/systemd cannot be a file: it is a directory of the system"));
}

// covers: C80, C83
#[test]
fn kernel_and_extensions_are_staged_again_with_a_new_image() {
    let staged = |from: &str, to: &str| {
        let plan = plan(from, to);
        let staged = plan.steps.iter().filter(|step| step.stages());
        staged.map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let base = "kernel:realtime ext:usbguard";
    assert_eq!(
        staged(&format!("os:1 {base}"), &format!("os:2 {base}")),
        "stage OS image 2; stage kernel realtime; stage extensions -[usbguard] +[usbguard]"
    );
    assert_eq!(staged(&format!("os:1 {base}"), &format!("os:1 {base} /etc/a=1")), "");
    assert_eq!(staged("os:1", "os:2"), "stage OS image 2");
    // A config without an image has no opinion.
    assert_eq!(staged(&format!("os:1 {base}"), base), "");
    assert_eq!(staged("os:1", "kernel:realtime"), "stage kernel realtime");
}

// covers: C68, C73
#[test]
fn units_are_enabled_after_drop_ins_are_removed_and_again_if_one_is_disabled_after() {
    let cases = [
        (
            "a.service=x a.service/b.conf=1",
            "a.service=x",
            "write unit a.service; remove drop-in b.conf of a.service; enable a.service",
        ),
        ("a.service=x", "a.service", "remove unit a.service; preset a.service"),
    ];
    for (from, to, want) in cases {
        let found = steps(&plan(from, to));
        assert!(found.starts_with(want), "{from} -> {to}: {found}");
    }
    let mut from = machine("old", "a.service=x v.service=x");
    let mut to = machine("new", "a.service=x");
    for config in [&mut from, &mut to] {
        let unit = &mut config.config.systemd.units[0];
        unit.enabled = Some(true);
        unit.contents = Some("[Install]\nAlso=v.service\n".to_owned());
    }
    let again = node(&from, &to, &default_policies(), &Circumstances::default()).unwrap();
    let want = "preset v.service; remove unit v.service; enable a.service";
    assert!(steps(&again).starts_with(want), "{}", steps(&again));
}

// covers: C68
#[test]
fn an_alias_and_a_file_in_its_place_make_way_for_each_other() {
    let unit = "/etc/systemd/system/z.service=1";
    let cases = [
        (
            "z.service=x",
            "u.service=x",
            "preset z.service; remove unit z.service; write unit u.service",
        ),
        (unit, "u.service=x", "remove /etc/systemd/system/z.service; write unit u.service"),
        (
            "u.service=x z.service=x",
            "u.service=x",
            "preset z.service; remove unit z.service; enable u.service",
        ),
    ];
    for (from, to, want) in cases {
        let (mut from, mut to) = (machine("old", from), machine("new", to));
        for unit in from.config.systemd.units.iter_mut().chain(&mut to.config.systemd.units) {
            if unit.name == "u.service" {
                unit.enabled = Some(true);
                unit.contents = Some("[Install]\nAlias = y.service z.service\n".to_owned());
            }
        }
        let found = node(&from, &to, &default_policies(), &Circumstances::default()).unwrap();
        let found = steps(&found);
        assert!(found.starts_with(want), "{found}");
        assert!(found.contains("enable u.service"), "{found}");
    }
}
