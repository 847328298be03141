//! kubectl prints the same with both servers.
//!
//! Each session is a list of commands in `sessions/`: a line per command, without `kubectl`. Lines that
//! start with `|` are its standard input, `!NAME` before a command names a difference, as in sequences:
//! the exit code must be the same, unless `!NAME=1/0` names both.

use std::{
    io::Write as _,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use mco_apiserver::{ApiServer, Authorization, Listener, PodDeletion, Settings};
use mco_testkit::api::{ApiServer as _, Programs, command, shared};

/// The sessions, by the name of their file.
pub(crate) const SESSIONS: &[(&str, &str)] = &[
    ("create", include_str!("sessions/create.txt")),
    ("change", include_str!("sessions/change.txt")),
    ("read", include_str!("sessions/read.txt")),
    ("rights", include_str!("sessions/rights.txt")),
    ("explain", include_str!("sessions/explain.txt")),
    ("nodes", include_str!("sessions/nodes.txt")),
    ("daily", include_str!("sessions/daily.txt")),
];

/// A command of a session.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) difference: Option<String>,
    /// The exit codes with both servers, if they differ.
    codes: Option<String>,
    words: Vec<String>,
    input: String,
}

/// Parses a session.
pub(crate) fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(input) = line.strip_prefix('|') {
            let last = lines.last_mut().expect("a command comes before its input");
            last.input.push_str(input.strip_prefix(' ').unwrap_or(input));
            last.input.push('\n');
            continue;
        }
        let (difference, rest) = match line.strip_prefix('!').and_then(|it| it.split_once(' ')) {
            Some((name, rest)) => (Some(name.to_owned()), rest),
            None => (None, line),
        };
        let (difference, codes) = match difference.as_ref().and_then(|it| it.split_once('=')) {
            Some((name, codes)) => (Some(name.to_owned()), Some(codes.to_owned())),
            None => (difference, None),
        };
        let words = words(rest);
        let (text, input) = (rest.to_owned(), String::new());
        lines.push(Line { text, difference, codes, words, input });
    }
    lines
}

/// Splits at spaces. Single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            c => words.last_mut().expect("a list with a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Maximum duration of a command.
const MAX_SECONDS: &str = "60";

/// kubectl with the kubeconfig of a server.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    namespace: String,
}

impl Kubectl {
    fn run(&self, words: &[String], input: &str) -> Output {
        // Some commands wait for a controller, which would be for ever.
        let mut kubectl = command(Path::new("timeout"));
        kubectl.arg(MAX_SECONDS).arg(&self.program).arg("--kubeconfig").arg(&self.kubeconfig);
        kubectl.arg("--cache-dir").arg(&self.cache);
        kubectl.args(["--namespace", &self.namespace]).args(words);
        kubectl.env("KUBECTL_EXTERNAL_DIFF", "diff -u -N --label a --label b");
        kubectl.env("KUBE_EDITOR", "sed -i s/before/after/");
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // kubectl may end without reading its input.
        drop(stdin.write_all(input.as_bytes()));
        drop(stdin);
        child.wait_with_output().expect("kubectl ends")
    }

    /// Returns what kubectl prints, without what differs between two servers.
    fn shown(&self, line: &Line) -> String {
        let output = self.run(&line.words, &line.input);
        let is_explained = line.words.first().is_some_and(|word| word == "explain");
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            masked(&if is_explained { undescribed(&text) } else { text.into_owned() })
        };
        let code = output.status.code().unwrap_or(-1);
        format!("{}{}exit {code}\n", text(&output.stdout), text(&output.stderr))
    }
}

/// Reason of an event that a loop of kube-apiserver writes every few minutes about a Service whose
/// address it does not see yet, which is a part of the difference `service-addresses`.
const ADDRESS_REPAIR: &str = "ClusterIPNotAllocated";

