//! The manifests in the tree are those that the generator writes.

use std::fs;

#[test]
fn the_manifests_are_up_to_date() {
    let folder = crate::workspace().join("deploy");
    for (name, text) in xtask::manifests::files() {
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        let (header, body) = found.split_once('\n').unwrap_or_default();
        assert!(header.starts_with("# Generated "), "{name} says that it is generated");
        assert_eq!(body, text, "{name}: run `make gen`");
    }
}
