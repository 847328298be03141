//! The decisions of a watch: the next request after each outcome. Pure; the caller sends and waits.
//!
//! The rules are those of client-go's reflector, with limits that let no resume version be stuck:
//!
//! - A list is consistent and paged. It is followed by a watch from the version of the list.
//! - The version to resume from follows the events and bookmarks. A version below it means that the
//!   history of the API server went back (etcd was restored), so the objects are listed again.
//! - A version that the server does not have (any more, or yet), an ERROR event that is not a known
//!   temporary one, and a line that cannot be read: list again.
//! - Any other failure: resume with a backoff, and list again after [`MAX_RESUMES`] resumes in a row
//!   that delivered nothing.
//! - A connection that was cut, or ended before its time: the API server may have been restarted with a
//!   restored etcd, so its current version is probed before the watch is resumed.
//! - Nothing heard within [`IDLE_LIMIT`], over any number of connections: list again. A server whose
//!   history went back can accept a version from its future and stay silent.
//! - Objects listed long ago are listed again when the next watch ends.

use std::time::Duration;

/// Time without an event or bookmark after which a watch is dropped and the objects are listed again.
///
/// kube-apiserver sends a bookmark about every minute, so two of them may be late or lost.
pub const IDLE_LIMIT: Duration = Duration::from_mins(3);

/// Number of resumes in a row that may deliver nothing before the objects are listed again.
pub(super) const MAX_RESUMES: u32 = 3;

/// A watch that ended without an event within this time counts as a failed resume.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// A watch that was open for this time proves that the API server works, which resets the backoff.
const STEADY_WATCH: Duration = Duration::from_secs(10);

/// First pause after a failure; doubled with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Maximum pause after failures, apart from jitter.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A request of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A page of a list.
    List {
        /// Token of the page; `None` for the first.
        token: Option<String>,
        /// Maximum number of objects; `None` for all of them.
        limit: Option<u32>,
    },
    /// The changes after a version.
    Watch {
        /// The version.
        version: String,
    },
    /// The current version of the API server, before the changes after a version are requested.
    Probe {
        /// The version to resume from.
        version: String,
    },
}

/// The meaning of an error status, in an answer or in an ERROR event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The version or the page token is too old.
    Expired,
    /// The version is from the server's future.
    TooLarge,
    /// The server is busy or had an internal error.
    Temporary,
    /// Any other status.
    Other,
}

/// An outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A page of the list.
    Page {
        /// Version of the list.
        version: String,
        /// Token of the next page.
        token: Option<String>,
    },
    /// A page exceeded the size limit.
    PageTooLarge,
    /// The server refused the request.
    Refused(Refusal),
    /// The connection failed, before or in an answer.
    Broken {
        /// Time since the watch was opened; zero if it was not.
        lasted: Duration,
    },
    /// The current version of the API server.
    Current {
        /// The version.
        version: String,
    },
    /// An event or a bookmark with this version.
    Heard {
        /// The version.
        version: String,
    },
    /// The watch delivered an ERROR event.
    ErrorEvent(Refusal),
    /// An answer or a line cannot be read.
    Unreadable,
    /// The server ended the watch.
    Ended {
        /// Time since the watch was opened.
        lasted: Duration,
        /// True if the requested time is not over.
        is_early: bool,
        /// Time since the list was completed.
        list_age: Duration,
    },
    /// Nothing was heard within [`IDLE_LIMIT`].
    Idle,
    /// The receiver of the events demands a list.
    Demanded(Relist),
}

/// The reason for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relist {
    /// The version or the page token is too old.
    Expired,
    /// The version is from the server's future.
    TooLarge,
    /// An ERROR event that is not temporary.
    ErrorEvent,
    /// A line or a list cannot be read.
    Unreadable,
    /// Several resumes in a row delivered nothing.
    FailedResumes,
    /// Nothing was heard for too long.
    Idle,
    /// A version was lower than an earlier one.
    WentBack,
    /// The watch did not deliver a write of this process.
    Unconfirmed,
    /// The last list is old.
    Age,
    /// A list failed.
    FailedList,
    /// A page exceeded the size limit.
    PageTooLarge,
}

