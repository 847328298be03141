//! The list of served kinds, for the documentation.

use std::fmt::Write as _;

use crate::{
    discovery::{self, VERBS},
    resource::builtin,
    review::REVIEWS,
};

/// Returns the kinds and verbs that the server serves, as a table in Markdown.
#[must_use]
pub fn kinds_table() -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for resource in builtin::all() {
        let parts: Vec<String> = discovery::parts(&resource)
            .into_iter()
            .map(|(name, _, verbs)| format!("`{name}` ({})", verbs.join(", ")))
            .collect();
        let verbs = discovery::verbs(&resource);
        let verbs = if verbs.len() == VERBS.len() { "all".to_owned() } else { verbs.join(", ") };
        rows.push([resource.group.clone(), resource.kind.clone(), verbs, parts.join(", ")]);
    }
    for review in REVIEWS {
        let (group, kind) = (review.group.to_owned(), review.kind.to_owned());
        rows.push([group, kind, "create".to_owned(), String::new()]);
    }
    rows.sort();
    let mut out = format!("`all` stands for {}.\n\n", VERBS.join(", "));
    out.push_str("| group | kind | verbs | subresources |\n| --- | --- | --- | --- |\n");
    for [group, kind, verbs, parts] in rows {
        let group = if group.is_empty() { "core".to_owned() } else { format!("`{group}`") };
        let _ = writeln!(out, "| {group} | {kind} | {verbs} | {parts} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_row_with_its_verbs() {
        let table = kinds_table();
        for row in [
            "| core | Pod | all | `status` (get, patch, update), `binding` (create), `eviction` (create) |",
            "| core | Namespace | create, delete, get, list, patch, update, watch | `status` (get, patch, update), `finalize` (update) |",
            "| `authorization.k8s.io` | SubjectAccessReview | create |  |",
        ] {
            assert!(table.contains(row), "{row}\n{table}");
        }
    }
}
