//! The diagram of the phases in docs/architecture.md, from everything that the model explores.

use std::fmt::Write as _;

use super::{
    Phase,
    model::{self, Exploration},
};

const BEGIN: &str = "<!-- generated: lifecycle -->\n";
const END: &str = "<!-- end -->\n";

/// Draws the phases and their changes. `Failed` is left out: every phase can end there.
fn mermaid(found: &Exploration) -> String {
    let mut text = "```mermaid\nstateDiagram-v2\n    [*] --> Starting\n".to_owned();
    for ((from, to), actions) in &found.edges {
        if from == to || [from, to].contains(&&Phase::Failed) {
            continue;
        }
        let actions: Vec<&str> = actions.iter().copied().collect();
        writeln!(text, "    {from} --> {to}: {}", actions.join(", ")).unwrap();
    }
    text.push_str("```\n");
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares and writes a file of the tree")]
fn every_situation_leads_to_done_and_the_documentation_draws_the_phases() {
    let found = model::explore();
    let dead = found.dead_ends.first().map(|at| &found.worlds[*at]);
    assert!(
        dead.is_none(),
        "of {} situations {} are dead ends, such as {dead:#?}",
        found.worlds.len(),
        found.dead_ends.len()
    );
    assert_eq!(found.undrained, [""; 0], "applied without a drain");
    for phase in Phase::ALL {
        let is_reached = found.worlds.iter().any(|world| world.state.phase == phase);
        assert!(is_reached || phase == Phase::Joining, "{phase} is never reached");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/architecture.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the diagram");
    let (drawn, after) = rest.split_once(END).expect("the end of the diagram");
    let want = mermaid(&found);
    if drawn != want && std::env::var_os("MCO_UPDATE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{want}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(drawn, want, "run `MCO_UPDATE=1 cargo test -p mco-core lifecycle`");
}
