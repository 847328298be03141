//! The processes: operator, controller, config server and daemons.

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    jiff::SignedDuration,
};
use mco_api::{annotation, cluster_operator::ClusterOperatorCondition, label};

use super::{Facts, Finding, Part, age, counted, version::ClusterVersions};
use crate::status::operator::{Workload, silence_limit};

const OPERATOR: &str = "machine-config-operator";

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = other_operator(facts).into_iter().collect();
    found.extend(report(facts));
    found.extend(leader(facts, Part::Operator, OPERATOR, label::CLUSTER_OPERATOR));
    let controller = "machine-config-controller";
    found.extend(leader(facts, Part::Controller, controller, controller));
    found.extend(daemon_set(facts, Part::Server, "machine-config-server"));
    found.extend(daemon_set(facts, Part::Daemon, "machine-config-daemon"));
    found.extend(failing_pods(facts));
    found.extend(versions(facts));
    found.extend(first_boot(facts));
    found
}

/// Reports that another operator runs the cluster, and what that means for an installation.
fn other_operator(facts: &Facts) -> Option<Finding> {
    let evidence = facts.other_operator.as_ref()?;
    let text = format!(
        "another operator runs this cluster: {evidence}; processes of mco change nothing here without \
         --take-over"
    );
    let fix = "run: mco takeover --check; docs/takeover.md has the steps";
    Some(Finding::warning(Part::Operator, text, fix))
}

/// Repeats the conditions of the ClusterOperator that need attention.
fn report(facts: &Facts) -> Vec<Finding> {
    let Some(operator) = facts.operator.found() else {
        if facts.operator.failure().is_some() {
            return Vec::new();
        }
        let text = format!("there is no ClusterOperator {}", label::CLUSTER_OPERATOR);
        return vec![Finding::error(Part::Operator, text, "start the operator, which creates it")];
    };
    let conditions = operator.status.iter().flat_map(|status| &status.conditions);
    let mut found: Vec<Finding> = conditions.filter_map(|it| condition(facts, it)).collect();
    if found.is_empty() {
        found
            .push(Finding::ok(Part::Operator, "the ClusterOperator is Available and not Degraded"));
    }
    found
}

fn condition(facts: &Facts, condition: &ClusterOperatorCondition) -> Option<Finding> {
    let ClusterOperatorCondition { kind, status, reason, message, .. } = condition;
    let text = |state: &str| format!("the ClusterOperator is {state} ({reason}): {message}");
    match (kind.as_str(), status.as_str()) {
        ("Available", "False") => {
            let fix = format!("see: kubectl logs -n {} deployment/{OPERATOR}", facts.installed_in);
            Some(Finding::error(Part::Operator, text("not Available"), fix))
        }
        ("Degraded", "True") => {
            let fix = "fix the cause; the operator retries by itself";
            Some(Finding::error(Part::Operator, text("Degraded"), fix))
        }
        ("EvaluationConditionsDetected", "True") => {
            let what = if message.is_empty() { reason } else { message };
            let text =
                format!("the ClusterOperator detected settings that matter to support: {what}");
            let fix = "remove the settings, or accept the restriction";
            Some(Finding::warning(Part::Operator, text, fix))
        }
        _ => None,
    }
}

/// Examines a process that elects a leader: its Deployment and its Lease.
fn leader(facts: &Facts, part: Part, deployment: &str, lease: &str) -> Vec<Finding> {
    let lease = find_lease(facts, lease);
    let renewed = lease.and_then(|lease| renewal(facts, lease));
    let is_led = renewed.is_some_and(|(since, limit)| since <= limit);
    let mut findings = Vec::new();
    let pods = pods_of(facts, deployment);
    match pods {
        None if is_led => {
            findings.push(Finding::ok(part, format!("{deployment} runs, not as a Deployment")));
        }
        None if facts.deployments.failure().is_some() => {}
        None if lease.is_none() && runs_outside(facts) => {
            let text = format!("{deployment} does not run in pods of this cluster");
            findings.push(Finding::ok(part, text));
        }
        None => {
            let text = format!("there is no Deployment {deployment}");
            findings.push(Finding::error(part, text, advice(facts, deployment)));
        }
        Some(Workload { desired, ready }) if ready < desired => {
            let text = format!("{ready} of {desired} pods of {deployment} are ready");
            let finding = if is_led { Finding::warning } else { Finding::error };
            findings.push(finding(part, text, logs(facts, deployment)));
        }
        Some(_) if is_led || facts.leases.failure().is_some() => {
            findings.push(Finding::ok(part, format!("{deployment} runs")));
        }
        Some(_) if lease.is_none() && is_mco_up(facts) => {
            let text = format!("{deployment} runs as a part of `mco up`, without a Lease");
            findings.push(Finding::ok(part, text));
        }
        Some(_) if lease.is_none() => {
            let text = format!("{deployment} is ready and holds no Lease");
            findings.push(Finding::warning(part, text, logs(facts, deployment)));
        }
        Some(_) => {}
    }
    if let Some((since, _)) = renewed.filter(|_| !is_led) {
        let text = format!("{deployment} has not renewed its Lease for {}", age(since));
        findings.push(Finding::error(part, text, logs(facts, deployment)));
    }
    findings
}

