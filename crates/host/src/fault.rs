//! Fault injection for tests: simulates a crash, a full disk or a broken one.
//!
//! Every change of the tree on the disk is a numbered point. At the chosen one the change fails
//! instead of happening, alone or with all later ones, as if the process had crashed there. A write
//! that crashes leaves half of its bytes.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use rustix::io::Errno;

/// The injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This change and all later ones fail: the process has crashed.
    Crash,
    /// This change alone fails, with this error of the kernel.
    Once(Errno),
}

/// Counts the changes of a tree, and fails one of them.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: usize,
    chosen: Option<(usize, Fault)>,
    has_crashed: bool,
    failed: Option<String>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Injected {
    None,
    /// Only a part is written before the error.
    TornWrite,
}

impl Faults {
    /// Counts changes only.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Fails the change of this number; the first is 1.
    #[must_use]
    pub fn at(number: usize, fault: Fault) -> Self {
        let state = State { chosen: Some((number, fault)), ..State::default() };
        Self { state: Mutex::new(state) }
    }

    /// Returns the number of changes so far.
    #[must_use]
    pub fn points(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).seen
    }

    /// Returns the failed change, such as `rename /etc/motd`.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// Counts a change that is about to happen; fails it if it is the chosen one.
    pub(crate) fn check(&self, what: &str, name: &str) -> io::Result<Injected> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_crashed {
            return Err(crashed());
        }
        state.seen += 1;
        let Some((number, fault)) = state.chosen else { return Ok(Injected::None) };
        if number != state.seen {
            return Ok(Injected::None);
        }
        state.failed = Some(format!("{what} {name}"));
        match fault {
            Fault::Once(error) => Err(error.into()),
            Fault::Crash => {
                state.has_crashed = true;
                if what == WRITE { Ok(Injected::TornWrite) } else { Err(crashed()) }
            }
        }
    }
}

/// The only change that can happen in part.
pub(crate) const WRITE: &str = "write";

pub(crate) fn crashed() -> io::Error {
    io::Error::other("the process crashed here")
}
