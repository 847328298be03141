//! Comments follow STYLE.md: summaries in rustdoc's idiom that name their actors.

use std::fs;

/// Openings of riddles: a summary starts with a verb or a noun phrase.
const QUESTIONS: [&str; 5] = ["What", "Whether", "Why", "How", "Who"];

/// Words that hide the actor.
const NAMELESS: [&str; 3] = ["nobody", "somebody", "whoever"];

/// Returns the text of every line that is a comment of its own, with its place.
fn comments() -> Vec<(String, String)> {
    let mut comments = Vec::new();
    for path in crate::sources::rust_files(&crate::workspace().join("crates")) {
        let text = fs::read_to_string(&path).expect("UTF-8");
        for (index, line) in text.lines().enumerate() {
            if let Some(comment) = line.trim_start().strip_prefix("//") {
                let comment = comment.trim_start_matches(['/', '!']).trim();
                comments.push((format!("{}:{}", path.display(), index + 1), comment.to_owned()));
            }
        }
    }
    comments
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
}

#[test]
fn fewer_than_one_comment_line_in_a_hundred_opens_with_a_question() {
    let comments = comments();
    let found: Vec<_> = comments
        .iter()
        .filter(|(_, text)| words(text).next().is_some_and(|word| QUESTIONS.contains(&word)))
        .collect();
    assert!(
        found.len() * 100 < comments.len(),
        "{} of {}: {found:#?}",
        found.len(),
        comments.len()
    );
}

#[test]
fn fewer_than_one_comment_line_in_a_thousand_hides_its_actor() {
    let comments = comments();
    let found: Vec<_> = comments
        .iter()
        .filter(|(_, text)| {
            words(text).any(|word| NAMELESS.contains(&word.to_lowercase().as_str()))
        })
        .collect();
    assert!(
        found.len() * 1000 < comments.len(),
        "{} of {}: {found:#?}",
        found.len(),
        comments.len()
    );
}
