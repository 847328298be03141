//! What can go wrong, and how often.

use std::{fmt, str::FromStr};

/// Something that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The controller restarts after a decision.
    ControllerRestart,
    /// Another process becomes the leader, after a while in which nobody is.
    LeaderChange,
    /// A watch delivers half a minute late.
    StaleCache,
    /// The API server refuses a write of the controller.
    Conflict,
    /// A daemon dies in the middle of a step and starts again.
    DaemonCrash,
    /// Applying a config takes ten times as long.
    SlowApply,
    /// Applying a config fails, and works when it is tried again.
    FailedApply,
    /// A machine does not come back from its reboot before somebody sees to it.
    LostMachine,
    /// A machine comes back and its node is not ready for some minutes.
    LateReady,
    /// A machine boots what it booted before.
    OldBoot,
    /// A node that nobody touches is not ready for some minutes.
    Blip,
}

impl Fault {
    /// Every fault, with its name and what it does.
    pub const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::ControllerRestart, "controller-restart", "the controller restarts after a decision"),
        (
            Self::LeaderChange,
            "leader-change",
            "nobody leads for fifteen seconds, then another process",
        ),
        (Self::StaleCache, "stale-cache", "a watch delivers half a minute late"),
        (Self::Conflict, "conflict", "the API server refuses a write of the controller"),
        (Self::DaemonCrash, "daemon-crash", "a daemon dies in the middle of a step"),
        (Self::SlowApply, "slow-apply", "applying a config takes ten times as long"),
        (Self::FailedApply, "failed-apply", "applying a config fails once"),
        (Self::LostMachine, "lost-machine", "a machine does not come back from its reboot"),
        (Self::LateReady, "late-ready", "a machine comes back not ready"),
        (Self::OldBoot, "old-boot", "a machine boots what it booted before"),
        (Self::Blip, "blip", "a node in service is not ready for some minutes"),
    ];
}

/// How often each fault happens, in so many of a hundred chances it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults([u8; 11]);

impl Faults {
    /// How often this one happens.
    #[must_use]
    pub fn percent(&self, fault: Fault) -> u8 {
        self.0.get(fault as usize).copied().unwrap_or_default()
    }

    /// Makes this one happen so often.
    pub fn set(&mut self, fault: Fault, percent: u8) {
        if let Some(place) = self.0.get_mut(fault as usize) {
            *place = percent.min(100);
        }
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|percent| *percent == 0)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (fault, name, _) in Fault::ALL {
            let percent = self.percent(fault);
            if percent > 0 {
                write!(f, "{separator}{name}={percent}%")?;
                separator = ",";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// A list of faults that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFaults {
    /// There is no fault of this name.
    #[error("there is no fault {0:?}; there are {list}, and all", list = names())]
    Name(String),
    /// The part after the equals sign is no percentage.
    #[error("fault {name}: {text:?} is no percentage from 0 to 100; write {name}=5%")]
    Percent {
        /// The fault.
        name: String,
        /// What stands after the equals sign.
        text: String,
    },
}

fn names() -> String {
    Fault::ALL.map(|(_, name, _)| name).join(", ")
}

/// How often a fault happens that is named without a percentage.
const USUAL: u8 = 5;

impl FromStr for Faults {
    type Err = BadFaults;

    /// Reads `NAME[=PERCENT%],…`; `all` stands for every fault, `none` for no fault.
    fn from_str(text: &str) -> Result<Self, BadFaults> {
        let mut faults = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, percent) = match part.split_once('=') {
                None => (part, USUAL),
                Some((name, text)) => {
                    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>().ok();
                    let percent = number.filter(|percent| *percent <= 100);
                    let bad =
                        || BadFaults::Percent { name: name.to_owned(), text: text.to_owned() };
                    (name, percent.ok_or_else(bad)?)
                }
            };
            let meant = |known: &str| name == known || name == "all";
            let fitting = Fault::ALL.iter().filter(|(_, known, _)| meant(known));
            let mut found = name == "none";
            for (fault, _, _) in fitting {
                found = true;
                faults.set(*fault, percent);
            }
            if !found {
                return Err(BadFaults::Name(name.to_owned()));
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written() {
        for text in ["none", "blip=5%", "conflict=20%,lost-machine=1%"] {
            assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        }
        assert_eq!("blip".parse::<Faults>().unwrap().percent(Fault::Blip), 5);
        let all: Faults = "all=3%".parse().unwrap();
        assert!(Fault::ALL.iter().all(|(fault, _, _)| all.percent(*fault) == 3));
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_what_there_is() {
        let error = "blips".parse::<Faults>().unwrap_err().to_string();
        assert!(error.starts_with("there is no fault \"blips\"; there are controller-restart,"));
        let error = "blip=x".parse::<Faults>().unwrap_err().to_string();
        assert_eq!(error, "fault blip: \"x\" is no percentage from 0 to 100; write blip=5%");
    }
}
