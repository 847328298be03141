use mco_api::label;

use super::*;
use crate::join::{
    authorize,
    fixture::{at, machine, stored, text},
};

fn approve(
    request: &CertificateRequest,
    node: Option<&NodeFacts>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Option<Verdict> {
    super::approve(label::NAMESPACE, request, node, evidence, now)
}

fn request(node: &str) -> CertificateRequest {
    let group = format!("system:serviceaccounts:{}", label::NAMESPACE);
    CertificateRequest {
        name: "csr-1".to_owned(),
        signer: CLIENT_SIGNER.to_owned(),
        user: bootstrapper(label::NAMESPACE),
        groups: vec![group, "system:authenticated".to_owned()],
        usages: ["digital signature", "client auth"].map(str::to_owned).to_vec(),
        subject: Subject {
            common_names: vec![format!("system:node:{node}")],
            organizations: vec!["system:nodes".to_owned()],
            has_others: false,
        },
        names: Names::default(),
    }
}

fn serving(node: &str) -> CertificateRequest {
    CertificateRequest {
        signer: SERVING_SIGNER.to_owned(),
        user: format!("system:node:{node}"),
        groups: vec!["system:nodes".to_owned()],
        usages: ["digital signature", "server auth"].map(str::to_owned).to_vec(),
        names: Names {
            dns: vec![node.to_owned()],
            addresses: vec!["10.0.0.1".parse().unwrap()],
            others: Vec::new(),
        },
        ..request(node)
    }
}

fn node(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.to_owned(),
        machine_id: "a".repeat(32),
        addresses: vec!["10.0.0.1".to_owned(), format!("{name}.test"), "2001:db8::1".to_owned()],
        created: Some(at(10)),
        ready: false,
    }
}

/// Returns token `number` with the joins of machines, each with the node name that it told.
fn joined(number: u32, pool: &str, names: &[&str]) -> StoredToken {
    let mut token = stored(number, |token| {
        token.uses = 9;
        pool.clone_into(&mut token.pool);
    });
    for (index, name) in names.iter().enumerate() {
        let mut machine = machine(u32::try_from(index).unwrap() + 1);
        (*name).clone_into(&mut machine.node);
        let secret = text(number);
        let admitted = authorize(&secret, Some(&token), pool, &machine, at(0)).unwrap();
        token.joins = admitted.record.unwrap();
    }
    token
}

/// Returns the faults as one text.
fn faults(request: &CertificateRequest, node: Option<&NodeFacts>) -> String {
    approve(request, node, Evidence::Credential, at(60)).unwrap().text()
}

#[test]
fn only_the_request_of_a_kubelet_is_approved() {
    let with = |change: fn(&mut CertificateRequest)| {
        let mut changed = request("a");
        change(&mut changed);
        faults(&changed, None)
    };
    let rows = [
        (with(|_| {}), ""),
        (with(|r| r.usages.push("key encipherment".to_owned())), ""),
        (with(|r| r.usages.push("server auth".to_owned())), "usages"),
        (with(|r| r.usages.retain(|usage| usage == "client auth")), "usages"),
        (with(|r| r.usages.clear()), "usages"),
        (
            with(|r| r.user = "system:serviceaccount:default:node-bootstrapper".to_owned()),
            "requested by",
        ),
        (with(|r| r.user = "system:bootstrap:abcdef".to_owned()), "requested by"),
        (with(|r| r.user = "system:node:b".to_owned()), "requested by"),
        (with(|r| r.groups.clear()), "group"),
        (with(|r| r.subject.organizations.push("system:masters".to_owned())), "O=system:masters"),
        (with(|r| r.subject.organizations.clear()), "subject"),
        (with(|r| r.subject.common_names = vec!["kubernetes-admin".to_owned()]), "subject"),
        (with(|r| r.subject.common_names.push("system:node:b".to_owned())), "subject"),
        (with(|r| r.subject.has_others = true), "other attributes"),
        (with(|r| r.subject.common_names = vec!["system:node:".to_owned()]), "name of a node"),
        (with(|r| r.subject.common_names = vec!["system:node:A B".to_owned()]), "name of a node"),
        (with(|r| r.names.dns.push("api".to_owned())), "alternative names"),
        (with(|r| r.names.others.push("x@y".to_owned())), "alternative names"),
    ];
    for (found, expected) in rows {
        assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
        assert!(found.contains(expected), "{found}: no {expected}");
    }
    let mut other = request("a");
    other.signer = "kubernetes.io/kube-apiserver-client".to_owned();
    assert_eq!(approve(&other, None, Evidence::Credential, at(0)), None);
    // All faults are named, not only the first.
    let all = with(|r| {
        r.usages.clear();
        r.groups.clear();
        r.names.dns.push("api".to_owned());
    });
    assert_eq!(all.split("; ").count(), 3, "{all}");
}

