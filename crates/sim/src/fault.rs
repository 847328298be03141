//! Faults that a simulation injects, and their probabilities.

use std::{fmt, str::FromStr};

/// A fault that a simulation can inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The controller restarts after a decision.
    ControllerRestart,
    /// Another process becomes leader, after a while without a leader.
    LeaderChange,
    /// A watch delivers half a minute late.
    StaleCache,
    /// The API server refuses a write of the controller.
    Conflict,
    /// A daemon crashes during a step and restarts.
    DaemonCrash,
    /// Applying a config takes ten times as long.
    SlowApply,
    /// Applying a config fails, and a retry succeeds.
    FailedApply,
    /// A machine does not come back from its reboot until the administrator restarts it.
    LostMachine,
    /// A machine comes back, and its node is not ready for some minutes.
    LateReady,
    /// A machine boots its previous config.
    OldBoot,
    /// An idle node is not ready for some minutes.
    Blip,
}

impl Fault {
    /// All faults, with name and description.
    pub const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::ControllerRestart, "controller-restart", "the controller restarts after a decision"),
        (
            Self::LeaderChange,
            "leader-change",
            "there is no leader for fifteen seconds, then another process leads",
        ),
        (Self::StaleCache, "stale-cache", "a watch delivers half a minute late"),
        (Self::Conflict, "conflict", "the API server refuses a write of the controller"),
        (Self::DaemonCrash, "daemon-crash", "a daemon crashes during a step"),
        (Self::SlowApply, "slow-apply", "applying a config takes ten times as long"),
        (Self::FailedApply, "failed-apply", "applying a config fails once"),
        (Self::LostMachine, "lost-machine", "a machine does not come back from its reboot"),
        (Self::LateReady, "late-ready", "a machine comes back not ready"),
        (Self::OldBoot, "old-boot", "a machine boots its previous config"),
        (Self::Blip, "blip", "an available node is not ready for some minutes"),
    ];
}

/// The probability of each fault, in percent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults([u8; 11]);

impl Faults {
    /// Returns the probability of a fault, in percent.
    #[must_use]
    pub fn percent(&self, fault: Fault) -> u8 {
        self.0.get(fault as usize).copied().unwrap_or_default()
    }

    /// Sets the probability of a fault, in percent.
    pub fn set(&mut self, fault: Fault, percent: u8) {
        if let Some(place) = self.0.get_mut(fault as usize) {
            *place = percent.min(100);
        }
    }

    /// Returns true if no fault can occur.
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

/// An invalid list of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFaults {
    /// Unknown fault.
    #[error("unknown fault {0:?}; the faults are {list}, and all", list = names())]
    Name(String),
    /// Invalid percentage.
    #[error("fault {name}: {text:?} is not a percentage from 0 to 100; write {name}=5%")]
    Percent {
        /// Name of the fault.
        name: String,
        /// Text after the equals sign.
        text: String,
    },
}

fn names() -> String {
    Fault::ALL.map(|(_, name, _)| name).join(", ")
}

/// Probability of a fault that is named without one, in percent.
const DEFAULT_PERCENT: u8 = 5;

impl FromStr for Faults {
    type Err = BadFaults;

    /// Parses `NAME[=PERCENT%],…`; `all` stands for every fault, `none` for no fault.
    fn from_str(text: &str) -> Result<Self, BadFaults> {
        let mut faults = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, percent) = match part.split_once('=') {
                None => (part, DEFAULT_PERCENT),
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
    fn faults_are_parsed_and_displayed() {
        for text in ["none", "blip=5%", "conflict=20%,lost-machine=1%"] {
            assert_eq!(text.parse::<Faults>().unwrap().to_string(), text);
        }
        assert_eq!("blip".parse::<Faults>().unwrap().percent(Fault::Blip), 5);
        let all: Faults = "all=3%".parse().unwrap();
        assert!(Fault::ALL.iter().all(|(fault, _, _)| all.percent(*fault) == 3));
    }

    #[test]
    fn an_invalid_list_is_answered_with_the_valid_names() {
        let error = "blips".parse::<Faults>().unwrap_err().to_string();
        assert!(error.starts_with("unknown fault \"blips\"; the faults are controller-restart,"));
        let error = "blip=x".parse::<Faults>().unwrap_err().to_string();
        assert_eq!(error, "fault blip: \"x\" is not a percentage from 0 to 100; write blip=5%");
    }
}
