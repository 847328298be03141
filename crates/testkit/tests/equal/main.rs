//! The embedded API server answers as kube-apiserver does.
//!
//! Each sequence of requests goes to both servers, and the answers are compared. The sequences are
//! in `sequences/`, in the notation that `notation` describes. An answer may differ only by a
//! difference that `differences` names.

mod answer;
mod differences;
#[cfg(test)]
mod notation;
#[cfg(test)]
mod servers;

use std::{collections::BTreeSet, io::Write as _, path::Path};

use futures::StreamExt as _;
use mco_testkit::api::{Programs, shared};

use self::{
    differences::DIFFERENCES,
    notation::Sequence,
    servers::{Server, Servers},
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
];

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
    let sequences: Vec<Sequence> =
        FILES.iter().flat_map(|(file, text)| notation::parse(file, text)).collect();
    let count = sequences.len();
    let runs = sequences.into_iter().enumerate().map(|(at, sequence)| {
        let servers = &servers;
        async move { run(servers, at, &sequence).await }
    });
    let findings: Vec<String> = futures::stream::iter(runs)
        .buffer_unordered(PARALLEL)
        .flat_map(futures::stream::iter)
        .collect()
        .await;
    assert!(
        findings.is_empty(),
        "{} answers of {count} sequences differ:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

/// Runs a sequence on both servers. Returns the answers that differ.
async fn run(servers: &Servers, at: usize, sequence: &Sequence) -> Vec<String> {
    let namespace = format!("s{at}");
    let (mut embedded, mut real) = tokio::join!(
        Server::new(&servers.embedded, &namespace),
        Server::new(&servers.real, &namespace)
    );
    let mut findings = Vec::new();
    for step in &sequence.steps {
        let (ours, theirs) = tokio::join!(embedded.send(step), real.send(step));
        let mut differences = Vec::new();
        answer::compare(&ours, &theirs, &mut differences);
        let place = || format!("{}: {}\n  {}", sequence.file, sequence.title, step.text);
        match (&step.difference, differences.is_empty()) {
            (None, false) => {
                findings.push(format!("{}\n    {}", place(), differences.join("\n    ")));
            }
            (Some(name), true) => {
                findings.push(format!("{}\n    does not differ by {name} any more", place()));
            }
            (None, true) | (Some(_), false) => {}
        }
    }
    findings
}

#[test]
fn every_difference_has_a_name_and_is_in_use() {
    let known: BTreeSet<&str> = DIFFERENCES.iter().map(|one| one.name).collect();
    assert_eq!(known.len(), DIFFERENCES.len(), "two differences have the same name");
    let sequences = FILES.iter().flat_map(|(file, text)| notation::parse(file, text));
    let marked: BTreeSet<String> =
        sequences.flat_map(|it| it.steps).filter_map(|step| step.difference).collect();
    let marked: BTreeSet<&str> = marked.iter().map(String::as_str).collect();
    let whole: BTreeSet<&str> =
        DIFFERENCES.iter().filter(|one| one.is_masked).map(|one| one.name).collect();
    let used: BTreeSet<&str> = marked.union(&whole).copied().collect();
    assert_eq!(used, known, "the named differences and those of the sequences are the same");
}

#[test]
fn the_page_about_the_server_lists_every_difference() {
    const PAGE: &str = include_str!("../../../../docs/apiserver.md");
    for one in DIFFERENCES {
        let row = format!("| {} | {} |", one.name, one.reason);
        assert!(PAGE.contains(&row), "docs/apiserver.md lacks the row\n{row}");
    }
}