impl Relist {
    /// Returns the reason as logs and metrics have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::TooLarge => "TooLarge",
            Self::ErrorEvent => "ErrorEvent",
            Self::Unreadable => "Unreadable",
            Self::FailedResumes => "FailedResumes",
            Self::Idle => "Idle",
            Self::WentBack => "WentBack",
            Self::Unconfirmed => "Unconfirmed",
            Self::Age => "Age",
            Self::FailedList => "FailedList",
            Self::PageTooLarge => "PageTooLarge",
        }
    }
}

/// The step after an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    Read,
    /// Send the next request after a pause, to which the caller adds jitter.
    Send {
        /// The pause.
        pause: Duration,
        /// The reason, if a list is started over.
        relist: Option<Relist>,
    },
}

/// The state of a watch.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    request: Request,
    /// Page size; `None` after a page token expired.
    limit: Option<u32>,
    /// Page size that is set.
    page_size: u32,
    /// Maximum age of a list.
    max_age: Duration,
    /// Failures in a row, for the backoff.
    failures: u32,
    /// Resumes in a row that delivered nothing.
    resumes: u32,
}

impl Progress {
    /// Returns the state before the first list.
    pub(super) fn new(page_size: u32, max_age: Duration) -> Self {
        let limit = Some(page_size);
        let request = Request::List { token: None, limit };
        Self { request, limit, page_size, max_age, failures: 0, resumes: 0 }
    }

    /// Returns the request to send, or the one that is being answered.
    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the next step after an outcome of the current request.
    pub(super) fn after(&mut self, outcome: Outcome) -> Next {
        let is_list = matches!(self.request, Request::List { .. });
        match outcome {
            Outcome::Page { version, token } => self.after_page(version, token),
            Outcome::Heard { version } => self.heard(version),
            Outcome::Current { version } => self.probed(&version),
            Outcome::Ended { lasted, is_early, list_age } => self.ended(lasted, is_early, list_age),
            Outcome::PageTooLarge => {
                self.page_size = (self.page_size / 2).max(1);
                self.relist(Relist::PageTooLarge)
            }
            Outcome::Refused(Refusal::Expired) if is_list => {
                // The list takes longer than its pages are kept: fetch it in one piece.
                self.limit = None;
                self.list_again(Relist::Expired)
            }
            Outcome::Unreadable if is_list => self.relist(Relist::Unreadable),
            Outcome::Refused(_) | Outcome::Broken { .. } if is_list => {
                self.relist(Relist::FailedList)
            }
            Outcome::Refused(Refusal::Expired) | Outcome::ErrorEvent(Refusal::Expired) => {
                self.relist(Relist::Expired)
            }
            Outcome::Refused(Refusal::TooLarge) | Outcome::ErrorEvent(Refusal::TooLarge) => {
                self.relist(Relist::TooLarge)
            }
            Outcome::ErrorEvent(Refusal::Other) => self.relist(Relist::ErrorEvent),
            Outcome::Refused(Refusal::Temporary | Refusal::Other)
            | Outcome::ErrorEvent(Refusal::Temporary) => self.resume(),
            Outcome::Broken { lasted } => {
                self.forget_failures(lasted);
                self.probe();
                self.resume()
            }
            Outcome::Unreadable => self.relist(Relist::Unreadable),
            Outcome::Idle => self.relist(Relist::Idle),
            Outcome::Demanded(reason) => self.relist(reason),
        }
    }

    fn after_page(&mut self, version: String, token: Option<String>) -> Next {
        self.request = if token.is_some() {
            Request::List { token, limit: self.limit }
        } else {
            self.limit = Some(self.page_size);
            self.resumes = 0;
            Request::Watch { version }
        };
        // Failures are not forgotten yet: a watch that fails after each list must back off.
        Next::Send { pause: Duration::ZERO, relist: None }
    }

    fn heard(&mut self, heard: String) -> Next {
        let Request::Watch { version } = &mut self.request else { return Next::Read };
        if is_lower(&heard, version) {
            return self.relist(Relist::WentBack);
        }
        *version = heard;
        self.resumes = 0;
        Next::Read
    }

    fn ended(&mut self, lasted: Duration, is_early: bool, list_age: Duration) -> Next {
        self.forget_failures(lasted);
        if list_age >= self.max_age {
            return self.relist(Relist::Age);
        }
        if is_early {
            self.probe();
        }
        if lasted < SHORT_WATCH { self.resume() } else { self.pause(None) }
    }

