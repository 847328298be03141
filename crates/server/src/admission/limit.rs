//! A limit on the requests of one address.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of addresses that are remembered. A client with more addresses than this is
/// limited as if it had one.
const MAX_ADDRESSES: usize = 4096;

/// Allows each address a number of requests at once, and one more after each interval.
#[derive(Debug)]
pub(super) struct RateLimit {
    burst: u32,
    interval: Duration,
    /// For each address, the time at which its whole burst is available again.
    full: Mutex<HashMap<IpAddr, Instant>>,
}

impl RateLimit {
    /// Returns the limit of refused requests: a rack of machines behind one address may fail together.
    pub(super) fn refusals() -> Self {
        Self::new(20, Duration::from_secs(3))
    }

    /// Returns the limit of reports of failed first boots.
    pub(super) fn reports() -> Self {
        Self::new(6, Duration::from_secs(20))
    }

    /// Returns the limit of the events of all addresses together. Each is an object in etcd.
    pub(super) fn events() -> Self {
        Self::new(60, Duration::from_secs(5))
    }

    fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, full: Mutex::default() }
    }

    /// Returns true if the address may make a request now, and counts it.
    pub(super) fn allow(&self, address: IpAddr, now: Instant) -> bool {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = network(address);
        if full.len() >= MAX_ADDRESSES && !full.contains_key(&key) {
            full.retain(|_, time| *time > now);
            if full.len() >= MAX_ADDRESSES {
                key = Ipv6Addr::UNSPECIFIED.into();
            }
        }
        let time = full.entry(key).or_insert(now);
        let next = (*time).max(now) + self.interval;
        let allowed = next <= now + self.interval * self.burst;
        if allowed {
            *time = next;
        }
        allowed
    }
}

/// Returns the address, or the network of an IPv6 address, of which a client has all addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(limit: &RateLimit, address: &str, now: Instant) -> usize {
        (0..100).filter(|_| limit.allow(address.parse().unwrap(), now)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_a_burst_and_then_one_request_for_each_interval() {
        let limit = RateLimit::new(3, Duration::from_secs(10));
        let now = Instant::now();
        assert_eq!(count(&limit, "10.0.0.1", now), 3);
        assert_eq!(count(&limit, "10.0.0.2", now), 3, "another address");
        assert_eq!(count(&limit, "::ffff:10.0.0.1", now), 0, "the same address");
        assert_eq!(count(&limit, "10.0.0.1", now + Duration::from_secs(9)), 0);
        assert_eq!(count(&limit, "10.0.0.1", now + Duration::from_secs(10)), 1);
        assert_eq!(count(&limit, "10.0.0.1", now + Duration::from_hours(1)), 3);
        assert_eq!(count(&limit, "2001:db8::1", now), 3);
        assert_eq!(count(&limit, "2001:db8::ffff:1", now), 0, "the same network");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_addresses_neither_fills_the_memory_nor_gets_around_the_limit() {
        let limit = RateLimit::new(1, Duration::from_secs(10));
        let now = Instant::now();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let allowed = (0..20_000).filter(|number| limit.allow(address(*number), now)).count();
        assert!(allowed <= MAX_ADDRESSES + 1, "{allowed}");
        let kept = limit.full.lock().unwrap().len();
        assert!(kept <= MAX_ADDRESSES + 1, "{kept}");
        let later = now + Duration::from_mins(1);
        assert!(limit.allow(address(30_000), later), "old addresses are forgotten");
    }
}