#[test]
fn a_node_renews_its_own_certificate_and_no_other() {
    let mut own = request("a");
    own.user = "system:node:a".to_owned();
    own.groups = vec!["system:nodes".to_owned()];
    let verdict = approve(&own, Some(&node("a")), Evidence::Joins(&[]), at(60)).unwrap();
    assert_eq!((verdict.kind, verdict.text()), (RequestKind::Renewal, String::new()));
    own.groups.clear();
    assert!(faults(&own, Some(&node("a"))).contains("group"));
    let mut other = request("b");
    other.user = "system:node:a".to_owned();
    assert!(faults(&other, None).contains("requested by system:node:a"));
}

#[test]
fn a_serving_certificate_has_only_names_of_its_node() {
    let with = |change: fn(&mut CertificateRequest)| {
        let mut changed = serving("a");
        change(&mut changed);
        faults(&changed, Some(&node("a")))
    };
    let rows = [
        (with(|_| {}), ""),
        (with(|r| r.names.dns.push("a.test".to_owned())), ""),
        (with(|r| r.names.addresses.push("2001:db8::1".parse().unwrap())), ""),
        (with(|r| r.names.dns.clear()), ""),
        (with(|r| r.names.dns.push("kubernetes.default.svc".to_owned())), "kubernetes.default.svc"),
        (with(|r| r.names.addresses.push("10.0.0.2".parse().unwrap())), "10.0.0.2"),
        (with(|r| r.names.others.push("spiffe://x".to_owned())), "spiffe://x"),
        (with(|r| r.names = Names::default()), "needs the names"),
        (with(|r| r.user = bootstrapper(label::NAMESPACE)), "requested by"),
        (with(|r| r.user = "system:node:b".to_owned()), "requested by"),
        (with(|r| r.usages = vec!["client auth".to_owned()]), "usages"),
    ];
    for (found, expected) in rows {
        assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
        assert!(found.contains(expected), "{found}: no {expected}");
    }
    assert!(faults(&serving("a"), None).contains("does not exist"));
    assert!(faults(&serving("a"), Some(&node("b"))).contains("does not exist"));
}

#[test]
fn the_name_of_an_existing_node_is_not_given_to_another_machine() {
    assert!(faults(&request("a"), Some(&node("a"))).contains("node a exists"));
    let told = joined(1, "worker", &["a"]);
    let decide = |token: &StoredToken, node: &NodeFacts, now| {
        let tokens = std::slice::from_ref(token);
        approve(&request("a"), Some(node), Evidence::Joins(tokens), now).unwrap()
    };
    // The machine itself told the name, and anyone with a token can.
    assert!(decide(&told, &node("a"), at(60)).text().contains("node a exists"));
    // The administrator made the token for that node.
    let mut bound = told.clone();
    bound.token.binding.node = "a".to_owned();
    assert!(decide(&bound, &node("a"), at(60)).is_approved());
    bound.joins[0].approved = "a".to_owned();
    assert!(!decide(&bound, &node("a"), at(60)).is_approved(), "the join is used up");
    // The machine lost its certificate just after it became a node.
    let mut lost = told.clone();
    lost.joins[0].approved = "a".to_owned();
    lost.joins[0].machine_id = "a".repeat(32);
    assert!(decide(&lost, &node("a"), at(60)).is_approved());
    let rows = [
        ("ready", NodeFacts { ready: true, ..node("a") }, at(60)),
        ("another machine", NodeFacts { machine_id: "b".repeat(32), ..node("a") }, at(60)),
        ("an older node", NodeFacts { created: Some(at(-10)), ..node("a") }, at(60)),
        ("later", node("a"), at(3700)),
    ];
    for (case, node, now) in rows {
        assert!(!decide(&lost, &node, now).is_approved(), "{case}");
    }
}