    /// Has the current version of the API server probed before the watch is resumed.
    fn probe(&mut self) {
        if let Request::Watch { version } = &mut self.request {
            self.request = Request::Probe { version: std::mem::take(version) };
        }
    }

    fn probed(&mut self, current: &str) -> Next {
        let Request::Probe { version } = &mut self.request else { return Next::Read };
        if is_lower(current, version) {
            return self.relist(Relist::WentBack);
        }
        self.request = Request::Watch { version: std::mem::take(version) };
        Next::Send { pause: Duration::ZERO, relist: None }
    }

    /// Resumes the watch, unless too many resumes have delivered nothing.
    fn resume(&mut self) -> Next {
        if self.resumes >= MAX_RESUMES {
            return self.relist(Relist::FailedResumes);
        }
        self.resumes = self.resumes.saturating_add(1);
        self.pause(None)
    }

    fn relist(&mut self, reason: Relist) -> Next {
        self.limit = Some(self.page_size);
        self.list_again(reason)
    }

    fn list_again(&mut self, reason: Relist) -> Next {
        self.request = Request::List { token: None, limit: self.limit };
        self.pause(Some(reason))
    }

    /// Returns the next request with the pause of a backoff. Every failed or ended request counts, so
    /// that no sequence of answers makes this process send without a pause.
    fn pause(&mut self, relist: Option<Relist>) -> Next {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        Next::Send { pause: FIRST_PAUSE.saturating_mul(factor).min(MAX_PAUSE), relist }
    }

    fn forget_failures(&mut self, lasted: Duration) {
        if lasted >= STEADY_WATCH {
            self.failures = 0;
        }
    }
}

