//! Faults on demand below the tree: what a crash, a full disk or a broken one does, for tests.
//!
//! Every change that the tree makes to the disk is a numbered point. At the chosen one the change fails
//! instead of happening, once or with all that come after it, as if the process had died there. A write
//! that dies leaves half of its bytes.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use rustix::io::Errno;

/// What happens at the chosen point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This change and all after it fail: the process is dead.
    Die,
    /// This change alone fails, with this error of the kernel.
    Once(Errno),
}

/// Counts the changes to a tree, and has one of them fail.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: usize,
    chosen: Option<(usize, Fault)>,
    is_dead: bool,
    failed: Option<String>,
}

/// Whether a change goes ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Whole,
    /// Only a part of it, and then an error.
    Torn,
}

impl Faults {
    /// Only counts.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Fails at the change of this number; the first is 1.
    #[must_use]
    pub fn at(number: usize, fault: Fault) -> Self {
        let state = State { chosen: Some((number, fault)), ..State::default() };
        Self { state: Mutex::new(state) }
    }

    /// How many changes there were so far.
    #[must_use]
    pub fn points(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).seen
    }

    /// The change that was made to fail, such as `rename /etc/motd`.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// A change that is about to happen.
    pub(crate) fn meet(&self, what: &str, name: &str) -> io::Result<Ahead> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_dead {
            return Err(dead());
        }
        state.seen += 1;
        let Some((number, fault)) = state.chosen else { return Ok(Ahead::Whole) };
        if number != state.seen {
            return Ok(Ahead::Whole);
        }
        state.failed = Some(format!("{what} {name}"));
        match fault {
            Fault::Once(error) => Err(error.into()),
            Fault::Die => {
                state.is_dead = true;
                if what == WRITE { Ok(Ahead::Torn) } else { Err(dead()) }
            }
        }
    }
}

/// The one kind of change that can be done in part.
pub(crate) const WRITE: &str = "write";

pub(crate) fn dead() -> io::Error {
    io::Error::other("the process died here")
}
