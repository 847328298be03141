//! Resource usage of a process, from `/proc`, and its requests, from the API server's audit log.

#![expect(clippy::disallowed_methods, reason = "reads /proc and the audit log of a test's server")]

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use serde::Deserialize;

/// Ticks of the kernel's clock per second, which is 100 on all supported Linux systems.
const TICKS: u64 = 100;

/// CPU time of a process.
pub(super) struct Cpu(pub(super) Duration);

impl Cpu {
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(format!("/proc/{process}/stat")).context("the process has ended")?;
        // The process name, which may contain blanks, ends with the last parenthesis.
        let rest = text.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.collect::<Result<Vec<_>, _>>()?.into_iter().sum();
        Ok(Self(Duration::from_millis(ticks * 1000 / TICKS)))
    }
}

/// Memory of a process, in kiB.
#[derive(Debug)]
pub(super) struct Memory {
    now: u64,
    own: u64,
    peak: u64,
}

impl Memory {
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/status"))
            .context("the process has ended")?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("/proc/{process}/status has no {key}"))
        };
        Ok(Self { now: value("VmRSS:")?, own: value("RssAnon:")?, peak: value("VmHWM:")? })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024);
        let Self { now, own, peak } = self;
        write!(f, "{} (own {}, peak {})", mib(*now), mib(*own), mib(*peak))
    }
}

/// The audit log of the API server, read incrementally.
pub(super) struct AuditLog {
    policy: PathBuf,
    log: PathBuf,
    position: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: User,
    object_ref: Option<Object>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    resource: Option<String>,
    subresource: Option<String>,
}

impl AuditLog {
    pub(super) fn prepare(folder: &Path) -> anyhow::Result<Self> {
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                      omitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n";
        let policy = write(folder, "audit-policy.yaml", policy)?;
        Ok(Self { policy, log: folder.join("audit.log"), position: 0 })
    }

    pub(super) fn flags(&self) -> Vec<String> {
        let Self { policy, log, .. } = self;
        vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ]
    }

    /// Skips the requests so far.
    pub(super) fn skip(&mut self) -> anyhow::Result<()> {
        self.position = fs::metadata(&self.log).context("failed to read the audit log")?.len();
        Ok(())
    }

    /// Counts the requests of a user since the last skip.
    pub(super) fn requests(&self, user: &str) -> anyhow::Result<RequestCounts> {
        let mut file = fs::File::open(&self.log).context("failed to read the audit log")?;
        file.seek(SeekFrom::Start(self.position))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut requests = RequestCounts::default();
        for line in text.lines() {
            let Ok(entry) = serde_json::from_str::<Entry>(line) else { continue };
            if entry.user.username == user {
                let object = entry.object_ref;
                let resource = object.as_ref().and_then(|object| object.resource.clone());
                let below = object.and_then(|object| object.subresource);
                let names: Vec<String> = resource.into_iter().chain(below).collect();
                *requests.0.entry(format!("{} {}", entry.verb, names.join("/"))).or_default() += 1;
            }
        }
        Ok(requests)
    }
}

/// Number of requests by verb and resource.
#[derive(Debug, Default)]
pub(super) struct RequestCounts(BTreeMap<String, usize>);

impl RequestCounts {
    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Formats one line per kind of request, the most frequent first.
    pub(super) fn table(&self) -> String {
        let mut rows: Vec<(&String, &usize)> = self.0.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let lines = rows.iter().map(|(what, count)| format!("  {count:>6}  {what}"));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.total())?;
        for (what, count) in &self.0 {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

/// Writes a file in the folder.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