fn find_lease<'f>(facts: &'f Facts, name: &str) -> Option<&'f Lease> {
    facts.leases.items().iter().find(|it| it.metadata.name.as_deref() == Some(name))
}

/// Returns the time since a Lease was renewed, and the time after which its holder is silent.
fn renewal(facts: &Facts, lease: &Lease) -> Option<(SignedDuration, SignedDuration)> {
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let since = facts.server_now().duration_since(renewed);
    Some((since, SignedDuration::try_from(silence_limit(lease)).ok()?))
}

/// Returns the pods of a Deployment; `None` if it does not exist.
fn pods_of(facts: &Facts, deployment: &str) -> Option<Workload> {
    let mut deployments = facts.deployments.items().iter();
    let found = deployments.find(|it| it.metadata.name.as_deref() == Some(deployment))?;
    Some(Workload::of_deployment(found).unwrap_or(Workload { desired: 1, ready: 0 }))
}

/// Returns the fix of a missing workload: the operator creates those of the other processes.
fn advice(facts: &Facts, name: &str) -> String {
    let install = format!("run: {}", facts.install());
    if name == OPERATOR { install } else { repair(facts, &install) }
}

/// Returns the fix of a missing object that the operator creates by itself: `otherwise` if there is no
/// operator.
pub(super) fn repair(facts: &Facts, otherwise: &str) -> String {
    let lease = find_lease(facts, label::CLUSTER_OPERATOR);
    let is_led =
        lease.and_then(|lease| renewal(facts, lease)).is_some_and(|(since, limit)| since <= limit);
    let namespace = &facts.installed_in;
    match pods_of(facts, OPERATOR) {
        None if is_led => {
            "wait: the operator creates it again within seconds; if it does not, see the \
                           log of the operator"
                .to_owned()
        }
        None => otherwise.to_owned(),
        Some(pods) if pods.ready > 0 => format!(
            "wait: the operator creates it again within seconds; if it does not, see: kubectl logs -n \
             {namespace} deployment/{OPERATOR}"
        ),
        Some(_) => format!(
            "let the operator run, which creates it; see: kubectl describe pods -n {namespace} -l \
             k8s-app={OPERATOR}"
        ),
    }
}

fn logs(facts: &Facts, name: &str) -> String {
    let namespace = &facts.installed_in;
    format!(
        "see: kubectl describe pods -n {namespace} -l k8s-app={name}; kubectl logs -n {namespace} -l \
         k8s-app={name}"
    )
}

/// Returns true if the API server is the embedded one, in which `mco up` stores the pods of processes
/// that run as its parts.
fn is_mco_up(facts: &Facts) -> bool {
    facts.kubernetes.as_ref().is_ok_and(|version| version.ends_with("+mco"))
}

/// Returns true if no process runs in pods, as with `mco up --kubeconfig`.
fn runs_outside(facts: &Facts) -> bool {
    facts.deployments.items().is_empty() && facts.daemon_sets.items().is_empty()
}

