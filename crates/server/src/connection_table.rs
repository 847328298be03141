//! The open connections of a listener by address, and the one to close when there are too many.
//!
//! Connections are shared fairly between addresses. While there is room, one address may have most
//! of them: machines behind a load balancer or a router all have its address. When there is no room,
//! a new connection replaces one of the address that has the most, so that no address can keep
//! another one waiting.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
};

use tokio::sync::oneshot;

use crate::activity::Activity;

/// Time without progress after which a connection may be replaced by one of its own address, in
/// milliseconds. A shorter time would let the machines behind one address replace each other.
pub(crate) const IDLE: u64 = 3_000;

/// The unit that connections are counted by: an IPv4 address, or an IPv6 network of 64 bits, all of
/// whose addresses one host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            IpAddr::V4(address) => IpAddr::V4(address),
        })
    }
}

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// All connections.
    pub(crate) total: usize,
    /// Connections of one address.
    pub(crate) per_address: usize,
}

/// The reason for which a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The address has as many connections as one may have, and none of them is idle.
    AddressLimit,
    /// There are as many connections as possible, no address has more than this one, and none of the
    /// connections is idle.
    Limit,
}

impl Rejection {
    /// Returns the value of the metric's label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::AddressLimit => "address_limit",
            Self::Limit => "limit",
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) key: ConnectionKey,
    pub(crate) activity: Activity,
    /// Ends when the connection must be closed.
    pub(crate) closed: oneshot::Receiver<()>,
    /// Whether another connection was closed for this one.
    pub(crate) is_replacement: bool,
}

/// The place of a connection in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionKey {
    origin: Origin,
    number: u64,
}

#[derive(Debug)]
struct Entry {
    activity: Activity,
    /// Dropped to close the connection.
    _close: oneshot::Sender<()>,
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    limits: ConnectionLimits,
    origins: HashMap<Origin, BTreeMap<u64, Entry>>,
    total: usize,
    next: u64,
}

impl ConnectionTable {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, origins: HashMap::new(), total: 0, next: 0 }
    }

    /// Accepts a connection at the time `now`, or rejects it.
    pub(crate) fn accept(&mut self, address: IpAddr, now: u64) -> Result<Accepted, Rejection> {
        let origin = Origin::from(address);
        let own = self.count(origin);
        let is_replacement = if own >= self.limits.per_address {
            self.close_idle(origin, now).ok_or(Rejection::AddressLimit)?;
            true
        } else if self.total >= self.limits.total {
            match self.heaviest() {
                Some((heaviest, count)) if count > own + 1 => self.close_stalest(heaviest),
                _ => self.close_any_idle(origin, now).ok_or(Rejection::Limit)?,
            }
            true
        } else {
            false
        };
        let (close, closed) = oneshot::channel();
        let (number, activity) = (self.next, Activity::at(now));
        self.next += 1;
        self.total += 1;
        let entry = Entry { activity: activity.clone(), _close: close };
        self.origins.entry(origin).or_default().insert(number, entry);
        Ok(Accepted { key: ConnectionKey { origin, number }, activity, closed, is_replacement })
    }

    /// Removes a connection that has ended; one that was replaced is gone already.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        let Some(connections) = self.origins.get_mut(&key.origin) else { return };
        if connections.remove(&key.number).is_some() {
            self.total -= 1;
        }
        if connections.is_empty() {
            self.origins.remove(&key.origin);
        }
    }

    /// Closes one connection of the address that has the most. Returns false if there is none.
    pub(crate) fn close_one(&mut self) -> bool {
        let heaviest = self.heaviest();
        if let Some((heaviest, _)) = heaviest {
            self.close_stalest(heaviest);
        }
        heaviest.is_some()
    }

    fn count(&self, origin: Origin) -> usize {
        self.origins.get(&origin).map_or(0, BTreeMap::len)
    }

    fn heaviest(&self) -> Option<(Origin, usize)> {
        let counts = self.origins.iter().map(|(origin, entries)| (*origin, entries.len()));
        // The address breaks ties, so that the result does not depend on the order of a hash map.
        counts.max_by_key(|(origin, count)| (*count, *origin))
    }

    /// Returns the connection of `origin` that has made no progress for the longest time.
    fn stalest(&self, origin: Origin) -> Option<(ConnectionKey, u64)> {
        let entries = self.origins.get(&origin)?;
        let found = entries.iter().min_by_key(|(_, entry)| entry.activity.last());
        found.map(|(number, entry)| {
            (ConnectionKey { origin, number: *number }, entry.activity.last())
        })
    }

    fn close_stalest(&mut self, origin: Origin) {
        if let Some((key, _)) = self.stalest(origin) {
            self.remove(key);
        }
    }

    fn close_idle(&mut self, origin: Origin, now: u64) -> Option<()> {
        let idle = self.stalest(origin).filter(|(_, last)| now.saturating_sub(*last) >= IDLE);
        idle.map(|(key, _)| self.remove(key))
    }

    /// Closes an idle connection, one of `origin` if there is one.
    fn close_any_idle(&mut self, origin: Origin, now: u64) -> Option<()> {
        if let Some(closed) = self.close_idle(origin, now) {
            return Some(closed);
        }
        let each = self.origins.keys().filter_map(|origin| self.stalest(*origin));
        let (key, _) = each.min_by_key(|(key, last)| (*last, key.number))?;
        self.close_idle(key.origin, now)
    }
}

#[cfg(test)]
mod tests;
