//! Checks `mco` against the recordings in this repository.

#[cfg(test)]
mod chaos;
#[cfg(test)]
mod daemon;
mod lab;
mod real;
mod sim;
mod vm;

use mco_testkit::oracle;

// covers: REN-10, REN-11, REN-12, REN-13, REN-14, REN-15, REN-16, REN-17, REN-18, REN-19, REN-20
// covers: REN-21, REN-22, REN-23, REN-24, REN-27, NOD-1, NOD-2, NOD-13, NOD-18, NOD-19, NOD-20
// covers: NOD-21, NOD-22, NOD-23, NOD-24, C41, C45, C46, C47
#[test]
fn outputs_equal_the_recorded_ones_of_the_reference() {
    let (outcomes, unknown) = oracle::run_all(&oracle::corpus()).expect("the corpus is readable");
    assert_eq!(unknown, Vec::<String>::new(), "every suite of the corpus has a check");
    // The base files of the others are texts of the reference, and not part of this repository.
    let is_complete = |check: &oracle::Check| matches!(check, oracle::Check::Case(_));
    let complete = oracle::SUITES.iter().filter(|(_, check)| is_complete(check)).count();
    assert_eq!(outcomes.len(), complete, "every check of complete cases has a suite in the corpus");
    for outcome in outcomes {
        assert!(outcome.passed > 0, "{} has no cases", outcome.name);
        assert!(outcome.failed.is_empty(), "{outcome}");
    }
}

#[test]
fn error_texts_equal_those_of_the_reference() {
    let outcomes = oracle::run_each(oracle::ERROR_TEXT_SUITES, &oracle::corpus())
        .expect("the corpus is readable");
    assert_eq!(outcomes.len(), oracle::ERROR_TEXT_SUITES.len());
    for outcome in outcomes {
        assert!(outcome.failed.is_empty(), "{outcome}");
    }
}
