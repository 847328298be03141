//! The embedded API server answers as kube-apiserver does.
//!
//! Each sequence of requests goes to both servers, and the answers are compared. The sequences are
//! in `sequences/`, in the notation that `notation` describes. An answer may differ only by a
//! difference that `differences` names.

mod answer;
mod differences;
#[cfg(test)]
mod generated;
#[cfg(test)]
mod notation;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod sessions;

use std::{collections::BTreeSet, io::Write as _, path::Path};

use futures::StreamExt as _;
use mco_testkit::api::{Programs, shared};

use self::{
    differences::DIFFERENCES,
    notation::Sequence,
    servers::{ABSENT, Server, Servers},
};

/// The sequences, by the name of their file.
const FILES: &[(&str, &str)] = &[
    ("configmaps", include_str!("sequences/configmaps.txt")),
    ("errors", include_str!("sequences/errors.txt")),
    ("lists", include_str!("sequences/lists.txt")),
    ("nodes", include_str!("sequences/nodes.txt")),
    ("pods", include_str!("sequences/pods.txt")),
    ("secrets", include_str!("sequences/secrets.txt")),
    ("namespaces", include_str!("sequences/namespaces.txt")),
    ("workloads", include_str!("sequences/workloads.txt")),
    ("metadata", include_str!("sequences/metadata.txt")),
    ("custom", include_str!("sequences/custom.txt")),
    ("patches", include_str!("sequences/patches.txt")),
    ("deletes", include_str!("sequences/deletes.txt")),
    ("watches", include_str!("sequences/watches.txt")),
    ("managed", include_str!("sequences/managed.txt")),
    ("apply", include_str!("sequences/apply.txt")),
    ("collection", include_str!("sequences/collection.txt")),
    ("kinds", include_str!("sequences/kinds.txt")),
    ("services", include_str!("sequences/services.txt")),
    ("endpoints", include_str!("sequences/endpoints.txt")),
    ("replicasets", include_str!("sequences/replicasets.txt")),
    ("jobs", include_str!("sequences/jobs.txt")),
    ("roles", include_str!("sequences/roles.txt")),
    ("reviews", include_str!("sequences/reviews.txt")),
    ("certificates", include_str!("sequences/certificates.txt")),
    ("priorities", include_str!("sequences/priorities.txt")),
    ("policies", include_str!("sequences/policies.txt")),
    ("policy_parts", include_str!("sequences/policy_parts.txt")),
    ("policy_costs", include_str!("sequences/policy_costs.txt")),
    ("definitions", include_str!("sequences/definitions.txt")),
    ("users", include_str!("sequences/users.txt")),
    ("encodings", include_str!("sequences/encodings.txt")),
    ("subresources", include_str!("sequences/subresources.txt")),
    ("merges", include_str!("sequences/merges.txt")),
    ("evictions", include_str!("sequences/evictions.txt")),
    ("options", include_str!("sequences/options.txt")),
    ("volumes", include_str!("sequences/volumes.txt")),
    ("rows", include_str!("sequences/rows.txt")),
    ("fields", include_str!("sequences/fields.txt")),
    ("rollouts", include_str!("sequences/rollouts.txt")),
    ("events", include_str!("sequences/events.txt")),
];

/// Sequences for every kind, and a valid object of each.
const EVERY_KIND: &str = include_str!("sequences/every_kind.txt");
const SAMPLES: &str = include_str!("sequences/samples.txt");

/// Returns all sequences.
fn sequences() -> Vec<Sequence> {
    let of_files = FILES.iter().flat_map(|(file, text)| notation::parse(file, text));
    of_files.chain(notation::parse_for_kinds("every_kind", EVERY_KIND, SAMPLES)).collect()
}