#[test]
fn with_tokens_each_join_is_good_for_one_node() {
    let decide = |name: &str, tokens: &[StoredToken], now| {
        approve(&request(name), None, Evidence::Joins(tokens), now).unwrap()
    };
    let mut token = joined(1, "worker", &["a", ""]);
    let first = decide("a", std::slice::from_ref(&token), at(60));
    let claim = first.claim.clone().expect("a join");
    assert!(first.is_approved());
    assert_eq!((claim.pool.as_str(), claim.joins[0].approved.as_str()), ("worker", "a"));
    token.joins = claim.joins;
    // Its machine lost power before the node existed.
    assert!(decide("a", std::slice::from_ref(&token), at(60)).is_approved());
    // The second machine did not tell its name.
    let second = decide("b", std::slice::from_ref(&token), at(60)).claim.expect("a join");
    assert_eq!((second.joins[1].approved.as_str(), second.joins[1].node.as_str()), ("b", "b"));
    token.joins = second.joins;
    assert!(decide("c", std::slice::from_ref(&token), at(60)).text().contains("no machine"));
    assert!(decide("a", &[], at(60)).text().contains("no machine"));

    let mut given = joined(1, "worker", &["a"]);
    given.joins = decide("a", std::slice::from_ref(&given), at(60)).claim.expect("a join").joins;
    assert!(decide("a", std::slice::from_ref(&given), at(60 + 3599)).is_approved());
    let later = decide("a", std::slice::from_ref(&given), at(60 + 3600));
    assert!(!later.is_approved(), "a name that was given away is not given again");
    let fresh = joined(1, "worker", &["a"]);
    assert!(decide("b", std::slice::from_ref(&fresh), at(60)).text().contains("no machine"));
    let day = 24 * 3600;
    assert!(decide("a", std::slice::from_ref(&fresh), at(day - 1)).is_approved());
    assert!(!decide("a", std::slice::from_ref(&fresh), at(day)).is_approved());
}

#[test]
fn without_required_tokens_a_join_is_used_up_if_there_is_one() {
    let token = joined(1, "worker", &["a"]);
    let tokens = std::slice::from_ref(&token);
    let decide = |name, node| approve(&request(name), node, Evidence::Optional(tokens), at(60));
    assert_eq!(decide("a", None).unwrap().claim.unwrap().joins[0].approved, "a");
    let other = decide("b", None).unwrap();
    assert!(other.is_approved() && other.claim.is_none());
    assert!(!decide("b", Some(&node("b"))).unwrap().is_approved());
}

#[test]
fn a_machine_without_a_name_is_not_taken_for_one_of_another_pool() {
    let tokens = [joined(1, "worker", &[""]), joined(2, "master", &[""])];
    let verdict = approve(&request("a"), None, Evidence::Joins(&tokens), at(60)).unwrap();
    assert!(verdict.text().contains("master, worker"), "{}", verdict.text());
    assert_eq!(verdict.claim, None);
    let tokens = [joined(1, "worker", &[""]), joined(2, "master", &["a"])];
    let verdict = approve(&request("a"), None, Evidence::Joins(&tokens), at(60)).unwrap();
    assert_eq!(verdict.claim.unwrap().pool, "master");
}
