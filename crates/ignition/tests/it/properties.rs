//! Properties that hold for all configs and all inputs.

use mco_ignition::{Config, check, merge, read, validate};
use proptest::prelude::*;

use crate::generate::config;

proptest! {
    #[test]
    fn serialized_configs_parse_to_themselves(config in config()) {
        let document = read(&config.to_json()).expect("serialized configs are valid");
        prop_assert_eq!(document.check(), Ok(()));
        prop_assert_eq!(document.upgrade().expect("the config is of the newest version"), config);
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
    fn merging_a_config_with_itself_repeats_only_keyless_items(config in config()) {
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

    // A header without a value removes a header and disappears if there is none to remove, so with
    // such headers the order of merging matters.
    #[test]
    fn merging_is_associative_except_for_removals(a in config(), b in config(), c in config()) {
        let [a, b, c] = [a, b, c].map(without_removals).map(without_shared_keys);
        let left = merge(merge(a.clone(), b.clone()), c.clone());
        let right = merge(a, merge(b, c));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn parsing_never_panics(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&raw);
    }

    #[test]
    fn parsing_a_damaged_config_never_panics(
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

/// Removes the lists whose entries replace entries of other lists: an entry of `a` that `b`
/// replaces comes back if `c` first replaces it in `b`.
fn without_shared_keys(mut config: Config) -> Config {
    config.storage.directories.clear();
    config.storage.links.clear();
    config.kernel_arguments.should_not_exist.clear();
    config
}
