//! What holds for every config and every input.

use mco_ignition::{Config, check, merge, read, validate};
use proptest::prelude::*;

use crate::generate::config;

proptest! {
    #[test]
    fn what_is_written_reads_back_as_it_was(config in config()) {
        let document = read(&config.to_json()).expect("what we write is valid");
        prop_assert_eq!(document.check(), Ok(()));
        prop_assert_eq!(document.upgrade().expect("it is in the newest version"), config);
    }

    #[test]
    fn generated_configs_are_valid(config in config()) {
        prop_assert!(!validate(&config).is_fatal(), "{}", validate(&config));
        prop_assert_eq!(check(&config), Ok(()));
    }

    #[test]
    fn merging_with_an_empty_config_changes_nothing(config in config()) {
        prop_assert_eq!(&merge(config.clone(), Config::empty()), &config);
        prop_assert_eq!(&merge(Config::empty(), config.clone()), &config);
    }

    #[test]
    fn merging_a_config_with_itself_only_repeats_what_has_no_key(config in config()) {
        let mut config = without_removals(config);
        for file in &mut config.storage.files {
            file.append.clear();
        }
        for filesystem in &mut config.storage.filesystems {
            filesystem.options.clear();
            filesystem.mount_options.clear();
        }
        prop_assert_eq!(&merge(config.clone(), config.clone()), &config);
    }

    // A header without a value removes one and is itself gone when there is nothing to remove it
    // from later, so with those the order of merging matters.
    #[test]
    fn merging_is_associative_but_for_removals(a in config(), b in config(), c in config()) {
        let [a, b, c] = [a, b, c].map(without_removals).map(without_shared_keys);
        let left = merge(merge(a.clone(), b.clone()), c.clone());
        let right = merge(a, merge(b, c));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&raw);
    }

    #[test]
    fn no_damage_makes_the_reader_panic(
        config in config(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in 0..4_usize,
    ) {
        let mut raw = config.to_json();
        let start = at.index(raw.len());
        let end = (start + length).min(raw.len());
        raw.splice(start..end, [byte]);
        if let Err(error) = read(&raw) {
            let faults = error.report().map(|report| report.faults.as_slice()).unwrap_or_default();
            prop_assert!(faults.iter().all(|fault| fault.position.is_some()), "{error}");
        }
    }
}

fn without_removals(mut config: Config) -> Config {
    let files = config.storage.files.iter_mut();
    let contents = files.map(|file| &mut file.contents);
    for resource in contents.chain(&mut config.ignition.config.merge) {
        resource.http_headers.retain(|header| header.value.is_some());
    }
    config
}

/// Without the lists whose entries push out entries of other lists: what `b` pushes out of `a` comes
/// back when `c` pushes it out of `b` first.
fn without_shared_keys(mut config: Config) -> Config {
    config.storage.directories.clear();
    config.storage.links.clear();
    config.kernel_arguments.should_not_exist.clear();
    config
}
