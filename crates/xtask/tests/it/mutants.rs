//! Every mutation of the list applies to the code as it is.

use std::{collections::BTreeSet, fs};

use xtask::mutants::ALL;

use crate::workspace;

#[test]
fn every_mutation_applies_and_has_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for mutant in ALL {
        assert!(names.insert(mutant.name), "{} is listed twice", mutant.name);
        let text = fs::read_to_string(workspace().join(mutant.file)).unwrap();
        assert_ne!(mutant.apply(&text).unwrap(), text, "{} changes nothing", mutant.name);
        assert!(mutant.tests.len() > 2, "{} names its tests", mutant.name);
    }
}
