use proptest::prelude::*;

use super::*;

fn table(total: usize, per_address: usize) -> ConnectionTable {
    ConnectionTable::new(ConnectionLimits { total, per_address })
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn is_closed(accepted: &mut Accepted) -> bool {
    matches!(accepted.closed.try_recv(), Err(oneshot::error::TryRecvError::Closed))
}

#[test]
fn another_address_gets_a_connection_of_the_address_with_the_most() {
    let mut table = table(4, 4);
    let mut held: Vec<_> = (0..4).map(|_| table.accept(address(1), 0).unwrap()).collect();
    let rows = [(2, 1), (3, 2)];
    for (other, closed) in rows {
        assert!(table.accept(address(other), 1).unwrap().is_replacement);
        let count = held.iter_mut().filter_map(|it| is_closed(it).then_some(())).count();
        assert_eq!(count, closed);
    }
    assert_eq!((table.total, table.count(Origin::from(address(1)))), (4, 2));
    // Two connections are not more than one and the new one.
    assert_eq!(table.accept(address(2), 1).unwrap_err(), Rejection::Limit);
    assert_eq!(table.accept(address(4), 1).map(|it| it.is_replacement), Ok(true));
}

#[test]
fn the_connection_without_progress_for_the_longest_time_is_closed() {
    let mut table = table(3, 3);
    let mut held: Vec<_> = (0..3).map(|time| table.accept(address(1), time).unwrap()).collect();
    // The oldest connection has made progress since.
    table.origins[&Origin::from(address(1))][&0].activity.set(10);
    table.accept(address(2), 11).unwrap();
    let closed: Vec<_> = held.iter_mut().map(is_closed).collect();
    assert_eq!(closed, [false, true, false]);
}

#[test]
fn an_address_replaces_only_its_own_idle_connections() {
    let mut table = table(10, 2);
    let mut held: Vec<_> = (0..2).map(|_| table.accept(address(1), 0).unwrap()).collect();
    assert_eq!(table.accept(address(1), IDLE - 1).unwrap_err(), Rejection::AddressLimit);
    assert!(!table.accept(address(2), IDLE - 1).unwrap().is_replacement);
    assert!(table.accept(address(1), IDLE).unwrap().is_replacement);
    assert_eq!(held.iter_mut().map(is_closed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn an_idle_connection_is_replaced_even_if_its_address_has_no_other() {
    let mut table = table(2, 2);
    let mut held: Vec<_> = (1..3).map(|last| table.accept(address(last), 0).unwrap()).collect();
    assert_eq!(table.accept(address(3), IDLE - 1).unwrap_err(), Rejection::Limit);
    assert!(table.accept(address(3), IDLE).unwrap().is_replacement);
    assert_eq!(held.iter_mut().map(is_closed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_connection_is_removed_once() {
    let mut table = table(1, 1);
    let first = table.accept(address(1), 0).unwrap();
    let second = table.accept(address(1), IDLE).unwrap();
    // The task of the replaced connection ends later.
    table.remove(first.key);
    assert_eq!(table.total, 1);
    table.remove(second.key);
    assert_eq!((table.total, table.origins.len()), (0, 0));
    assert!(!table.close_one());
}

#[test]
fn an_ipv6_network_counts_as_one_address() {
    let rows = [
        ("2001:db8::1", "2001:db8::ffff:1", true),
        ("2001:db8::1", "2001:db8:0:1::1", false),
        ("10.0.0.1", "10.0.0.2", false),
        ("::ffff:10.0.0.1", "10.0.0.1", true),
    ];
    for (one, two, same) in rows {
        let origin = |text: &str| Origin::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(origin(one) == origin(two), same, "{one} {two}");
    }
}

proptest! {
    /// An address with no connection is always accepted, as long as another one has two.
    #[test]
    fn limits_hold_and_a_new_address_is_never_kept_out(
        steps in prop::collection::vec((0_u8..6, any::<bool>()), 1..200),
    ) {
        let mut table = table(8, 5);
        let mut open: Vec<Accepted> = Vec::new();
        for (time, (last, ends)) in (0_u64..).zip(steps) {
            let (before, max) = (table.count(Origin::from(address(last))), table.heaviest());
            match table.accept(address(last), time) {
                Ok(accepted) => open.push(accepted),
                Err(_) => prop_assert!(before > 0 || max.is_none_or(|(_, count)| count < 2)),
            }
            if ends && let Some(ended) = open.pop() {
                table.remove(ended.key);
            }
            open.retain_mut(|accepted| !is_closed(accepted));
            prop_assert_eq!(table.total, open.len());
            prop_assert!(table.total <= 8);
            prop_assert!(table.origins.values().all(|entries| entries.len() <= 5));
            let counted: usize = table.origins.values().map(BTreeMap::len).sum();
            prop_assert_eq!(counted, table.total);
        }
    }
}
