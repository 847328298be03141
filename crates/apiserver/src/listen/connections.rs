//! The open connections, and which of them are closed when there are too many.
//!
//! A new connection is always accepted while another one is idle, so that a client that holds many
//! connections keeps no other client waiting.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

/// Limits of the number of open connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// All connections. Each watch of an HTTP/1 client takes one.
    pub(super) all: usize,
    /// Connections of one address whose client has not authenticated yet.
    pub(super) unknown: usize,
}

/// One open connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// True if the client has authenticated.
    is_known: AtomicBool,
    /// Number of requests that are being answered.
    requests: AtomicUsize,
    /// Turn of the last request, to find the connection that is idle for the longest time.
    last: AtomicU64,
    closed: CancellationToken,
}

impl Connection {
    /// Records that the client has authenticated.
    pub(super) fn authenticate(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Completes when the connection must be closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    turn: AtomicU64,
    open: Mutex<BTreeMap<u64, (IpAddr, Arc<Connection>)>>,
}

/// An admitted connection. Its place is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    all: Arc<Connections>,
    number: u64,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

/// A request that is being answered. Its connection stays open until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admitted {
    /// Records the start of a request of an authenticated client.
    pub(super) fn begin(&self) -> Busy {
        let connection = &self.connection;
        connection.authenticate();
        connection.requests.fetch_add(1, Ordering::Relaxed);
        connection.last.store(self.all.next(), Ordering::Relaxed);
        Busy(Arc::clone(connection))
    }
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, turn: AtomicU64::new(0), open: Mutex::default() })
    }

    fn next(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (IpAddr, Arc<Connection>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection from an address, and closes another one if there are too many. Returns
    /// `None` if all others are busy.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let mut open = self.lock();
        let is_unknown = |one: &(IpAddr, Arc<Connection>)| one.0 == address && !one.1.is_known();
        let unknown = open.values().filter(|one| is_unknown(one)).count();
        let victim = if unknown >= self.limits.unknown {
            Some(open.iter().find(|(_, one)| is_unknown(one)).map(|(number, _)| *number)?)
        } else if open.len() >= self.limits.all {
            let idle = open.iter().filter(|(_, (_, one))| one.is_idle());
            let first = |(_, (_, one)): &(&u64, &(IpAddr, Arc<Connection>))| {
                (one.is_known(), one.last.load(Ordering::Relaxed))
            };
            Some(idle.min_by_key(first).map(|(number, _)| *number)?)
        } else {
            None
        };
        if let Some((_, closed)) = victim.and_then(|number| open.remove(&number)) {
            closed.closed.cancel();
        }
        let number = self.next();
        let connection = Arc::new(Connection { last: number.into(), ..Connection::default() });
        open.insert(number, (address, Arc::clone(&connection)));
        Some(Admitted { all: Arc::clone(self), number, connection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn connections(all: usize, unknown: usize) -> Arc<Connections> {
        Connections::new(Limits { all, unknown })
    }

    fn is_closed(one: &Admitted) -> bool {
        one.connection.closed.is_cancelled()
    }

    #[test]
    fn the_oldest_unknown_connection_of_an_address_is_closed() {
        let all = connections(10, 2);
        let elsewhere = all.admit("127.0.0.2".parse().unwrap()).unwrap();
        let [a, b] = [(); 2].map(|()| all.admit(HERE).unwrap());
        a.connection.authenticate();
        let c = all.admit(HERE).unwrap();
        assert!(![&a, &b, &c].into_iter().any(is_closed));
        let d = all.admit(HERE).unwrap();
        assert_eq!([&elsewhere, &a, &b, &c, &d].map(is_closed), [false, false, true, false, false]);
    }

    #[test]
    fn an_idle_connection_is_closed_for_a_new_one_and_a_busy_one_never() {
        let all = connections(2, 10);
        let [a, b] = [(); 2].map(|()| all.admit(HERE).unwrap());
        let (watch, request) = (a.begin(), b.begin());
        assert!(all.admit(HERE).is_none(), "all connections are busy");
        drop(request);
        let c = all.admit(HERE).unwrap();
        assert_eq!([&a, &b, &c].map(is_closed), [false, true, false]);
        drop((watch, a, b, c));
        assert_eq!(all.lock().len(), 0);
    }
}