/// Returns true if a version is below another. Versions that are no numbers cannot be compared.
fn is_lower(version: &str, other: &str) -> bool {
    matches!((version.parse::<u64>(), other.parse::<u64>()), (Ok(version), Ok(other)) if version < other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn page(version: &str) -> Outcome {
        Outcome::Page { version: version.to_owned(), token: None }
    }

    fn heard(version: &str) -> Outcome {
        Outcome::Heard { version: version.to_owned() }
    }

    fn ended(millis: u64) -> Outcome {
        let (lasted, list_age) = (Duration::from_millis(millis), Duration::ZERO);
        Outcome::Ended { lasted, is_early: millis < 300_000, list_age }
    }

    fn current(version: &str) -> Outcome {
        Outcome::Current { version: version.to_owned() }
    }

    fn broken() -> Outcome {
        Outcome::Broken { lasted: Duration::ZERO }
    }

    /// Returns the requests after each outcome, `list` or `watch VERSION`, with the reason of a relist.
    fn requests(outcomes: &[Outcome]) -> Vec<String> {
        let mut progress = Progress::new(100, HOUR);
        let steps = outcomes.iter().map(|outcome| {
            let relist = match progress.after(outcome.clone()) {
                Next::Read => return "read".to_owned(),
                Next::Send { relist, .. } => relist,
            };
            let request = match progress.request() {
                Request::List { token, limit } => format!(
                    "list{}{}",
                    token.as_ref().map(|token| format!(" {token}")).unwrap_or_default(),
                    if limit.is_none() { " whole" } else { "" }
                ),
                Request::Watch { version } => format!("watch {version}"),
                Request::Probe { version } => format!("probe {version}"),
            };
            relist.map_or(request.clone(), |why| format!("{request}: {}", why.as_str()))
        });
        steps.collect()
    }

    #[test]
    fn a_watch_resumes_from_the_last_event_or_bookmark() {
        let steps = requests(&[page("5"), heard("7"), heard("9"), ended(300_000)]);
        assert_eq!(steps, ["watch 5", "read", "read", "watch 9"]);
    }

    #[test]
    fn a_cut_watch_resumes_only_if_the_history_of_the_api_server_did_not_go_back() {
        for cut in [broken(), ended(10), ended(299_999)] {
            let steps = requests(&[page("5"), cut.clone(), broken(), current("5")]);
            assert_eq!(steps, ["watch 5", "probe 5", "probe 5", "watch 5"], "{cut:?}");
            let steps = requests(&[page("5"), cut.clone(), current("4"), page("4")]);
            assert_eq!(steps, ["watch 5", "probe 5", "list: WentBack", "watch 4"], "{cut:?}");
            let steps = requests(&[page("5"), cut.clone(), Outcome::Refused(Refusal::Temporary)]);
            assert_eq!(steps, ["watch 5", "probe 5", "probe 5"], "{cut:?}");
        }
    }

    #[test]
    fn pages_follow_their_tokens_and_an_expired_token_starts_over_without_pages() {
        let first = Outcome::Page { version: "5".to_owned(), token: Some("t".to_owned()) };
        let expired = Outcome::Refused(Refusal::Expired);
        let steps = requests(&[first.clone(), expired, page("6"), Outcome::Idle, first]);
        assert_eq!(steps, ["list t", "list whole: Expired", "watch 6", "list: Idle", "list t"]);
    }

    #[test]
    fn a_version_that_the_server_does_not_have_is_listed_again() {
        let rows = [
            (Outcome::Refused(Refusal::Expired), "list: Expired"),
            (Outcome::ErrorEvent(Refusal::Expired), "list: Expired"),
            (Outcome::Refused(Refusal::TooLarge), "list: TooLarge"),
            (Outcome::ErrorEvent(Refusal::TooLarge), "list: TooLarge"),
            (Outcome::ErrorEvent(Refusal::Other), "list: ErrorEvent"),
            (Outcome::Unreadable, "list: Unreadable"),
            (Outcome::Idle, "list: Idle"),
            (heard("4"), "list: WentBack"),
            (Outcome::Demanded(Relist::Unconfirmed), "list: Unconfirmed"),
            (Outcome::Ended { lasted: HOUR, is_early: false, list_age: HOUR }, "list: Age"),
            (heard("5"), "read"),
            (Outcome::ErrorEvent(Refusal::Temporary), "watch 5"),
            (Outcome::Refused(Refusal::Other), "watch 5"),
            (ended(300_000), "watch 5"),
        ];
        for (outcome, expected) in rows {
            let steps = requests(&[page("5"), outcome.clone()]);
            assert_eq!(steps, ["watch 5", expected], "{outcome:?}");
        }
    }

    #[test]
    fn no_resume_version_is_stuck() {
        let failures = [
            vec![broken()],
            vec![ended(10), current("5")],
            vec![Outcome::Refused(Refusal::Temporary)],
        ];
        for failure in failures {
            let mut outcomes = vec![page("5")];
            outcomes.extend(std::iter::repeat_n(failure.clone(), 4).flatten());
            let steps = requests(&outcomes);
            let relists = steps.iter().filter(|step| *step == "list: FailedResumes").count();
            assert_eq!(relists, 1, "{failure:?}: {steps:?}");
        }
        // An event in between shows that the version is good.
        let cut = || [broken(), current("6")];
        let mut outcomes = vec![page("5")];
        outcomes.extend([cut(), cut(), cut()].into_iter().flatten());
        outcomes.push(heard("6"));
        outcomes.extend([cut(), cut()].into_iter().flatten());
        assert_eq!(requests(&outcomes).last().unwrap(), "watch 6");
    }

    #[test]
    fn pauses_grow_until_a_watch_is_steady() {
        let mut progress = Progress::new(100, HOUR);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let Next::Send { pause, .. } = progress.after(broken()) else { panic!("no request") };
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses[..4], [250, 500, 1000, 2000]);
        assert_eq!(pauses[9], 30_000);
        // A list alone does not reset the pauses: the watch after it may fail each time.
        progress.after(page("5"));
        let Next::Send { pause, .. } = progress.after(ended(10)) else { panic!("no request") };
        assert_eq!(pause, MAX_PAUSE);
        let Next::Send { pause, .. } = progress.after(ended(11_000)) else { panic!("no request") };
        assert_eq!(pause, FIRST_PAUSE);
    }

    #[test]
    fn a_page_over_the_size_limit_is_fetched_in_smaller_ones() {
        let mut progress = Progress::new(5, HOUR);
        let mut limits = Vec::new();
        for _ in 0..3 {
            progress.after(Outcome::PageTooLarge);
            let Request::List { limit, .. } = progress.request() else { panic!("no list") };
            limits.push(*limit);
        }
        assert_eq!(limits, [Some(2), Some(1), Some(1)]);
    }
}
