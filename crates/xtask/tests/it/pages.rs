//! The generated parts of pages are those that the generator writes.

use std::fs;

use xtask::pages;

#[test]
fn the_list_of_served_kinds_is_up_to_date() {
    let found = fs::read_to_string(crate::workspace().join(pages::API_SERVER)).unwrap();
    let written = pages::api_server(&found).expect("the page has a generated part");
    assert_eq!(found, written, "{}: run `make gen`", pages::API_SERVER);
}

#[test]
fn only_the_generated_part_is_replaced() {
    let page = "a\n<!-- Written by `make gen`. -->\nold\n<!-- End of the generated part. -->\nb\n";
    let written = pages::api_server(page).unwrap();
    assert!(written.starts_with("a\n") && written.ends_with("b\n"), "{written}");
    assert!(written.contains("| core | Pod |") && !written.contains("old"), "{written}");
    assert_eq!(pages::api_server(&written).as_deref(), Some(written.as_str()));
    assert_eq!(pages::api_server("a"), None);
}
