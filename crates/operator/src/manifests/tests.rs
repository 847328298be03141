//! Tests of the manifests as a whole.

use std::collections::BTreeSet;

use super::*;

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn everything() -> Vec<Value> {
    let parameters = Parameters::new(IMAGE);
    install(&parameters).into_iter().chain(all_operands(&parameters)).collect()
}

#[test]
fn every_object_has_a_name_of_its_own_and_the_label() {
    let mut names = BTreeSet::new();
    for object in everything() {
        let name = ObjectName::of(&object);
        assert!(!name.kind.is_empty() && !name.name.is_empty(), "{object}");
        let labels = object.pointer("/metadata/labels").unwrap();
        assert_eq!(labels[MANAGED_BY.0], MANAGED_BY.1, "{name}");
        assert!(names.insert(name.clone()), "{name} exists twice");
    }
}

#[test]
fn workloads_have_probes_requests_and_a_security_context() {
    let workloads = everything().into_iter().filter(|it| text(it, "/apiVersion") == "apps/v1");
    let mut count = 0;
    for workload in workloads {
        let name = ObjectName::of(&workload);
        let pod = workload.pointer("/spec/template/spec").unwrap();
        assert!(text(pod, "/priorityClassName").starts_with("system-"), "{name}");
        let container = pod.pointer("/containers/0").unwrap();
        for member in ["livenessProbe", "readinessProbe", "securityContext"] {
            assert!(container.get(member).is_some(), "{name}: {member}");
        }
        assert!(container.pointer("/resources/requests/memory").is_some(), "{name}");
        let context = container.get("securityContext").unwrap();
        let is_daemon = name.name == rules::DAEMON_NAME;
        assert_eq!(context.get("privileged").is_some(), is_daemon, "{name}");
        assert_eq!(context.get("runAsNonRoot").is_some(), !is_daemon, "{name}");
        count += 1;
    }
    assert_eq!(count, 4);
}

/// k3s, RKE2 and k0s give the labels of roles the value `true`.
#[test]
fn the_config_server_selects_control_plane_nodes_whatever_the_value_of_their_label() {
    let objects = operands(Stage::MachineConfigServer, &Parameters::new(IMAGE));
    let pod = objects.last().unwrap().pointer("/spec/template/spec").unwrap();
    assert_eq!(pod.get("nodeSelector"), None);
    let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = pod.pointer(terms).unwrap()["nodeSelectorTerms"].as_array().unwrap();
    let keys: Vec<&str> = terms
        .iter()
        .map(|term| {
            let expression = &term["matchExpressions"][0];
            assert_eq!(expression["operator"], "Exists");
            expression["key"].as_str().unwrap()
        })
        .collect();
    let expected =
        ["node-role.kubernetes.io/control-plane", "node.kubernetes.io/microk8s-controlplane"];
    assert_eq!(keys, expected);
}

#[test]
fn no_rule_has_a_wildcard_and_the_operator_gives_rights_by_name_only() {
    for object in everything() {
        let name = ObjectName::of(&object);
        for rule in object.get("rules").and_then(Value::as_array).into_iter().flatten() {
            assert!(!rule.to_string().contains("\"*\""), "{name}: {rule}");
            let verbs: Vec<_> = rule["verbs"].as_array().unwrap().iter().collect();
            if verbs.iter().any(|verb| **verb == "escalate" || **verb == "bind") {
                assert!(rule.get("resourceNames").is_some(), "{name}: {rule}");
            }
        }
    }
}

// covers: O20
#[test]
fn network_policies_have_the_names_and_the_order_of_the_reference() {
    let policies = operands(Stage::NetworkPolicies, &Parameters::new(IMAGE));
    let names: Vec<_> = policies.iter().map(|it| ObjectName::of(it).name).collect();
    assert_eq!(
        names,
        [
            "allow-all-egress",
            "allow-machine-config-operator",
            "allow-machine-config-controller",
            "allow-machine-os-builder",
            "default-deny",
        ]
    );
    let last = policies.last().unwrap();
    assert_eq!(last["spec"]["ingress"], json!([]));
    assert_eq!(last["spec"]["egress"], json!([]));
}

#[test]
fn resources_are_the_plurals_of_kinds() {
    let rows = [
        ("NetworkPolicy", "networkpolicies"),
        ("Deployment", "deployments"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ];
    for (kind, plural) in rows {
        let name = ObjectName {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "a".to_owned(),
        };
        assert_eq!(name.resource(), plural);
    }
}

#[test]
fn settings_reach_the_operator() {
    let parameters = Parameters {
        profile: Some("full".into()),
        join_tokens: Some("required".into()),
        ..Parameters::new("registry.test/mco:1")
    };
    let objects = operator(&parameters);
    let deployment = objects.last().unwrap();
    let container = deployment.pointer("/spec/template/spec/containers/0").unwrap();
    assert_eq!(container["image"], "registry.test/mco:1");
    let args = container["args"].to_string();
    for word in ["--operator-image=registry.test/mco:1", "--profile=full", "--join-tokens=required"]
    {
        assert!(args.contains(word), "{args}");
    }
}

#[test]
fn an_installation_in_another_namespace_is_in_no_other_one() {
    let of = |namespace: &str| {
        let parameters =
            Parameters { namespace: namespace.to_owned(), ..Parameters::new("openshift.test/a:1") };
        let install = namespaces(&parameters).into_iter().chain(operator(&parameters));
        let conditional = conditional(namespace).into_iter().map(|(_, object)| object);
        install.chain(all_operands(&parameters)).chain(conditional).collect::<Vec<_>>()
    };
    let (standard, other) = (of(label::NAMESPACE), of("node-config"));
    assert_eq!(standard.len(), other.len());
    for object in &other {
        let (name, text) = (ObjectName::of(object), object.to_string());
        assert!(!text.contains(NAMESPACE) && !text.contains(label::NAMESPACE), "{name}: {text}");
    }
    let in_text = |objects: &[Value], text: &str| {
        objects.iter().filter(|object| object.to_string().contains(text)).count()
    };
    assert_eq!(in_text(&standard, label::NAMESPACE), in_text(&other, "node-config"));
    let flags = |objects: &[Value]| in_text(objects, "\"--namespace=");
    assert_eq!((flags(&standard), flags(&other)), (0, 4), "each process is told");
}
