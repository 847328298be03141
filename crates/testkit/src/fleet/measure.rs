//! What a process uses, by the kernel's count, and what it asked for, by the API server's.

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

/// Ticks of the kernel's clock in a second, on every Linux that we know of.
const TICKS: u64 = 100;

/// How long a process has computed.
pub(super) struct Cpu(pub(super) Duration);

impl Cpu {
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).context("it has ended")?;
        // The name, which may have blanks in it, ends with the last parenthesis.
        let rest = text.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.collect::<Result<Vec<_>, _>>()?.into_iter().sum();
        Ok(Self(Duration::from_millis(ticks * 1000 / TICKS)))
    }
}

/// How much memory a process has, in kiB.
#[derive(Debug)]
pub(super) struct Memory {
    now: u64,
    own: u64,
    peak: u64,
}

impl Memory {
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/status")).context("it has ended")?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("/proc does not say {key}"))
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

/// The audit log of the API server, read piece by piece.
pub(super) struct Audit {
    policy: PathBuf,
    log: PathBuf,
    place: u64,
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

impl Audit {
    pub(super) fn prepare(folder: &Path) -> anyhow::Result<Self> {
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                      omitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n";
        let policy = write(folder, "audit-policy.yaml", policy)?;
        Ok(Self { policy, log: folder.join("audit.log"), place: 0 })
    }

    pub(super) fn flags(&self) -> Vec<String> {
        let Self { policy, log, .. } = self;
        vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
        ]
    }

    /// Leaves out what has been asked for until now.
    pub(super) fn skip(&mut self) -> anyhow::Result<()> {
        self.place = fs::metadata(&self.log).context("there is no audit log")?.len();
        Ok(())
    }

    /// What a user asked for since.
    pub(super) fn requests(&self, user: &str) -> anyhow::Result<Requests> {
        let mut file = fs::File::open(&self.log).context("there is no audit log")?;
        file.seek(SeekFrom::Start(self.place))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut requests = Requests::default();
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

/// How often what was asked for.
#[derive(Debug, Default)]
pub(super) struct Requests(BTreeMap<String, usize>);

impl Requests {
    pub(super) fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// One line for each kind of request, the most frequent first.
    pub(super) fn table(&self) -> String {
        let mut rows: Vec<(&String, &usize)> = self.0.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let lines = rows.iter().map(|(what, count)| format!("  {count:>6}  {what}"));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.total())?;
        for (what, count) in &self.0 {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

/// Writes a file of the folder.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