/// Number of sequences that run at the same time.
const PARALLEL: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_answer_the_same() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let below = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let real = shared(&programs, below).as_ref().expect("kube-apiserver starts");
    let servers = Servers::start(real).await.expect("both servers start");
    let sequences = sequences();
    let count = sequences.len();
    let written: usize = FILES.iter().map(|(file, text)| notation::parse(file, text).len()).sum();
    let _ = writeln!(
        std::io::stderr(),
        "{count} sequences, {written} of them and those of every kind are written"
    );
    let runs = sequences.into_iter().enumerate().map(|(at, sequence)| {
        let servers = &servers;
        async move { run(servers, &format!("s{at}"), &sequence).await }
    });
    let mut findings: Vec<String> = futures::stream::iter(runs)
        .buffer_unordered(PARALLEL)
        .flat_map(futures::stream::iter)
        .collect()
        .await;
    findings.extend(schemas::compare(&servers).await);
    assert!(
        findings.is_empty(),
        "{} answers of {count} sequences differ:\n{}",
        findings.len(),
        findings.join("\n")
    );
    let runtime = tokio::runtime::Handle::current();
    let found = tokio::task::block_in_place(|| generated::run(&servers, &runtime));
    assert_eq!(found, None, "the answers to a generated sequence differ");
}

/// Runs a sequence on both servers. Returns the answers that differ.
async fn run(servers: &Servers, namespace: &str, sequence: &Sequence) -> Vec<String> {
    let (mut embedded, mut real) = tokio::join!(
        Server::new(&servers.embedded, namespace),
        Server::new(&servers.real, namespace)
    );
    let mut findings = Vec::new();
    for step in &sequence.steps {
        let (ours, theirs) = tokio::join!(embedded.send(step), real.send(step));
        let mut differences = Vec::new();
        answer::compare(&ours, &theirs, &mut differences);
        let place = || format!("{}: {}\n  {}", sequence.file, sequence.title, step.text);
        if let Some(answer) = [&ours, &theirs].into_iter().find(|it| it.code == ABSENT) {
            let body = &answer.body;
            findings.push(format!("{}\n    the awaited answer did not come: {body}", place()));
            break;
        }
        match (&step.difference, differences.is_empty()) {
            (None, false) => {
                findings.push(format!("{}\n    {}", place(), differences.join("\n    ")));
            }
            (Some(mark), true) => {
                let name = &mark.name;
                findings.push(format!("{}\n    does not differ by {name} any more", place()));
            }
            // The codes of a marked request are compared too, and the reasons of its refusals.
            (Some(mark), false) => {
                let codes = (ours.code, theirs.code);
                let reasons = (ours.reason(), theirs.reason());
                let is_other = matches!(reasons, (Some(ours), Some(theirs)) if ours != theirs);
                let is_wrong = mark.codes.unwrap_or((theirs.code, theirs.code)) != codes
                    || (mark.codes.is_none() && is_other);
                if is_wrong {
                    let rest = differences.join("\n    ");
                    findings.push(format!("{}\n    codes {codes:?}\n    {rest}", place()));
                }
            }
            (None, true) => {}
        }
    }
    findings
}

#[test]
fn every_difference_has_a_name_and_is_in_use() {
    let known: BTreeSet<&str> = DIFFERENCES.iter().map(|one| one.name).collect();
    assert_eq!(known.len(), DIFFERENCES.len(), "two differences have the same name");
    let mut marked: BTreeSet<String> = sequences()
        .into_iter()
        .flat_map(|it| it.steps)
        .filter_map(|step| step.difference)
        .map(|it| it.name)
        .collect();
    let lines = sessions::SESSIONS.iter().flat_map(|(_, text)| sessions::parse(text));
    marked.extend(lines.filter_map(|line| line.difference));
    let marked: BTreeSet<&str> = marked.iter().map(String::as_str).collect();
    let whole: BTreeSet<&str> =
        DIFFERENCES.iter().filter(|one| one.is_masked).map(|one| one.name).collect();
    let used: BTreeSet<&str> = marked.union(&whole).copied().collect();
    assert_eq!(used, known, "the named differences and those of the sequences are the same");
}

#[test]
fn the_page_about_the_server_lists_every_difference() {
    const PAGE: &str = include_str!("../../../../docs/apiserver.md");
    let (_, section) = PAGE.split_once("\n## Differences\n").expect("the page has the section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let on_page: BTreeSet<String> = rows.map(str::to_owned).collect();
    let named = DIFFERENCES.iter().map(|one| format!("| {} | {} |", one.name, one.reason));
    let named: BTreeSet<String> = named.collect();
    let lacks: Vec<_> = named.difference(&on_page).collect();
    let extra: Vec<_> = on_page.difference(&named).collect();
    assert!(
        lacks.is_empty() && extra.is_empty(),
        "docs/apiserver.md lacks {lacks:#?}, and has {extra:#?}"
    );
}