fn daemon_set(facts: &Facts, part: Part, name: &str) -> Option<Finding> {
    if facts.daemon_sets.failure().is_some() {
        return None;
    }
    let mut all = facts.daemon_sets.items().iter();
    let Some(found) = all.find(|it| it.metadata.name.as_deref() == Some(name)) else {
        return Some(if runs_outside(facts) {
            Finding::ok(part, format!("{name} does not run in pods of this cluster"))
        } else {
            Finding::error(part, format!("there is no DaemonSet {name}"), advice(facts, name))
        });
    };
    let Some(Workload { desired, ready }) = Workload::of_daemon_set(found) else {
        let text = format!("the DaemonSet {name} has no status yet");
        return Some(Finding::warning(
            part,
            text,
            "wait for the controller manager of the cluster",
        ));
    };
    let pods = usize::try_from(desired).unwrap_or_default();
    Some(if desired == 0 {
        let text = format!("the DaemonSet {name} selects no node");
        let fix = if part == Part::Server {
            "give control plane nodes their label: kubectl label node NODE \
             node-role.kubernetes.io/control-plane="
                .to_owned()
        } else {
            let namespace = &facts.installed_in;
            format!("see its nodeSelector: kubectl get daemonset {name} -n {namespace} -o yaml")
        };
        Finding::warning(part, text, fix)
    } else if ready >= desired {
        Finding::ok(part, format!("{} of {name} are ready", counted(pods, "pod")))
    } else if ready == 0 && part == Part::Server {
        Finding::error(
            part,
            format!("no pod of {name} is ready: new machines get no config"),
            logs(facts, name),
        )
    } else {
        let text = format!("{ready} of {desired} pods of {name} are ready");
        Finding::error(part, text, logs(facts, name))
    })
}

/// Reports containers that do not start, with the reason of the kubelet.
fn failing_pods(facts: &Facts) -> Vec<Finding> {
    facts.pods.items().iter().filter_map(|pod| failing_pod(facts, pod)).collect()
}

fn failing_pod(facts: &Facts, pod: &Pod) -> Option<Finding> {
    let process = pod.metadata.labels.as_ref()?.get(label::APP)?;
    let part = match process.as_str() {
        "machine-config-operator" => Part::Operator,
        "machine-config-controller" => Part::Controller,
        "machine-config-server" => Part::Server,
        "machine-config-daemon" => Part::Daemon,
        _ => return None,
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.iter().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let mut failing = waiting.filter(|it| it.reason.as_deref() != Some("ContainerCreating"));
    let state = failing.next()?;
    let reason = state.reason.as_deref().unwrap_or("waiting");
    let message = state.message.as_deref().unwrap_or_default();
    let namespace = &facts.installed_in;
    Some(Finding::error(
        part,
        format!("pod {name} does not start: {reason} {message}").trim_end().to_owned(),
        format!("see: kubectl logs -n {namespace} {name} --previous"),
    ))
}

/// Compares the images of the processes, and the client with the operator.
fn versions(facts: &Facts) -> Option<Finding> {
    // The versions of another operator say nothing about the client.
    if facts.other_operator.is_some() {
        return None;
    }
    let versions = ClusterVersions::of(
        None,
        facts.operator.found(),
        facts.controller_config.found(),
        facts.pods.items(),
        &[],
    );
    let fix =
        format!("wait for the upgrade, or apply the manifests of one version: {}", facts.install());
    if let Some(skew) = versions.image_skew() {
        return Some(Finding::warning(Part::Operator, skew, fix));
    }
    let operator = versions.operator.as_deref()?;
    Some(if operator == facts.client {
        Finding::ok(Part::Operator, format!("client and operator have version {operator}"))
    } else {
        let client = &facts.client;
        let text = format!("this client has version {client}, and the operator {operator}");
        Finding::warning(Part::Operator, text, format!("use the client of version {operator}"))
    })
}

/// Reports that every host can read the configs of new machines.
fn first_boot(facts: &Facts) -> Option<Finding> {
    let config = facts.controller_config.found()?;
    let annotations = config.metadata.annotations.clone().unwrap_or_default();
    let mode = annotation::JOIN_TOKENS.get(&annotations).ok().flatten().unwrap_or_default();
    Some(if mode.are_required() {
        Finding::ok(Part::FirstBoot, "new machines need a join token")
    } else {
        Finding::warning(
            Part::FirstBoot,
            "FirstBootUnauthenticated: every host that reaches the config server can read the configs \
             of new machines, with the secrets in them",
            format!(
                "run: kubectl annotate --overwrite controllerconfig {} {}=required",
                label::CONTROLLER_CONFIG,
                annotation::JOIN_TOKENS.name(),
            ),
        )
    })
}
