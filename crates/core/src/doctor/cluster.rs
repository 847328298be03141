//! Prerequisites: API server, rights, kinds and namespace.

use super::{
    DefinitionState, Facts, Fetched, Finding, Part, counted, processes::repair, version::minor,
};
use k8s_openapi::jiff::SignedDuration;

/// Oldest supported version of Kubernetes: admission policies are stable since then.
const OLDEST: (u32, u32) = (1, 30);

/// Difference of clocks that certificates, tokens and Leases tolerate.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// Label of a namespace with the level of pod security that the API server enforces.
const ENFORCED_LEVEL: &str = "pod-security.kubernetes.io/enforce";

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![api_server(facts)];
    found.extend(clock(facts));
    found.extend(rights(facts));
    found.extend(definitions(facts));
    found.extend(namespace(facts));
    found
}

fn api_server(facts: &Facts) -> Finding {
    let version = facts.kubernetes.as_deref().unwrap_or_default();
    let (major, minimum) = OLDEST;
    match minor(version) {
        Some(found) if found < OLDEST => Finding::error(
            Part::ApiServer,
            format!("Kubernetes {version} is not supported"),
            format!("upgrade the cluster to Kubernetes {major}.{minimum} or later"),
        ),
        Some(_) => Finding::ok(Part::ApiServer, format!("Kubernetes {version} answers")),
        None => Finding::warning(
            Part::ApiServer,
            format!("the API server has the version {version:?}, which is not known"),
            format!("use Kubernetes {major}.{minimum} or later"),
        ),
    }
}

fn clock(facts: &Facts) -> Option<Finding> {
    let difference = facts.clock_difference?;
    let seconds = difference.as_secs();
    (difference.abs() > CLOCK_TOLERANCE).then(|| {
        Finding::warning(
            Part::ApiServer,
            format!("the clock of the API server differs from that of this machine by {seconds}s"),
            "set the clocks of both machines with NTP; certificates and tokens depend on them",
        )
    })
}

/// Reports rights that the user lacks for an installation. They do not matter afterwards.
fn rights(facts: &Facts) -> Option<Finding> {
    if !facts.is_not_installed() || facts.rights.is_empty() {
        return None;
    }
    let denied: Vec<&str> = facts
        .rights
        .iter()
        .filter(|right| right.allowed == Some(false))
        .map(|right| right.name.as_str())
        .collect();
    let unknown = facts.rights.iter().all(|right| right.allowed.is_none());
    Some(if !denied.is_empty() {
        Finding::error(
            Part::Rights,
            format!("you may not install mco: no right to {}", denied.join(", ")),
            "run `mco install | kubectl apply -f -` as a user with the ClusterRole cluster-admin",
        )
    } else if unknown {
        Finding::warning(
            Part::Rights,
            "the API server does not tell your rights",
            "install as a user with the ClusterRole cluster-admin",
        )
    } else {
        Finding::ok(Part::Rights, "you have the rights that an installation needs")
    })
}

fn definitions(facts: &Facts) -> Vec<Finding> {
    let Fetched::Found(all) = &facts.definitions else { return Vec::new() };
    let missing: Vec<&str> = all
        .iter()
        .filter(|it| it.state == DefinitionState::Missing)
        .map(|it| it.name.as_str())
        .collect();
    let mut found = Vec::new();
    if missing.len() == all.len() && facts.is_not_installed() {
        found.push(Finding::ok(
            Part::Definitions,
            "no kind exists yet, and none is another owner's",
        ));
        return found;
    }
    if !missing.is_empty() {
        found.push(Finding::error(
            Part::Definitions,
            format!("CustomResourceDefinitions are missing: {}", missing.join(", ")),
            repair(
                facts,
                "run: mco crds | kubectl apply -f -; or start the operator, which installs them",
            ),
        ));
    }
    for definition in all {
        let name = &definition.name;
        let owner = definition.owner.as_deref().unwrap_or("this cluster");
        if let DefinitionState::Unusable(why) = &definition.state {
            found.push(Finding::error(
                Part::Definitions,
                format!("the kind of {name} of {owner} cannot be used: {why}"),
                format!("delete the objects and the definition, or have {owner} upgrade it"),
            ));
        } else if !definition.lacks.is_empty() {
            found.push(Finding::warning(
                Part::Definitions,
                format!("{name} of {owner} lacks {}", definition.lacks.join(", ")),
                format!("have {owner} upgrade it: the API server drops these members"),
            ));
        }
    }
    if found.is_empty() {
        let others = all.iter().filter(|it| it.owner.is_some()).count();
        let text =
            format!("{} are served, {others} of them another owner's", counted(all.len(), "kind"));
        found.push(Finding::ok(Part::Definitions, text));
    }
    found
}

fn namespace(facts: &Facts) -> Option<Finding> {
    let name = &facts.installed_in;
    match &facts.namespace {
        Fetched::Failed(_) => None,
        Fetched::Absent if facts.is_not_installed() => None,
        Fetched::Absent => Some(Finding::error(
            Part::Namespace,
            format!("the namespace {name} does not exist"),
            format!("run: {}", facts.install()),
        )),
        Fetched::Found(namespace) => {
            let labels = namespace.metadata.labels.as_ref();
            let level = labels.and_then(|labels| labels.get(ENFORCED_LEVEL));
            Some(match level.map(String::as_str) {
                Some(level @ ("baseline" | "restricted")) => Finding::error(
                    Part::Namespace,
                    format!(
                        "the namespace {name} enforces the pod security level {level}, which forbids \
                         the daemons"
                    ),
                    format!(
                        "run: kubectl label --overwrite namespace {name} {ENFORCED_LEVEL}=privileged"
                    ),
                ),
                Some(_) | None => {
                    Finding::ok(Part::Namespace, format!("the namespace {name} admits the daemons"))
                }
            })
        }
    }
}