/// Leaves descriptions out of what `kubectl explain` prints, which is the difference `schemas`.
fn undescribed(text: &str) -> String {
    let mut out = String::new();
    let mut is_described = false;
    for line in text.lines() {
        is_described = match line {
            "DESCRIPTION:" => true,
            "FIELDS:" => false,
            _ => is_described,
        };
        let is_field = line.contains("\t<") || line.trim_start().starts_with("enum:");
        let is_text = out.contains("FIELDS:") && !is_field;
        if !is_described && !is_text && !line.is_empty() {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Replaces ages, times, UIDs, addresses and versions, and the width of columns, which depends on them.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with("CreationTimestamp:") {
            continue;
        }
        let mut before = "";
        for word in line.split_whitespace() {
            let shown = masked_word(word, before);
            before = word;
            out.push_str(&shown);
            out.push(' ');
        }
        out.push('\n');
    }
    out
}

fn masked_word(word: &str, before: &str) -> String {
    let bare = word.trim_matches(|c: char| "\"',;()[]{}".contains(c));
    let is_age = |text: &str| {
        let units = text.split(|c: char| c.is_ascii_digit()).filter(|it| !it.is_empty());
        text.starts_with(|c: char| c.is_ascii_digit())
            && units.clone().count() > 0
            && units.into_iter().all(|unit| matches!(unit, "s" | "m" | "h" | "d" | "ms"))
    };
    let is_uid = bare.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let is_time = bare.len() >= 20 && bare.get(10..11) == Some("T") && bare.contains(':');
    let is_version = matches!(before, "resourceVersion:" | "\"resourceVersion\":");
    if is_age(bare) || is_uid || is_time || is_version {
        return word.replace(bare, "<masked>");
    }
    if bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_string().starts_with("10.")) {
        return word.replace(bare, "<address>");
    }
    if let Some(rest) = bare.strip_prefix("https://127.0.0.1:") {
        return word.replace(rest, "<port>");
    }
    match bare.split_once(':').and_then(|(port, rest)| Some((port, rest.split_once('/')?))) {
        Some((port, (node, protocol)))
            if [port, node].iter().all(|it| it.parse::<u16>().is_ok()) =>
        {
            format!("{port}:<node port>/{protocol}")
        }
        _ => word.to_owned(),
    }
}

/// Starts the embedded server. It ends with the program.
async fn embedded(dir: &Path) -> PathBuf {
    let settings = Settings {
        pods: PodDeletion::ByKubelet,
        authorization: Authorization::Roles,
        ..Settings::default()
    };
    let api = ApiServer::in_memory(settings).await.expect("the embedded server starts");
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(api, dir, address).await.expect("the embedded server listens");
    let kubeconfig = listener.kubeconfig().to_owned();
    tokio::spawn(listener.serve(std::future::pending()));
    kubeconfig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_prints_the_same_with_both_servers() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let below = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let real = shared(&programs, below).as_ref().expect("kube-apiserver starts");
    let dir = tempfile::tempdir().expect("a folder");
    let ours = embedded(&dir.path().join("embedded")).await;
    let sides = [("ours", ours), ("real", real.kubeconfig().to_owned())];
    let mut findings = Vec::new();
    for (name, text) in SESSIONS {
        let [ours, theirs] = sides.each_ref().map(|(side, kubeconfig)| Kubectl {
            program: real.kubectl().to_owned(),
            kubeconfig: kubeconfig.clone(),
            cache: dir.path().join(side),
            namespace: format!("session-{name}"),
        });
        let lines = parse(text);
        let found = tokio::task::spawn_blocking(move || session(name, &lines, &ours, &theirs));
        findings.extend(found.await.expect("a session ends"));
    }
    findings.retain(|finding| !finding.contains(ADDRESS_REPAIR));
    let count: usize = SESSIONS.iter().map(|(_, text)| parse(text).len()).sum();
    let _ = writeln!(std::io::stderr(), "{count} commands of kubectl were compared");
    assert!(findings.is_empty(), "{} outputs differ:\n{}", findings.len(), findings.join("\n"));
}

/// Returns the exit code at the end of what a command shows.
fn exit_code(shown: &str) -> &str {
    shown.trim_end().rsplit(' ').next().unwrap_or_default()
}

/// Runs a session with both servers. Returns the outputs that differ.
fn session(name: &str, lines: &[Line], ours: &Kubectl, theirs: &Kubectl) -> Vec<String> {
    let both = |run: &(dyn Fn(&Kubectl) -> String + Sync)| {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(theirs));
            (run(ours), other.join().expect("kubectl is run"))
        })
    };
    let mut findings = Vec::new();
    for words in [
        vec!["create".to_owned(), "namespace".to_owned(), ours.namespace.clone()],
        ["create", "serviceaccount", "default"].map(str::to_owned).to_vec(),
    ] {
        // The ServiceAccount `default` exists where a controller runs.
        both(&|it| it.run(&words, "").status.to_string());
    }
    for line in lines {
        let (ours, theirs) = both(&|it| it.shown(line));
        match (&line.difference, ours == theirs) {
            (None, false) => findings
                .push(format!("{name}: kubectl {}\n--- ours\n{ours}--- real\n{theirs}", line.text)),
            (Some(difference), true) => findings.push(format!(
                "{name}: kubectl {}\n    does not differ by {difference} any more",
                line.text
            )),
            (Some(_), false) => {
                let codes = [&ours, &theirs].map(|shown| exit_code(shown));
                let [our, their] = codes;
                let is_accepted = match &line.codes {
                    Some(accepted) => *accepted == format!("{our}/{their}"),
                    None => our == their,
                };
                if !is_accepted {
                    let text = &line.text;
                    findings.push(format!("{name}: kubectl {text}\n    exit codes {our}/{their}"));
                }
            }
            (None, true) => {}
        }
    }
    findings
}
