//! Decides when a machine of the control plane takes traffic for the addresses of the API server's load
//! balancer: while the API server on the machine is healthy.
//!
//! Files in [`FOLDER`] tell the program that sets up the routes.

use std::{collections::BTreeSet, net::IpAddr};

/// Directory of the files. Compat: path and file names are the reference's.
pub const FOLDER: &str = "/run/cloud-routes";

/// Failed probes in a row after which the API server counts as down.
pub const MAX_FAILURES: u32 = 8;

/// A change to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file is removed if it exists.
    Remove(String),
    /// The file is created, empty.
    Write(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Down,
}

/// State of the API server on this machine, and the addresses of the load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiRoutes {
    addresses: BTreeSet<IpAddr>,
    /// State in the files; `None` until the first decision.
    state: Option<State>,
    failures: u32,
}

impl ApiRoutes {
    /// Returns true if the files tell that the API server is healthy.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == Some(State::Up)
    }

    /// Records the result of a probe. One success is enough to take traffic; losing it takes
    /// [`MAX_FAILURES`] failures in a row.
    pub fn observe(&mut self, is_healthy: bool) -> Vec<FileChange> {
        if is_healthy {
            self.failures = 0;
            return self.enter(State::Up);
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= MAX_FAILURES { self.enter(State::Down) } else { Vec::new() }
    }

    /// Records the addresses of the load balancer. Those that it no longer has lose their files.
    pub fn resolve(&mut self, addresses: BTreeSet<IpAddr>) -> Vec<FileChange> {
        let gone = self.addresses.difference(&addresses);
        let gone = gone.flat_map(|it| [State::Up, State::Down].map(|state| remove(*it, state)));
        let new = addresses.difference(&self.addresses);
        let new = new.flat_map(|it| self.state.into_iter().flat_map(|state| set(*it, state)));
        let changes = gone.chain(new).collect();
        self.addresses = addresses;
        changes
    }

    /// Withdraws the routes: the process ends, and a crash of the API server would go unnoticed.
    pub fn withdraw(&mut self) -> Vec<FileChange> {
        self.enter(State::Down)
    }

    fn enter(&mut self, state: State) -> Vec<FileChange> {
        if self.state == Some(state) {
            return Vec::new();
        }
        self.state = Some(state);
        self.addresses.iter().flat_map(|address| set(*address, state)).collect()
    }
}

fn path(address: IpAddr, state: State) -> String {
    let suffix = match state {
        State::Up => "up",
        State::Down => "down",
    };
    format!("{FOLDER}/{address}.{suffix}")
}

fn remove(address: IpAddr, state: State) -> FileChange {
    FileChange::Remove(path(address, state))
}

fn set(address: IpAddr, state: State) -> [FileChange; 2] {
    let other = match state {
        State::Up => State::Down,
        State::Down => State::Up,
    };
    [remove(address, other), FileChange::Write(path(address, state))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Returns changes as text: `+` creates a file, `-` removes it.
    fn shown(changes: &[FileChange]) -> Vec<String> {
        let name = |path: &str| path.strip_prefix("/run/cloud-routes/").unwrap().to_owned();
        let shown = changes.iter().map(|change| match change {
            FileChange::Remove(path) => format!("-{}", name(path)),
            FileChange::Write(path) => format!("+{}", name(path)),
        });
        shown.collect()
    }

    fn routes(texts: &[&str]) -> ApiRoutes {
        let mut routes = ApiRoutes::default();
        assert_eq!(routes.resolve(addresses(texts)), []);
        routes
    }

    // covers: O52
    #[test]
    fn eight_failures_in_a_row_take_a_route_and_one_success_gives_it() {
        let mut routes = routes(&["192.0.2.1"]);
        let up = ["-192.0.2.1.down", "+192.0.2.1.up"];
        let down = ["-192.0.2.1.up", "+192.0.2.1.down"];
        assert_eq!(shown(&routes.observe(true)), up);
        assert_eq!(routes.observe(true), [], "nothing changes while nothing differs");
        for _ in 0..7 {
            assert_eq!(routes.observe(false), []);
        }
        assert_eq!(routes.observe(true), [], "a success ends the row");
        for _ in 0..7 {
            assert_eq!(routes.observe(false), []);
        }
        assert!(routes.is_up());
        assert_eq!(shown(&routes.observe(false)), down);
        assert_eq!(routes.observe(false), []);
        assert_eq!(shown(&routes.observe(true)), up);
        assert_eq!(shown(&routes.withdraw()), down);
        assert_eq!(routes.withdraw(), []);
    }

    #[test]
    fn a_machine_that_was_never_healthy_is_down_after_eight_failures() {
        let mut routes = routes(&["192.0.2.1", "2001:db8::1"]);
        let changes: Vec<_> = (0..8).map(|_| routes.observe(false)).collect();
        assert!(changes[..7].iter().all(Vec::is_empty));
        let expected = ["-192.0.2.1.up", "+192.0.2.1.down", "-2001:db8::1.up", "+2001:db8::1.down"];
        assert_eq!(shown(&changes[7]), expected);
    }

    #[test]
    fn files_follow_the_addresses_of_the_load_balancer() {
        let mut routes = routes(&["192.0.2.1"]);
        routes.observe(true);
        let changes = routes.resolve(addresses(&["192.0.2.2"]));
        let expected = ["-192.0.2.1.up", "-192.0.2.1.down", "-192.0.2.2.down", "+192.0.2.2.up"];
        assert_eq!(shown(&changes), expected);
        assert_eq!(routes.resolve(addresses(&["192.0.2.2"])), []);
    }
}
